"""The event loop on which authors' code runs: it knows, per run, whether any callback of the code is ready.

That one number, `Order.ready`, is what makes a resumed run do what the first one did. An outcome is released to the
code only when the number is zero, so the code reacts to outcomes one at a time and in event order (engine/order.py),
live as on replay. Everything an author may use keeps working as plain asyncio: gather, TaskGroup, wait, queues, locks,
timeouts, anyio.

How: a ContextVar (graph/lanes.py) marks the contexts of the author's tasks. `call_soon` counts handles of marked
contexts; `create_task` gives every task of the code a lane; `call_later` turns the code's timers into recorded
outcomes; `time` stands still between outcomes. What the engine itself does runs in unmarked contexts and is ordinary.

Rejected: a task factory alone (callbacks of futures and locks stay uncounted), counting tasks instead of handles (a
task that waits for a lock looks busy), and virtual time for everything (agents live in real time).
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from perdure.clock import SystemClock
from perdure.errors import CallOutsideLane, UnorderedLanes
from perdure.graph.lanes import LANE, Lane

if TYPE_CHECKING:
    from perdure.engine.order import Order

ENGINE: Final = Context()  # the engine's own callbacks belong to no lane
_ENSURE_FUTURE: Final[frozenset[CodeType]] = frozenset(
    getattr(asyncio.tasks, name).__code__
    for name in ("ensure_future", "_ensure_future")
    if hasattr(asyncio.tasks, name)
)
_clock: Final = SystemClock()
LAZY_MS: Final = 20
DRAIN_MAX: Final = 64  # callbacks in a row between two looks at sockets and timers
_AS_COMPLETED: Final = "as_completed"


class LaneHandle(asyncio.Handle):
    """A ready callback of an author's lane."""

    __slots__ = ("_order", "_spent")

    def __init__(
        self, callback: Callable[..., Any], args: Any, loop: LaneLoop, context: Context | None, order: Order
    ) -> None:
        super().__init__(callback, args, loop, context)
        self._order = order
        self._spent = False  # no longer counted as ready
        order.ready += 1

    def _run(self) -> None:
        order = self._order
        self._spent = True
        order.ready -= 1
        super()._run()
        loop = order.loop
        was_last = loop.is_idle() and not loop.draining
        if order.ready == 0:
            order.quiet()
        elif order.overdue():
            order.quiet(force=True)
        if was_last:
            loop.drain_ready()

    def cancel(self) -> None:
        """As asyncio's; a cancelled callback no longer counts as ready."""
        if not self._spent:
            self._spent = True
            order = self._order
            order.ready -= 1
            if order.ready == 0:  # whoever cancelled it may be no lane, then nobody else looks
                order.loop.call_soon(order.quiet_if_still, context=ENGINE)
        super().cancel()


class LaneTimer(asyncio.TimerHandle):
    """A timer of the author's code: firing is journaled, then released in order like any outcome."""

    __slots__ = ("_inner", "_lane", "delay", "parents", "position")

    def __init__(
        self, delay: float, callback: Callable[..., Any], args: Any, loop: LaneLoop, context: Context, lane: Lane
    ) -> None:
        order: Order = lane.owner.order
        super().__init__(order.now + delay, callback, args, loop, context)
        self.delay = delay
        self.position = lane.next_timer()
        self.parents = lane.frontier
        self._lane = lane
        self._inner: asyncio.TimerHandle | None = None
        order.timer(self)

    @property
    def lane(self) -> Lane:
        """The lane that set the timer."""
        return self._lane

    @property
    def gone(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._cancelled

    def begin(self) -> None:
        """Start counting real time; the record is used up."""
        if not self.gone:
            order: Order = self._lane.owner.order
            self._inner = order.loop.real_call_later(self.delay, order.timer_due, self)

    def release(self, _outcome: Any) -> None:
        """Run the callback as a ready callback of the lane."""
        order: Order = self._lane.owner.order
        loop = order.loop
        loop.append_ready(LaneHandle(self._callback, self._args, loop, self._context, order))  # type: ignore[attr-defined]

    def cancel(self) -> None:
        """Never fire. Safe at any time."""
        if not self._cancelled:
            if self._inner is not None:
                self._inner.cancel()
                self._inner = None
            asyncio.Handle.cancel(self)


class LaneTask(asyncio.Task[Any]):
    """A task of the author's code. It hashes by its lane, so that a set of tasks has one order on every replay."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: LaneLoop, context: Context, lane: Lane) -> None:
        self.lane = lane
        super().__init__(coro, loop=loop, context=context)

    def __hash__(self) -> int:
        return self.lane.hash

    def __eq__(self, other: object) -> bool:
        return self is other

    def set_name(self, value: object) -> None:
        """Name the task, and the lane if this comes right after the task was made."""
        self.lane.rename(str(value))
        super().set_name(value)


class LaneLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that counts ready callbacks per run. Several runs share one loop."""

    turn = 0
    _orders = 0  # how many runs are on this loop

    def __init__(self) -> None:
        super().__init__()
        self._lazy: list[Callable[[], None]] = []
        self.draining = False

    # --- callbacks

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        """As asyncio's, counted when the context belongs to a lane."""
        lane = LANE.get() if context is None else context.get(LANE)
        if lane is None:
            return super().call_soon(callback, *args, context=context)
        handle = LaneHandle(callback, args, self, context, lane.owner.order)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def drain_ready(self) -> None:
        """Run what became ready just now without asking the operating system in between: a release costs no turn.

        Only called when the turn has nothing else to run, so the order of callbacks stays what it would be.
        """
        ready = self._ready  # type: ignore[attr-defined]
        self.draining = True
        try:
            for _ in range(DRAIN_MAX):
                if not ready:
                    return
                handle = ready.popleft()
                if not handle._cancelled:  # noqa: SLF001
                    handle._run()  # noqa: SLF001
        finally:
            self.draining = False

    def append_ready(self, handle: asyncio.Handle) -> None:
        """Queue a handle that already exists."""
        self._ready.append(handle)  # type: ignore[attr-defined]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; in a lane the timer is an outcome of the run."""
        lane = LANE.get() if context is None else context.get(LANE)
        if lane is None:
            return super().call_at(self.real_time() + delay, callback, *args, context=context)
        return LaneTimer(max(0.0, delay), callback, args, self, context or copy_context(), lane)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; in a lane `when` is on the run's own clock."""
        lane = LANE.get() if context is None else context.get(LANE)
        if lane is None:
            return super().call_at(when, callback, *args, context=context)
        return LaneTimer(max(0.0, when - lane.owner.order.now), callback, args, self, context or copy_context(), lane)

    def real_call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """A timer of the engine, whatever the running context."""
        return super().call_at(self.real_time() + delay, callback, *args, context=ENGINE)

    def call_lazily(self, callback: Callable[[], None]) -> None:
        """Call within LAZY_MS. One timer serves everybody who asks meanwhile: runs are many, timers cost."""
        if not self._lazy:
            self.real_call_later(LAZY_MS / 1000, self._lazy_due)
        self._lazy.append(callback)

    def _lazy_due(self) -> None:
        lazy, self._lazy = self._lazy, []
        for callback in lazy:
            callback()

    def time(self) -> float:
        """In a lane: the time of the last outcome released. Elsewhere: the machine's."""
        lane = LANE.get()
        return self.real_time() if lane is None else lane.owner.order.now

    def real_time(self) -> float:
        """Monotonic seconds; a test bed may replace it."""
        return _clock.monotonic()

    def _run_once(self) -> None:
        self.turn += 1
        super()._run_once()  # type: ignore[misc]

    # --- tasks

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        """As asyncio's; a task made by a lane's code without a context of its own is a lane."""
        lane = LANE.get()
        current = asyncio.current_task(self)
        if context is not None or lane is None or (current is not None and getattr(current, "lane", None) is not lane):
            return super().create_task(coro, name=name, context=context, **options)
        _refuse_unordered()
        child = lane.child(getattr(coro, "__qualname__", type(coro).__qualname__) if name is None else name)
        return self.start_lane(coro, child)

    def start_lane(self, coro: Coroutine[Any, Any, Any], lane: Lane) -> LaneTask:
        """A task that is `lane`, in a copy of the running context."""
        context = copy_context()
        context.run(LANE.set, lane)
        task = LaneTask(coro, loop=self, context=context, lane=lane)
        lane.owner.order.began(task)
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Refused while a run is on the loop: its tasks must be lanes."""
        if factory is not None and self._orders:
            raise CallOutsideLane(
                "The task factory cannot be replaced while a run is on this loop: tasks of other factories have no "
                "place in the record. Leave asyncio's default, or run that library in a thread."
            )
        super().set_task_factory(factory)

    # --- what a lane waits for that nobody records

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """As asyncio's; the run knows that a thread of its code is still at work."""
        future = super().run_in_executor(executor, func, *args)
        lane = LANE.get()
        if lane is not None:
            order: Order = lane.owner.order
            order.foreign += 1
            future.add_done_callback(lambda _: order.foreign_done(), context=ENGINE)
        return future

    def _add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        self._watch(fd)
        return super()._add_reader(fd, callback, *args)  # type: ignore[misc]

    def _add_writer(self, fd: Any, callback: Any, *args: Any) -> Any:
        self._watch(fd)
        return super()._add_writer(fd, callback, *args)  # type: ignore[misc]

    def _watch(self, fd: Any) -> None:
        lane = LANE.get()
        if lane is not None:
            lane.owner.order.sockets[fd if isinstance(fd, int) else fd.fileno()] = None

    def is_watched(self, fd: int) -> bool:
        """Whether the loop still waits for this descriptor."""
        return fd in self._selector.get_map()  # type: ignore[attr-defined]

    def is_idle(self) -> bool:
        """Whether no other callback is ready to run."""
        return not self._ready  # type: ignore[attr-defined]

    def admit(self) -> None:
        """A run begins on this loop."""
        self._orders += 1

    def dismiss(self) -> None:
        """A run is over."""
        self._orders -= 1


def running_loop() -> LaneLoop:
    """The running loop, which must be ours."""
    loop = events.get_running_loop()
    assert isinstance(loop, LaneLoop), "runs are executed on a LaneLoop"
    return loop


def _refuse_unordered() -> None:
    """asyncio.as_completed makes tasks of bare coroutines in the order of a set: refuse it before anything starts."""
    frame = sys._getframe(2)  # noqa: SLF001  the caller of create_task
    depth = 0
    while frame is not None and frame.f_code in _ENSURE_FUTURE:
        frame = frame.f_back  # type: ignore[assignment]
        depth += 1
    if depth and frame is not None:
        outer = frame.f_back
        for candidate in (frame, outer):
            if candidate is not None and candidate.f_code.co_name == _AS_COMPLETED and _is_asyncio(candidate.f_code):
                raise UnorderedLanes


def _is_asyncio(code: CodeType) -> bool:
    return code.co_filename == asyncio.tasks.__file__
