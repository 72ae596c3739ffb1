"""Which model is asked next after one failed: the same again after a wait, the next one, or none (spec/control.md 3).

Decides only; whoever asks the models waits and asks. The law: a failure that another try can cure costs at most
`retries_max` tries of one candidate; one that only another model can cure moves on at once; every other one ends the
turn. A candidate that answered starts afresh, so a turn of a hundred requests may survive a hundred short outages.

    rate limit, outage, cut connection    -> the same (2 s, 4 s, 8 s, or what the provider asks, up to 60 s) -> next
    key, model unknown, request refused   -> next
    content filter, tools, anything else  -> the turn fails
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from perdure.agents.house.candidate import Candidate

RETRIES_MAX: Final = 3  # of one candidate for one request
BASE_SECONDS: Final = 2.0
WAIT_SECONDS_MAX: Final = 60.0

Trouble = Literal["passing", "model", "final"]


@dataclass(frozen=True, slots=True)
class Try:
    """Ask `candidate` after `wait` seconds."""

    candidate: Candidate
    wait: float = 0.0


class Chain:
    """The candidates of a session and how far down it is. The candidate that answered last goes first from then on."""

    def __init__(
        self, candidates: tuple[Candidate, ...], *, retries_max: int = RETRIES_MAX, base_seconds: float = BASE_SECONDS
    ) -> None:
        """`base_seconds` is the first wait; it doubles."""
        assert candidates
        self.candidates = candidates
        self._retries_max = retries_max
        self._base_seconds = base_seconds
        self._left = list(candidates)
        self._failures = 0

    @property
    def current(self) -> Candidate:
        """Who is asked now."""
        return self._left[0]

    def restart(self) -> None:
        """Begin a new turn with the last good candidate, then every other one from the primary on."""
        first = self.current
        self._left = [first, *(one for one in self.candidates if one != first)]
        self._failures = 0

    def answered(self) -> None:
        """The current candidate has answered a request."""
        self._failures = 0

    def after(self, trouble: Trouble, retry_after: float | None = None) -> Try | None:
        """What to do about a failure; None when it ends the turn. `retry_after`: seconds the provider asked for."""
        if trouble == "final":
            return None
        if trouble == "passing" and self._failures < self._retries_max:
            wait = max(self._base_seconds * 2**self._failures, retry_after or 0.0)
            if wait <= WAIT_SECONDS_MAX:
                self._failures += 1
                return Try(self.current, wait)
        if len(self._left) == 1:
            return None
        del self._left[0]
        self._failures = 0
        return Try(self.current)
