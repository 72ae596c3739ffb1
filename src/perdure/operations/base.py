"""One recorded call: take its place, look it up, else do it and record what came of it (DESIGN 6).

`Call.make` runs when the author calls, `outcome` when the author awaits. In between nothing happens, so the position
says where the call stands in the code and not when it was reached.

    called   position, digest and parents are taken; another digest in the record is drift, found here
    awaited  recorded outcome -> at its place in the order
             none             -> once the record is used up: do it in an engine task, journal, release in order
    settled  the node enters the frontier of the lane that awaits
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from msgspec import UNSET, Raw, UnsetType

from perdure.errors import CallOutsideLane
from perdure.events import Event, Failure, NodeFinished, NodeStarted, Stored, ValueRecorded
from perdure.graph.lanes import Lane
from perdure.states import NodeKind, NodeStatus


class Outcome(Protocol):
    """What the order releases: the committed event and when it was committed."""

    position: str
    seq: int
    at: int
    event: Any


class Order(Protocol):
    """The order of a run's outcomes (engine/order.py)."""

    loop: Any
    replaying: bool
    stopped: BaseException | None
    now: float

    def check(self) -> None:
        """Raise the signal that stopped the run, if one did."""
        ...

    def next_recorded(self, position: str, task: Any) -> Any:
        """The recorded outcome without waiting, if it is the next one and nothing else may happen before it."""
        ...

    async def recorded(self, position: str) -> Any:
        """The recorded outcome at its place in the order."""
        ...

    async def live(self) -> None:
        """Return once the record is used up."""
        ...

    def waiter(self, position: str) -> Any:
        """A waiter for an outcome about to be made."""
        ...


class Log(Protocol):
    """The writer of the run's journal (engine/runlog.py)."""

    def note(self, place: Any, event: Event) -> None:
        """Queue an event nobody waits for."""
        ...

    def outcome(self, place: Any, event: Event, waiter: Any) -> None:
        """Queue an event whose commit is released in order."""
        ...

    def commit(self, place: Any, event: Event) -> Awaitable[Stored]:
        """Queue an event and wait for its commit."""
        ...

    def start_lazily(self, place: Any, start: NodeStarted) -> None:
        """Queue a start that may travel inside its outcome."""
        ...

    def withheld(self, place: Any, position: str) -> NodeStarted | None:
        """The start, if it has not been queued yet."""
        ...


class Run(Protocol):
    """The run an operation belongs to (engine/runner.py)."""

    run_id: str
    record: Any
    order: Any
    log: Any
    epoch: int
    open_calls: dict[str, Call]

    def check_lease(self) -> Awaitable[None] | None:
        """What to await before a side effect, if the lease may be out of date."""
        ...

    def drifted(self, position: str, found: str) -> bool:
        """The code asks for `found` where the record holds something else; True: run it all the same."""
        ...

    def spawn(self, coro: Coroutine[Any, Any, None], name: str, *, context: Any = None) -> asyncio.Task[None]:
        """Run engine work that belongs to no lane."""
        ...

    def store_now_ms(self) -> int:
        """The store's clock, milliseconds, as well as this process knows it."""
        ...

    def abandon(self, call: Call, reason: BaseException) -> None:
        """The code no longer waits for this call: stop its work, note why."""
        ...

    def count(self, kind: NodeKind) -> None:
        """Raise LimitReached when the run has made all the calls of this kind that it may."""
        ...


class Call:
    """One call of the author, at its position."""

    __slots__ = (
        "_code",
        "_line",
        "abandoned",
        "decided",
        "digest",
        "kind",
        "label",
        "lane",
        "name",
        "parents",
        "position",
        "run",
        "take",
        "task",
    )

    def __init__(
        self, run: Run, kind: NodeKind, name: str, digest: str, *, label: str = "", depth: int = 2,
        below: Lane | None = None,
    ) -> None:  # fmt: skip
        """Take the next position of the running lane. `depth`: how many frames up the author's line is.

        `below` counts the positions instead: calls of a thing that has a place of its own, such as a stage's prompts.

        Raises CallOutsideLane, LimitReached, and Suspend when the code drifted from the record.
        """
        running = lane_of(run)
        self.lane = lane = below or running
        run.order.check()
        run.count(kind)
        self.run, self.kind, self.name, self.digest, self.label = run, kind, name, digest, label
        self.position = position = lane.next_position()
        self.parents = running.call_parents()
        frame = sys._getframe(depth)  # noqa: SLF001  the line of the author's call, for drift reports
        self._code, self._line = frame.f_code, frame.f_lineno
        self.abandoned = False  # the code no longer waits
        self.decided = False  # the outcome is on its way into the journal
        self.task: asyncio.Task[None] | None = None
        record = run.record
        record.call(position)
        start = record.starts.get(position)
        if start is not None:
            if start.digest != digest:
                self._drift(f"{start.kind} {start.name}", start.source)
            else:
                self.parents = start.parents
        else:
            outcome = record.outcomes.get(position)
            if outcome is not None and (type(outcome.event) is not ValueRecorded or outcome.event.digest != digest):
                self._drift(f"value {getattr(outcome.event, 'kind', '')}", "")
        self.take = record.takes.get(position, 0)

    def _drift(self, recorded: str, source: str) -> None:
        """The code is not the one that made the record. Go on as if nothing were recorded here, or raise Suspend."""
        what = f"{self.kind} {self.name}"
        at = f" ({source})" if source else ""
        found = f"{what} ({self.source})" if what != recorded else f"it with other arguments ({self.source})"
        if not self.run.drifted(self.position, f"{recorded}{at}, the code now asks for {found}"):
            self.run.order.check()
        self.run.record.takes[self.position] = self.run.record.takes.get(self.position, 0) + 1
        self.run.record.forget(self.position)

    @property
    def source(self) -> str:
        """Where in the author's code the call stands: file:line."""
        return f"{self._code.co_filename.rpartition('/')[2]}:{self._line}"

    @property
    def has_outcome(self) -> bool:
        """Whether the record holds this call's outcome."""
        return self.position in self.run.record.outcomes

    def start(self, *, detail: Raw | UnsetType = UNSET, child_run_id: str = "", delay_ms: int = 0) -> NodeStarted:
        """The event that says the step began."""
        return NodeStarted(
            position=self.position, kind=self.kind, name=self.name, digest=self.digest, parents=self.parents,
            lane=self.lane.mention(), take=self.take, source=self.source, label=self.label, detail=detail,
            child_run_id=child_run_id, delay_ms=delay_ms,
        )  # fmt: skip

    def finished(
        self,
        status: NodeStatus,
        *,
        value: Raw | UnsetType = UNSET,
        failure: Failure | None = None,
        attempts: int = 1,
        elapsed_ms: int = 0,
    ) -> NodeFinished:
        """The event that says what came of it, with the start inside if that was not written on its own."""
        self.decided = True
        return NodeFinished(
            position=self.position, status=status, value=value, failure=failure, take=self.take, attempts=attempts,
            elapsed_ms=elapsed_ms, start=self.run.log.withheld(self.run, self.position),
        )  # fmt: skip

    async def outcome(self, work: Callable[[Call, Any], Coroutine[Any, Any, None]], *, context: Any = None) -> Outcome:
        """The outcome: recorded, or made by `work(call, waiter)`, which journals it through the waiter."""
        run = self.run
        order = run.order
        task: Any = asyncio.current_task(order.loop)
        if self.position in run.record.outcomes:
            outcome: Outcome = order.next_recorded(self.position, task) or await order.recorded(self.position)
        else:
            outcome = await self._made(order, work, context)
        lane: Lane = getattr(task, "lane", None) or self.lane  # the one that awaits, not the one that called
        lane.settle(self.position, self.parents)
        return outcome

    async def _made(
        self, order: Order, work: Callable[[Call, Any], Coroutine[Any, Any, None]], context: Any
    ) -> Outcome:
        run = self.run
        run.open_calls[self.position] = self
        try:
            if order.replaying or order.stopped is not None:
                await order.live()
            waiter = order.waiter(self.position)
            self.task = run.spawn(work(self, waiter), self.name, context=context)
            outcome: Outcome = await waiter.future
            return outcome
        except GeneratorExit:  # the coroutine is thrown away with its loop: nothing may be done any more
            raise
        except BaseException as reason:
            run.abandon(self, reason)
            raise
        finally:
            run.open_calls.pop(self.position, None)


def lane_of(run: Run) -> Lane:
    """The lane of `run` that is running. Raises CallOutsideLane."""
    loop = run.order.loop
    if events._get_running_loop() is loop:  # noqa: SLF001  None in a thread, where current_task would raise
        lane: Lane | None = getattr(asyncio.current_task(loop), "lane", None)
        if lane is not None and lane.owner is run:
            return lane
    raise CallOutsideLane
