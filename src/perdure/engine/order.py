"""What reaches the author's code next: outcomes one at a time, in event order, live and on replay.

    recorded outcomes  --(in event order, when asked and quiet)-->  the code
    calls without a record  --(when the record is used up)-->  begin
    committed outcomes  --(in event order, when quiet)-->  the code

"Quiet" means that no callback of the run's lanes is ready (engine/loop.py). Because the code then only waits, which
outcome comes next depends on nothing but the sequence of the events, so a replay repeats it exactly: who won a race,
which worker took which item, who got the lock (spec/authoring.md 2, order).

While the record lasts nothing is executed. If the next recorded outcome is one that the quiet code has not asked for,
the code has changed: that is drift, and it is found here, before anything ran.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from perdure.engine.replay import Outcome, Record

if TYPE_CHECKING:
    from perdure.engine.loop import LaneLoop, LaneTask, LaneTimer

TURNS_MAX: Final = 1000  # loop turns without quiet after which the next outcome is released all the same
SHORT_CUTS_MAX: Final = 256  # recorded outcomes handed over without yielding, between two yields
PATIENCE_S: Final = float(os.environ.get("PERDURE_REPLAY_PATIENCE_S", "60"))  # for waits that nobody records


class Waiter(Protocol):
    """Something in the author's code that waits for the outcome at `position`."""

    position: str

    @property
    def gone(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def release(self, outcome: Any) -> None:
        """Hand the outcome over."""
        ...


class Step:
    """The waiter of one awaited call."""

    __slots__ = ("future", "position")

    def __init__(self, position: str, future: asyncio.Future[Any]) -> None:
        self.position = position
        self.future = future

    @property
    def gone(self) -> bool:
        """Whether the await was cancelled."""
        return self.future.done()

    def release(self, outcome: Any) -> None:
        """Wake the awaiting lane."""
        self.future.set_result(outcome)


class Order:
    """The order of one run's outcomes."""

    __slots__ = (
        "_asked",
        "_cursor",
        "_held",
        "_live",
        "_on_drift",
        "_on_timer",
        "_patience",
        "_short_cuts",
        "_since",
        "_warn",
        "_warned",
        "foreign",
        "lanes",
        "loop",
        "now",
        "ready",
        "record",
        "replaying",
        "sockets",
        "stopped",
    )

    def __init__(
        self,
        loop: LaneLoop,
        record: Record,
        *,
        now: float,
        on_drift: Callable[[str], bool],
        on_timer: Callable[[LaneTimer], None],
        warn: Callable[[str], None],
    ) -> None:
        """`on_drift(position)` decides: True goes on without that outcome, False means the run stops.

        `on_timer` journals that a timer of the code is due. `now` is the run's time in seconds.
        """
        self.loop = loop
        self.record = record
        self.now = now
        self.ready = 0  # callbacks of lanes, scheduled and not yet run
        self.foreign = 0  # thread jobs of lanes
        self.sockets: dict[
            int, None
        ] = {}  # a dict as a set: an empty one is a third of an empty set, and runs are many
        self.stopped: BaseException | None = None
        self.lanes: dict[
            int, LaneTask
        ] = {}  # the tasks of the run that are not done, by id(): naming one changes its hash
        self.replaying = bool(record.order)
        self._on_drift, self._on_timer, self._warn = on_drift, on_timer, warn
        self._cursor = 0
        self._short_cuts = 0
        self._asked: dict[str, Waiter] = {}
        self._held: list[LaneTimer | asyncio.Future[None]] = []  # no outcome recorded: begin when the record is used up
        self._live: list[tuple[Waiter, Any, int]] = []  # committed and not yet released, in order
        self._since = loop.turn  # the loop's turn at the last release
        self._warned = False
        self._patience: tuple[int, asyncio.TimerHandle] | None = None

    # --- lanes

    def began(self, task: LaneTask) -> None:
        """A lane's task was made; its end merges it into the lane it came from, before anybody else is told."""
        self.lanes[id(task)] = task
        task.add_done_callback(self._ended)
        if self.stopped is not None:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.lanes.pop(id(task), None)
        if self.stopped is not None and not task.cancelled():
            task.exception()  # the signal ended it; nobody needs to be told
        task.lane.end()  # type: ignore[attr-defined]

    def stop(self, signal: BaseException) -> None:
        """Release nothing more; every call, waiting or to come, raises `signal`."""
        if self.stopped is not None:
            return
        self.stopped = signal
        waiters = [*self._asked.values(), *self._held, *(waiter for waiter, _, _ in self._live)]
        self._asked.clear()
        self._held.clear()
        self._live.clear()
        if self._patience is not None:
            self._patience[1].cancel()
        for waiter in waiters:
            future = waiter if isinstance(waiter, asyncio.Future) else getattr(waiter, "future", None)
            if future is not None and not future.done():
                future.set_exception(signal)

    def check(self) -> None:
        """Raise the signal that stopped the run, if one did."""
        if self.stopped is not None:
            raise self.stopped

    # --- asking

    def next_recorded(self, position: str, task: LaneTask) -> Outcome | None:
        """The recorded outcome of a call without yielding, if it is the next in order and nothing else is ready.

        None: it must be waited for. Once every SHORT_CUTS_MAX calls it must, so that the loop gets its turn.
        """
        order, cursor = self.record.order, self._cursor
        if (
            self.ready
            or cursor == len(order)
            or order[cursor] != position
            or self._short_cuts == SHORT_CUTS_MAX
            or self.stopped is not None
            or task._must_cancel  # type: ignore[attr-defined]  # noqa: SLF001  a pending cancellation comes first
        ):
            self._short_cuts = 0
            return None
        self._short_cuts += 1
        self._cursor = cursor + 1
        return self._pass(self.record.outcomes[position])

    async def recorded(self, position: str) -> Outcome:
        """The recorded outcome of a call, at its place in the order."""
        self.check()
        waiter = Step(position, self.loop.create_future())
        if self.record.is_passed(position):
            outcome = self.record.outcomes[position]
            self._live.append((waiter, outcome, outcome.at))
        else:
            self._asked[position] = waiter
        return await waiter.future  # type: ignore[no-any-return]

    async def live(self) -> None:
        """Return once the record is used up: every recorded outcome released and the lanes quiet."""
        self.check()
        if self.replaying:
            future: asyncio.Future[None] = self.loop.create_future()
            self._held.append(future)
            await future

    def waiter(self, position: str) -> Step:
        """A waiter for an outcome that is about to be made."""
        return Step(position, self.loop.create_future())

    def timer(self, timer: LaneTimer) -> None:
        """The code set a timer."""
        if self.stopped is not None:
            return
        self.record.call(timer.position)
        if not self.replaying:
            timer.begin()
        elif timer.position in self.record.outcomes:
            self._asked[timer.position] = timer
        else:
            self._held.append(timer)

    def timer_due(self, timer: LaneTimer) -> None:
        """A timer's time has come: journal it."""
        if self.stopped is None and not timer.gone:
            self._on_timer(timer)

    # --- releasing

    def arrive(self, waiter: Waiter, outcome: Any, at: int) -> None:
        """An outcome was committed. `at` is its store time in milliseconds. Follow with `quiet_if_still`."""
        if self.stopped is None:
            self._live.append((waiter, outcome, at))

    def quiet_if_still(self) -> None:
        """Release what may be released, if no callback of the code is ready."""
        if self.ready == 0:
            self.quiet()

    def overdue(self) -> bool:
        """Whether the code has kept itself busy for so long that the next outcome comes all the same."""
        return bool(self._live) and self.loop.turn - self._since > TURNS_MAX

    def quiet(self, *, force: bool = False) -> None:
        """No callback of the code is ready (or `force`): release the next outcome, skipping what nobody awaits."""
        while (self.ready == 0 or force) and self.stopped is None:
            if self.replaying:
                if not self._replay_next():
                    return
            elif self._live:
                waiter, outcome, at = self._live.pop(0)
                if waiter.gone:
                    continue
                if force and not self._warned:
                    self._warned = True
                    self._warn(
                        "The code ran 1,000 turns of the loop without waiting; await a result instead of polling."
                    )
                self._advance(at)
                waiter.release(outcome)
                force = False
            else:
                return

    def _advance(self, at: int) -> None:
        self._since = self.loop.turn
        self.now = max(self.now, at / 1000)

    def _pass(self, outcome: Outcome) -> Outcome:
        self.now = max(self.now, outcome.at / 1000)
        self.record.passed[outcome.position] = None
        return outcome

    def _replay_next(self) -> bool:
        """Release the next recorded outcome; False when the code must move first."""
        if self._live:  # only what was passed over in a rerun
            late, late_outcome, _ = self._live.pop(0)
            if not late.gone:
                self._advance(late_outcome.at)
                late.release(late_outcome)
            return True
        order = self.record.order
        if self._cursor == len(order):
            self._go_live()
            return True
        position = order[self._cursor]
        outcome = self.record.outcomes.get(position)
        waiter: Waiter | None = self._asked.pop(position, None)
        if outcome is not None and waiter is None:
            return self._unasked(position, outcome)
        self._cursor += 1
        if outcome is not None and waiter is not None:
            self._pass(outcome)
            if not waiter.gone:
                self._since = self.loop.turn
                waiter.release(outcome)
        return True

    def _unasked(self, position: str, outcome: Outcome) -> bool:
        """The next outcome in order has not been asked for although the code is quiet."""
        if self.foreign or any(self.loop.is_watched(fd) for fd in self.sockets):
            if self._patience is None or self._patience[0] != self._cursor:
                self._patience = (
                    self._cursor,
                    self.loop.real_call_later(PATIENCE_S, self._lost_patience, self._cursor),
                )
            return False
        return self._give_up(position, outcome)

    def _lost_patience(self, cursor: int) -> None:
        if self.replaying and self.stopped is None and self._cursor == cursor and self.ready == 0:
            position = self.record.order[cursor]
            outcome = self.record.outcomes.get(position)
            if outcome is not None and self._give_up(position, outcome):
                self.quiet()

    def _give_up(self, position: str, outcome: Outcome) -> bool:
        if not outcome.is_timer and not self._on_drift(position):
            return False
        self._cursor += 1
        self.record.passed[position] = None
        return True

    def _go_live(self) -> None:
        self.replaying = False
        held, self._held = self._held, []
        for item in held:
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
            else:
                item.begin()

    def foreign_done(self) -> None:
        """A thread job of the code is over."""
        self.foreign -= 1
        self.quiet_if_still()
