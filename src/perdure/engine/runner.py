"""One execution of one run, root or child: the body in its lanes, and the one decision how it ended.

    body returns -------------> completed (or failed: the output does not fit)
    body raises --------------> failed | blocked, with the positions of the failures it carries
    ctx.exit, anywhere -------> the exit's status; the first exit wins
    stopped from outside -----> the verdict it was stopped with (quit, drift, lost lease), whatever the body then does

A verdict is set once and the order releases nothing after it, so a body that catches the signal cannot undo it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context as Variables
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec import Raw, UnsetType

from perdure import failures
from perdure.engine.ending import Ending, carried, is_ours
from perdure.engine.loop import LaneTimer
from perdure.engine.order import Order
from perdure.engine.replay import Record
from perdure.errors import (
    ExitRun,
    LimitReached,
    OutputInvalid,
    PayloadInvalid,
    PerdureError,
    ReplayMismatch,
    Signal,
    Suspend,
)
from perdure.events import NodeAbandoned, NodeJoined, StatusChanged, TimerFired
from perdure.graph.lanes import Lane
from perdure.operations.base import Call
from perdure.operations.context import Context
from perdure.operations.conversation import used_before
from perdure.operations.results import Usage
from perdure.operations.setting import Spoken
from perdure.operations.workplace import settle
from perdure.operations.worktrees import Worktree
from perdure.states import NodeKind, NodeStatus, RunStatus
from perdure.values import raw

if TYPE_CHECKING:
    from perdure.definitions import Workflow
    from perdure.engine.tree import Tree

_logger = logging.getLogger("perdure.engine")

UNWIND_S: Final = 1.0  # how long a stopped body and its lanes get to clean up
TOOLS_S: Final = 0.5  # how long cancelled tools get
STAGES_S: Final = 8.0  # how long stages get to end their agents' processes; all three stay below control's patience
LIMITS: Final[dict[str, tuple[int, str]]] = {
    "stage": (1_000, "stages in a run tree"),
    "boundary": (1_000, "child runs in a run tree"),
    "tool": (1_000_000, "tool calls in a run tree"),
}


class Run:
    """A run being executed. Operations see it as operations.base.Run."""

    __slots__ = (
        "_body", "_changes", "_tasks", "children", "cwd", "depth", "epoch", "inputs", "log", "open_calls", "order",
        "parent", "record", "run_id", "spoken", "tree", "usage", "verdict", "workflow", "worktree",
    )  # fmt: skip

    def __init__(
        self, tree: Tree, workflow: Workflow, inputs: dict[str, Any], record: Record, parent: Run | None = None
    ) -> None:
        self.tree, self.workflow, self.inputs, self.parent = tree, workflow, inputs, parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.run_id = record.run_id
        self.log = tree.log
        self.epoch = tree.lease.epoch
        self.verdict: Ending | None = None
        self.children: dict[str, Run] = {}  # those that run now, by their boundary's position
        self.open_calls: dict[str, Call] = {}
        self.usage = sum((used_before(one) for one in record.usage.values()), Usage())
        self.cwd: Path = tree.options.cwd if parent is None else parent.cwd
        self.worktree: Worktree | None = None if parent is None else parent.worktree  # that `cwd` lies in
        self._tasks: dict[asyncio.Task[Any] | None, None] = {}
        self._body: asyncio.Task[Any] | None = None
        self._changes = record.changes
        self._load(record)

    def _load(self, record: Record) -> None:
        self.record = record
        self.spoken: list[Spoken] = []
        self.order = Order(
            self.tree.loop, record, now=max(record.started_at, 1) / 1000, on_drift=self._unasked,
            on_timer=self._timer_due, warn=self.tree.warn,
        )  # fmt: skip

    # --- executing

    def begin(self) -> None:
        """The status `running` is recorded: load what the resume left of the record."""
        if self.record.status in {"failed", "blocked"} and self.record.failed:
            self.record.set_aside(self.record.failed)
            self.record.ready()
            self._load(self.record)

    async def execute(self) -> Ending:
        """Run the body to its end and record how it ended."""
        self.tree.loop.admit()
        try:
            ending = await self._run_body()
            if self._may_go_on_once(ending):
                await self.tree.log.commit(self, self._status("running", set_aside=ending.failed))
                await self.tree.reload()  # what this execution recorded so far counts too
                self._load(self.tree.record_of(self.run_id))
                ending = await self._run_body()
            self._warn_of_unasked()
            ending = replace(ending, replayed=len(self.record.passed))
            return await self._record_end(ending)
        except PerdureError as error:
            if self.log.lost is None:
                raise
            return self._lost(error)
        finally:
            self.tree.loop.dismiss()

    def _warn_of_unasked(self) -> None:
        """The body came to an end of its own without asking for all that is recorded: its code may have changed."""
        left = self.record.unasked
        if left and (self.verdict is None or self.verdict.exited):
            shown = ", ".join(self.record.describe(position) for position in left[:3])
            self.tree.warn(f"Recorded, and not asked for by the code this time ({len(left)}): {shown}.")

    def _may_go_on_once(self, ending: Ending) -> bool:
        """A crashed run that ends only by failures recorded before the crash sets them aside and goes on, once."""
        outcomes = self.record.outcomes
        return (
            self.tree.crashed
            and self.verdict is None
            and bool(ending.failed)
            and all(p in outcomes and p in self.record.passed for p in ending.failed)
        )

    async def _run_body(self) -> Ending:
        if self.workflow.worktree and self._body is None and not await self._is_settled():
            assert self.verdict is not None
            return self.verdict
        lane = Lane(self, on_join=self._joined)
        body = self.workflow.fn(Context(self), **self.inputs)
        self._body = self.tree.loop.start_lane(body, lane)
        if self.verdict is not None:  # stopped before it began
            self._body.cancel()
        ended: asyncio.Future[None] = self.tree.loop.create_future()
        self._body.add_done_callback(lambda _: None if ended.done() else ended.set_result(None), context=Variables())
        await ended
        await self._unwind()
        if self.verdict is not None:
            if not self._body.cancelled():
                self._body.exception()  # looked at, else the loop complains of a signal nobody took
            return self.verdict
        return self._ending_of(self._body)

    async def _is_settled(self) -> bool:
        """Have the folder in which the workflow wants to work, before its body can ask for it."""
        self._body = asyncio.create_task(settle(self), name="worktree")
        try:
            self.worktree = await self._body or self.worktree
        except asyncio.CancelledError:  # by `stop`
            return False
        except PerdureError as error:
            failure = failures.classify(error, origin="engine")
            self.verdict = self.verdict or Ending(status="failed", failure=failure, code=failure.code)
            return False
        self.cwd = self.cwd if self.worktree is None else self.worktree.cwd
        return True

    async def _unwind(self) -> None:
        """The body is over: what still runs is cancelled, lanes first, then open steps, then what they started."""
        lanes = [task for task in self.order.lanes.values() if task is not self._body]
        for task in lanes:
            task.cancel("run_ended")
        if lanes:
            await asyncio.wait(lanes, timeout=UNWIND_S)
        self.order.stop(Suspend("The run is over."))
        for call in list(self.open_calls.values()):
            self.abandon(call, Suspend("run_ended"))
        while self.children:  # they keep the same bounds, and end before their parent does
            await asyncio.wait(filter(None, self._tasks), return_when=asyncio.FIRST_COMPLETED)
        if self._tasks:
            await asyncio.wait(filter(None, self._tasks), timeout=TOOLS_S)
        if self._tasks:
            await asyncio.wait(filter(None, self._tasks), timeout=STAGES_S if self.tree.has_agents else 0.0)
        for left in filter(None, self._tasks):
            self.tree.warn(f"Gave up waiting for {left.get_name()}, which does not react to its cancellation.")

    def _ending_of(self, body: asyncio.Task[Any]) -> Ending:
        error = asyncio.CancelledError() if body.cancelled() else body.exception()
        if error is None:
            try:
                output = raw(self.workflow.validate_output(body.result()), what="output")
            except (OutputInvalid, PayloadInvalid, LimitReached) as problem:
                return Ending(status="failed", failure=failures.classify(problem, origin="author"), code=problem.code)
            return Ending(status="completed", output=output)
        if isinstance(error, AssertionError) and is_ours(error):
            return Ending(
                status="failed", failure=failures.classify(error, origin="engine"), code="corrupt", resumable=False
            )
        failure = failures.classify(error, origin="author")
        facts = failures.facts(failure.code)
        status: RunStatus = "blocked" if facts.disposition == "active_blocked" else "failed"
        return Ending(status=status, failure=failure, code=failure.code, failed=carried(error, self.run_id))

    async def _record_end(self, ending: Ending) -> Ending:
        """The run's last event. When it cannot be written the journal still says running, and a resume goes on."""
        if self.log.lost is not None:
            return self._lost(self.log.lost)
        event = self._status(
            ending.status,
            code=ending.code,
            reason=ending.reason,
            resumable=ending.resumable,
            output=ending.output,
            failure=ending.failure,
            exited=ending.exited,
            failed=ending.failed,
        )
        try:
            await self.log.drain()
            await self.log.commit(self, event)
        except PerdureError as error:
            return self._lost(error)
        return ending

    def _lost(self, error: PerdureError) -> Ending:
        failure = failures.classify(error, origin="engine")
        return Ending(status="running", failure=failure, code=error.code, reason=error.message, recorded=False)

    def _status(self, status: RunStatus, **fields: Any) -> StatusChanged:
        self._changes += 1
        return StatusChanged(status=status, epoch=self.epoch, number=self._changes, **fields)

    def reopened(self, *, rerun: bool = False) -> StatusChanged:
        """The event with which this execution begins: running, and what it sets aside."""
        failed = self.record.failed if self.record.status in {"failed", "blocked"} else ()
        return self._status("running", set_aside=failed, rerun=rerun)

    # --- stopping

    def stop(self, ending: Ending, signal: Signal) -> None:
        """End the run with this verdict, and its children likewise. The first verdict holds."""
        if self.verdict is not None:
            return
        self.verdict = ending
        for child in list(self.children.values()):
            child.stop(ending if not ending.exited else Ending(status="cancelled", reason="parent_exited"), signal)
        self.order.stop(signal)
        body = self._body
        if body is not None:
            if body is not asyncio.current_task():
                body.cancel()
            self.tree.loop.real_call_later(UNWIND_S, self._insist)

    def _insist(self) -> None:
        """The body caught its cancellation and goes on: cancel it until it gives in."""
        if self._body is not None and not self._body.done():
            self._body.cancel()
            self.tree.loop.real_call_later(UNWIND_S, self._insist)

    def leave(self, status: RunStatus, reason: str, output: Raw | UnsetType, *, resumable: bool) -> NoReturn:
        """`ctx.exit`: never returns."""
        signal = ExitRun(reason)
        self.stop(Ending(status=status, output=output, reason=reason, resumable=resumable, exited=True), signal)
        raise signal

    def ancestry(self) -> tuple[str, ...]:
        """The names of the runs from the root to this one."""
        return (*(self.parent.ancestry() if self.parent is not None else ()), self.workflow.name)

    def abandon(self, call: Call, reason: BaseException) -> None:
        """The code no longer waits for this call: stop its work, and note it unless the run will go on later."""
        if call.abandoned:
            return
        call.abandoned = True
        if call.task is None:  # it never began
            return
        why = str(reason.args[0]) if reason.args else "cancelled"
        child = self.children.get(call.position)
        if child is None:
            call.task.cancel()
        else:  # it ends by itself, and its end is recorded
            child.stop(Ending(status="cancelled", reason=why), Suspend(why))
        if (
            call.decided
            or self.log.lost is not None
            or (self.verdict is not None and self.verdict.status in {"paused", "blocked"})
        ):
            return
        status: NodeStatus = "cancelled" if call.kind == "tool" else "skipped"
        start = self.log.withheld(self, call.position)
        self.log.note(
            self, NodeAbandoned(position=call.position, status=status, epoch=self.epoch, reason=why, start=start)
        )

    # --- what operations ask of their run

    def check_lease(self) -> Any:
        """See operations.base.Run."""
        return self.tree.check_lease()

    def store_now_ms(self) -> int:
        """See operations.base.Run."""
        return self.tree.store_now_ms()

    def count(self, kind: NodeKind) -> None:
        """See operations.base.Run."""
        limit = LIMITS.get(kind)
        if limit is None:
            return
        counts = self.tree.counts
        made = counts[kind] = counts.get(kind, 0) + 1
        if made > limit[0]:
            raise LimitReached(f"The run has made {limit[0]} {limit[1]}, the most it may.", limit=limit[0], kind=kind)

    def spawn(
        self, coro: Coroutine[Any, Any, None], name: str, *, context: Variables | None = None
    ) -> asyncio.Task[None]:
        """See operations.base.Run. An error that gets out of engine work ends the run as corrupt."""
        task: asyncio.Task[None] = asyncio.Task(
            self._guarded(coro), loop=self.tree.loop, name=name, context=context or Variables()
        )
        self._tasks[task] = None
        return task

    async def _guarded(self, coro: Coroutine[Any, Any, None]) -> None:
        try:
            await coro
        except Exception as error:  # noqa: BLE001  top of the engine's own work: whatever gets here is our fault
            self._engine_failed(error)
        finally:
            self._tasks.pop(asyncio.current_task(), None)

    def _engine_failed(self, error: Exception) -> None:
        if self.verdict is not None or self.log.lost is not None:
            return
        _logger.error("The engine failed in run %s", self.run_id, exc_info=error)
        failure = failures.classify(error, origin="engine")
        ours = isinstance(error, AssertionError)
        code = "corrupt" if ours else failure.code
        self.tree.stop(
            Ending(status="failed", failure=failure, code=code, resumable=not ours), Suspend(failure.message)
        )

    def drifted(self, position: str, found: str) -> bool:
        """See operations.base.Run."""
        if self.tree.rerun:
            return True
        lane = self.record.lane_path(position.partition(":")[0])
        self._block(f"At {position} in lane {lane} the record holds {found}.", position)
        return False

    def _unasked(self, position: str) -> bool:
        """The order's question: the next recorded outcome has not been asked for although the code is quiet."""
        if self.tree.rerun:
            return True
        calls = list(self.open_calls.values())
        found = ", ".join(f"new {c.kind} {c.name} ({c.source})" for c in calls) or "nothing"
        self._block(f"Recorded: {self.record.describe(position)}; the code waits for {found}.", position)
        return False

    def _block(self, message: str, position: str) -> None:
        error = ReplayMismatch(
            f"{message} The code has changed since this run began. Put the old step back, guard the change with "
            f'ctx.patched("name"), or go on with: perdure resume {self.tree.root_run_id} --on-drift rerun',
            position=position,
        )
        failure = failures.classify(error, origin="engine")
        self.tree.stop(
            Ending(status="blocked", failure=failure, code=error.code, reason=error.message), Suspend(message)
        )

    def _joined(self, position: str, parents: tuple[str, ...]) -> None:
        if position not in self.record.parents:
            self.log.note(self, NodeJoined(position=position, parents=parents))

    def _timer_due(self, timer: LaneTimer) -> None:
        event = TimerFired(
            position=timer.position,
            parents=timer.parents,
            lane=timer.lane.mention(),
            take=self.record.take(timer.position),
        )
        self.log.outcome(self, event, timer)
