"""Whole engines over one database file: several "processes" in one event loop, which can die at any event.

A process is an engine of its own (its own holder) behind a plug. Pulling the plug is the death of the process: nothing
it does afterwards reaches the store, and the store answers it nothing. The store's clock is moved by hand, so that a
lease runs out without waiting for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from perdure.config import Config
from perdure.definitions import workflow
from perdure.engine.engine import Ending, Engine, Execution, RunOptions
from perdure.engine.loop import LaneLoop
from perdure.errors import AgentUnavailable, JournalClosed, PerdureError
from perdure.events import Event, Stored
from perdure.store import open_database
from perdure.store.journal import Journal
from tests.bed.stores import MovedClock

TEN_MINUTES_MS = 600_000
Cut = Callable[[Event], Literal["before", "after"] | None]


class Plug:
    """A database as one process has it: it can be cut off, and it can break."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.statistics = database.statistics
        self.cut: Cut | None = None  # die before or after the event for which it says so is committed
        self.break_on: Callable[[Event], PerdureError | None] | None = None  # refuse the append of such an event
        self.broken: PerdureError | None = None  # what every call is refused with
        self.out = asyncio.Event()
        self.buried = False

    async def write(self, unit: Any) -> Any:
        return await self._asked(self.database.write, unit)

    async def read(self, unit: Any) -> Any:
        return await self._asked(self.database.read, unit)

    async def _asked(self, call: Any, unit: Any) -> Any:
        await self._silent_if_out()
        if self.broken is not None:
            raise self.broken
        result = await call(unit)
        await self._silent_if_out()
        return result

    async def _silent_if_out(self) -> None:
        if self.buried:
            raise JournalClosed("The process is long dead.")
        if self.out.is_set():
            await asyncio.get_running_loop().create_future()

    def submit(self, unit: Any, done: Any, loop: Any) -> None:
        self._submitted(partial(self.database.submit, unit), (), done, loop)

    def submit_bulk(self, bulk: Any, entry: Any, done: Any, loop: Any) -> None:
        self._submitted(partial(self.database.submit_bulk, bulk, entry), _events_of(entry), done, loop)

    def submit_idle(self, bulk: Any, entry: Any, done: Any, loop: Any) -> None:
        self._submitted(partial(self.database.submit_idle, bulk, entry), _events_of(entry), done, loop)

    def _submitted(self, submit: Any, events: tuple[Event, ...], done: Any, loop: Any) -> None:
        if self.out.is_set():
            return
        refusal = self.broken or next((e for e in map(self.break_on or _never, events) if e is not None), None)
        if refusal is not None:
            loop.call_soon(done, None, refusal)
            return
        cut = next((c for c in map(self.cut or _never, events) if c is not None), None)
        if cut == "before":
            self.out.set()
        elif cut == "after":
            submit(lambda _result, _error: self.out.set(), loop)
        else:
            submit(lambda result, error: None if self.out.is_set() else done(result, error), loop)

    def changes(self) -> int:
        if self.broken is not None:
            raise self.broken
        return 0 if self.out.is_set() else self.database.changes()


def _never(_: Event) -> None:
    return None


def _events_of(entry: Any) -> tuple[Event, ...]:
    return tuple(item.event for item in getattr(entry, "items", ()) if hasattr(item, "event"))


class Process:
    """An engine that plays a process of its own."""

    def __init__(self, house: House) -> None:
        self.plug = Plug(house.database)
        self._house = house
        self.engine = Engine(self.plug, house.config, agents=_no_agent)

    async def start(self, body: Any, **options: Any) -> Execution:
        return await self.engine.start(definition_of(body), {}, self._house.options(**options))

    async def run(self, body: Any, **options: Any) -> tuple[str, Ending]:
        execution = await self.start(body, **options)
        return execution.run_id, await execution.wait()

    async def reopen(self, run_id: str, body: Any, **options: Any) -> Execution:
        return await self.engine.resume(run_id, definition_of(body), self._house.options(**options))

    async def resume(self, run_id: str, body: Any, **options: Any) -> Ending:
        return await (await self.reopen(run_id, body, **options)).wait()

    def die(self) -> None:
        """As by kill -9: from now on nothing reaches the store."""
        self.plug.out.set()

    async def end(self) -> None:
        """Leave the engine, or bury a dead one."""
        if self.plug.out.is_set():
            self.plug.buried = True
        else:
            await self.engine.__aexit__(None, None, None)


class House:
    """One database and the processes that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "perdure.db"
        self.clock = MovedClock()
        self.config = Config(config_dir=folder, data_dir=folder, database=str(self.path))
        self.processes: list[Process] = []
        self.database: Any = None

    def play(self, scenario: Callable[[House], Any]) -> Any:
        """Run `async scenario(house)` on a loop of its own; every process ends with it."""
        with asyncio.Runner(loop_factory=LaneLoop) as runner:
            return runner.run(self._played(scenario))

    async def _played(self, scenario: Callable[[House], Any]) -> Any:
        self.database = open_database(self.path, clock=self.clock)
        self.journal = Journal(self.database)
        try:
            return await scenario(self)
        finally:
            for process in self.processes:
                await process.end()
            await self.database.close()

    async def process(self) -> Process:
        """Another process, alive."""
        process = Process(self)
        await process.engine.__aenter__()
        self.processes.append(process)
        return process

    async def heir(self) -> Process:
        """Another process, at a time when every lease that nobody renewed has run out."""
        self.clock.moved_ms += TEN_MINUTES_MS
        return await self.process()

    async def killed(self, body: Any, cut: Cut, **options: Any) -> str:
        """The id of a run whose process dies at the event for which `cut` says so."""
        process = await self.process()
        process.plug.cut = cut
        execution = await process.start(body, **options)
        await process.plug.out.wait()
        return execution.run_id

    def options(self, **options: Any) -> RunOptions:
        return RunOptions(cwd=self.folder, **options)

    async def events(self, run_id: str) -> list[Stored]:
        """The journal, proven whole."""
        await self.journal.verify(run_id)
        return await self.journal.load(run_id)

    async def of(self, run_id: str, kind: type) -> list[Any]:
        """The events of a kind in a root's journal."""
        return [s.event for s in await self.events(run_id) if isinstance(s.event, kind)]


def definition_of(body: Any) -> Any:
    """The body itself if it is a workflow, else a workflow called `program` made of it."""
    return workflow(name="program")(body) if asyncio.iscoroutinefunction(body) else body


def finish_of(position: str, when: Literal["before", "after"]) -> Cut:
    """Die before or after the outcome at a position is committed."""
    return lambda event: when if event.key == f"f:{position}" else None


def at(kind: type, when: Literal["before", "after"], /, **fields: Any) -> Cut:
    """Die before or after the first event of a kind whose fields are these."""

    def cut(event: Event) -> Literal["before", "after"] | None:
        fits = isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
        return when if fits else None

    return cut


async def until(check: Callable[[], Any]) -> None:
    """Return once a condition of this loop holds."""
    while not check():
        await asyncio.sleep(0.001)


def _no_agent(name: str) -> Any:
    raise AgentUnavailable(f"There is no agent {name}.")
