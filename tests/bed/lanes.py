"""A seeded, virtual-time bed for small workflow programs: run, crash after any event, resume with other timing.

The engine's own loop, order, log and runner are real; the journal is kept in memory, its commits take seeded virtual
time, and "kill -9" is: drop the loop with everything on it and start again from the committed events.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.definitions import workflow
from perdure.engine.ending import Ending
from perdure.engine.loop import LaneLoop
from perdure.engine.runner import Run
from perdure.engine.tree import RunOptions, Services, Tree, records_of
from perdure.events import NAMES, NodeFinished, NodeStarted, RunStarted, Stored, decode, encode
from perdure.graph.lanes import LANE
from perdure.operations.tool import THREADS
from perdure.store.journal import Appended, Exists, Item, Lease
from perdure.values import raw

ROOT = "00000000-0000-7000-8000-000000000001"
GRAVEYARD: list[Any] = []  # what a killed process was doing is never unwound, so it must not be collected either


class VirtualLoop(LaneLoop):
    """Time passes only when nothing else can happen."""

    now = 1000.0
    threads = staticmethod(lambda: 0)  # how many threads the program waits for: they take real time

    def real_time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:  # for those no time passes
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._ready and self._scheduled and not self._stopping and not self.threads():
            self.now = max(self.now, self._scheduled[0]._when)
        self.now += 1e-6  # code that never waits still takes time
        super()._run_once()


class MemoryJournal:
    """Commits in queue order after a seeded delay; stops the loop when `crash_after` events are in."""

    def __init__(self, events: list[Stored], rng: random.Random, crash_after: int | None) -> None:
        self.events = list(events)
        self.keys = {(s.run_id, s.event.key): s for s in events}
        self.rng, self.crash_after = rng, crash_after
        self.crashed = False
        self._queue: list[tuple[list[Item], Any]] = []
        self._busy = False
        self.commits = 0

    def submit_many(self, lease: Lease, items: list[Item], done: Any, loop: VirtualLoop, *, is_idle: bool) -> None:
        self._queue.append((items, done))
        if not self._busy:
            self._busy = True
            loop.real_call_later(self.rng.choice([0.0, 0.001, 0.003]), self._commit, loop)

    def _commit(self, loop: VirtualLoop) -> None:
        taken = self.rng.randint(1, len(self._queue))
        batch, self._queue = self._queue[:taken], self._queue[taken:]
        results = []
        for items, done in batch:
            results.append((done, [self._append(item, loop) for item in items]))
            if self.crashed:
                loop.stop()
                return
        self.commits += 1
        for done, outcomes in results:
            done(outcomes, None)
        self._busy = bool(self._queue)
        if self._busy:
            loop.real_call_later(self.rng.choice([0.0, 0.001, 0.003]), self._commit, loop)

    def _append(self, item: Item, loop: VirtualLoop) -> Any:
        key = (item.run_id, item.event.key)
        if key in self.keys:
            return Exists(self.keys[key])
        if self.crash_after is not None and len(self.events) >= self.crash_after:
            self.crashed = True
            return None
        event = decode(NAMES[type(item.event)], encode(item.event))
        stored = Stored(len(self.events) + 1, item.run_id, int(loop.now * 1000), event)
        self.events.append(stored)
        self.keys[key] = stored
        return Appended(stored)

    async def create_child(self, lease: Lease, new: Any) -> None:
        pass

    async def load(self, root_run_id: str) -> list[Stored]:
        return list(self.events)


@dataclass
class World:
    """What the program did to the outside: every execution of a tool, in order."""

    executed: list[Any] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)  # what the author's code saw, in order, in this execution
    rng: random.Random = field(default_factory=random.Random)

    async def act(self, what: Any, seconds: float | None = None) -> Any:
        """A tool's body: takes some virtual time, then happened."""
        await asyncio.sleep(self.rng.choice([0.0, 0.01, 0.05, 0.2]) if seconds is None else seconds)
        self.executed.append(what)
        return what


@dataclass
class Result:
    ending: Ending | None  # None: killed
    events: list[Stored]
    world: World
    warnings: list[str]
    turns: int
    commits: int

    @property
    def output(self) -> Any:
        assert self.ending is not None
        return self.ending.value


def play(
    body: Callable[..., Any],
    *,
    seed: int = 0,
    events: list[Stored] = (),  # type: ignore[assignment]
    crash_after: int | None = None,
    on_drift: str = "stop",
    limit_s: float = 1e6,
    act_seconds: float | None = None,
) -> Result:
    """One execution of `async def body(ctx, world)`, from the committed events of those before it."""
    rng = random.Random(seed)
    loop = VirtualLoop()
    world = World(rng=random.Random(seed + 1))
    journal = MemoryJournal(events, rng, crash_after)
    warnings: list[str] = []

    async def bound(ctx: Any) -> Any:
        return await body(ctx, world)

    bound.__annotations__ = {}
    definition = workflow(name="program")(bound)
    records = records_of(list(events))
    epoch = 1 + max((r.epoch for r in records.values()), default=0)
    lease = Lease(root_run_id=ROOT, holder="bed", epoch=epoch, root=1, timeout_ms=90_000)
    services = Services(journal, None, _no_agent, Path("/nonexistent"), None)  # type: ignore[arg-type]
    tree = Tree(services, lease, RunOptions(cwd=Path("/"), on_drift=on_drift), loop, records)  # type: ignore[arg-type]
    tree.warn = warnings.append  # type: ignore[method-assign]
    run = tree.root = Run(tree, definition, {}, tree.record_of(ROOT))
    loop.threads = lambda: run.order.foreign + THREADS.busy

    async def main() -> Ending:
        assert LANE.get() is None
        if run.record.started is None:
            tree.log.note(run, RunStarted(name="program", inputs=raw({})))
        stored = await tree.log.commit(run, run.reopened())
        tree.saw_store_time(stored.at)
        run.begin()
        return await run.execute()

    task = loop.create_task(main())
    task.add_done_callback(lambda _: loop.stop())
    guard = loop.real_call_later(limit_s, loop.stop)
    loop.run_forever()
    if journal.crashed:
        GRAVEYARD.append((loop, asyncio.all_tasks(loop), task, run, tree))
        for pending in asyncio.all_tasks(loop):
            pending._log_destroy_pending = False
        return Result(None, journal.events, world, warnings, loop.turn, journal.commits)
    if not task.done():
        GRAVEYARD.append((loop, asyncio.all_tasks(loop), task, run, tree))
        raise AssertionError(
            f"stalled at virtual {loop.now - 1000:.1f} s; open: {list(run.open_calls)}; {asyncio.all_tasks(loop)}"
        )
    guard.cancel()
    ending = task.result()
    loop.close()
    return Result(ending, journal.events, world, warnings, loop.turn, journal.commits)


def _no_agent(name: str) -> Any:
    raise AssertionError(name)


def crash_everywhere(body: Callable[..., Any], *, seeds: int = 3, every: int = 1) -> None:
    """Kill after each event and resume with other timing: same course, nothing recorded is done again, no drift."""
    for seed in range(seeds):
        whole = play(body, seed=seed)
        assert whole.ending is not None
        for cut in range(2, len(whole.events) + 1, every):
            first = play(body, seed=seed, crash_after=cut)
            if first.ending is not None:  # it ended before it wrote that many
                continue
            assert [s.event.key for s in first.events] == [s.event.key for s in whole.events[:cut]]
            second = play(body, seed=seed + 1000 + cut, events=first.events)
            assert second.ending is not None
            context = (seed, cut, second.ending, [s.event for s in second.events])
            assert second.ending.status == whole.ending.status, context
            assert not second.warnings or second.warnings == whole.warnings, context
            assert second.events[:cut] == first.events
            _same_course(first, second, cut, context)


def _same_course(first: Result, second: Result, cut: int, context: Any) -> None:
    """What the code saw up to the crash it saw again, in the same order; recorded successes ran once."""
    assert second.world.notes[: len(first.world.notes)] == first.world.notes, context
    finished = {(s.run_id, s.event.position) for s in first.events if isinstance(s.event, NodeFinished)}
    later = [s for s in second.events[cut:] if isinstance(s.event, NodeFinished | NodeStarted)]
    again = {(s.run_id, s.event.position) for s in later if not s.event.take}
    assert not finished & again, context
