"""The ordered writer of one root run and its children: the only way into their journal (DESIGN 1).

Events are handed over in the order in which they were decided, and the store commits those of all runs that wait
together. Whoever needs an outcome learns of it after the
commit, never before (DESIGN 2, law 2): waiters through the run's order, engine code through a future.

The start of a quick step is held back for a moment (LaneLoop.call_lazily) and then travels inside its outcome: one row
instead of two. A step that takes longer gets its start written, so that people see what runs.

Losing the lease is final: the first refusal is kept and every later write fails with it, without asking the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from perdure.engine.loop import LaneLoop
from perdure.engine.order import Waiter
from perdure.engine.replay import Outcome
from perdure.errors import JournalError, PerdureError
from perdure.events import Event, NodeStarted, Stored
from perdure.store.journal import Item, Journal, Lease, Rejected

if TYPE_CHECKING:
    from perdure.engine.order import Order


class Place(Protocol):
    """A run, as the log sees it."""

    run_id: str
    order: Order


class _Entry:
    """An event on its way into the journal. The store calls it with what came of it."""

    __slots__ = ("event", "future", "log", "place", "waiter")

    def __init__(
        self, log: RunLog, place: Place, event: Event, waiter: Waiter | None, future: asyncio.Future[Stored] | None
    ) -> None:
        self.log, self.place, self.event, self.waiter, self.future = log, place, event, waiter, future

    def __call__(self, outcomes: list[Any] | None, error: BaseException | None) -> None:
        self.log._committed(self, outcomes, error)  # noqa: SLF001  the log's own callback


class RunLog:
    """Appends the events of one root run."""

    __slots__ = (
        "_decided",
        "_draining",
        "_journal",
        "_lazy",
        "_lazy_set",
        "_loop",
        "_on_lost",
        "_queued",
        "lease",
        "lost",
    )

    def __init__(self, journal: Journal, lease: Lease, loop: LaneLoop, on_lost: Callable[[PerdureError], None]) -> None:
        """`on_lost` is told once, when nothing more can be written."""
        self.lease = lease
        self.lost: PerdureError | None = None
        self._journal, self._loop, self._on_lost = journal, loop, on_lost
        self._queued = self._decided = 0  # events handed over, and those of them whose fate is known
        self._lazy: dict[tuple[str, str], tuple[Place, NodeStarted]] = {}
        self._lazy_set = False
        self._draining: list[tuple[int, asyncio.Future[None]]] = []  # who waits until so many are decided

    # --- writing

    def note(self, place: Place, event: Event) -> None:
        """Queue an event that nobody waits for."""
        self._push(_Entry(self, place, event, None, None))

    def outcome(self, place: Place, event: Event, waiter: Waiter) -> None:
        """Queue an event whose commit is released to the author's code through the run's order."""
        self._push(_Entry(self, place, event, waiter, None))

    def commit(self, place: Place, event: Event) -> asyncio.Future[Stored]:
        """Queue an event; the future gives what is stored, or the refusal."""
        future: asyncio.Future[Stored] = self._loop.create_future()
        self._push(_Entry(self, place, event, None, future))
        return future

    def start_lazily(self, place: Place, start: NodeStarted) -> None:
        """Queue a step's start behind everything else; it is written when the step turns out to take its time."""
        self._lazy[place.run_id, start.position] = (place, start)
        if not self._lazy_set:
            self._lazy_set = True
            self._loop.call_lazily(self._lazy_due)

    def withheld(self, place: Place, position: str) -> NodeStarted | None:
        """The start of a step if it has not been queued yet; the caller must put it into the outcome."""
        held = self._lazy.pop((place.run_id, position), None)
        return None if held is None else held[1]

    def _lazy_due(self) -> None:
        self._lazy_set = False
        lazy, self._lazy = self._lazy, {}
        for place, start in lazy.values():
            self.note(place, start)

    def _push(self, entry: _Entry) -> None:
        if self.lost is not None:
            if entry.future is not None:
                entry.future.set_exception(self.lost)
            return
        self._queued += 1
        items = [Item(entry.place.run_id, entry.event)]
        is_idle = entry.waiter is not None and self._loop.is_idle()
        try:
            self._journal.submit_many(self.lease, items, entry, self._loop, is_idle=is_idle)
        except PerdureError as error:  # the store does not even take it: closed, or too much waits
            self._committed(entry, None, error)

    # --- what came of it

    def _committed(self, entry: _Entry, outcomes: list[Any] | None, error: BaseException | None) -> None:
        self._decided += 1
        result = outcomes[0] if outcomes is not None else None
        if result is None or type(result) is Rejected:
            refusal = result.error if result is not None else error
            self._fail(entry, refusal if isinstance(refusal, PerdureError) else JournalError(repr(refusal)))
        else:
            stored: Stored = result.stored
            if entry.waiter is not None:
                event: Any = stored.event
                order = entry.place.order
                order.arrive(entry.waiter, Outcome(event.position, stored.seq, stored.at, event), stored.at)
                order.quiet_if_still()
            elif entry.future is not None and not entry.future.done():
                entry.future.set_result(stored)
        while self._draining and self._draining[0][0] <= self._decided:
            drained = self._draining.pop(0)[1]
            if not drained.done():
                drained.set_result(None)

    def _fail(self, entry: _Entry, error: PerdureError) -> None:
        """A refused event cannot be gone around: what the code did next would not be what a resume does."""
        if entry.future is not None and not entry.future.done():
            entry.future.set_exception(error)
        self.close(error)

    def close(self, error: PerdureError) -> None:
        """Write nothing more; every later append fails with `error`."""
        if self.lost is not None:
            return
        self.lost = error
        self._lazy.clear()
        self._on_lost(error)

    async def drain(self) -> None:
        """Return once everything queued so far is decided. Runs of one tree may wait at the same time."""
        self._lazy_due()
        if self._decided < self._queued:
            drained: asyncio.Future[None] = self._loop.create_future()
            self._draining.append((self._queued, drained))
            await drained
