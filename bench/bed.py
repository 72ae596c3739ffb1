"""Where a case runs: a fresh database on a real disk, and an engine over it, as `perdure run` would build them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from perdure.config import load_config
from perdure.definitions import Workflow
from perdure.engine.engine import Ending, Engine, Execution, RunOptions
from perdure.engine.loop import LaneLoop
from perdure.errors import AgentUnavailable
from perdure.store import LocalDatabase, open_database


@dataclass(frozen=True, slots=True)
class Bed:
    """A database with an engine that is running."""

    database: LocalDatabase
    engine: Engine
    folder: Path

    async def start(self, flow: Workflow, **inputs: Any) -> Execution:
        """Start a run."""
        return await self.engine.start(flow, inputs, RunOptions(cwd=self.folder))

    async def resume(self, run_id: str, flow: Workflow) -> Execution:
        """Go on with a run that was quit."""
        return await self.engine.resume(run_id, flow, RunOptions(cwd=self.folder))

    async def run(self, flow: Workflow, **inputs: Any) -> Any:
        """Run to the end; the output."""
        ending = await (await self.start(flow, **inputs)).wait()
        return checked(ending).value


def checked(ending: Ending) -> Ending:
    """Raises when a run that is measured did not complete: its time would mean nothing."""
    if ending.status != "completed":
        raise RuntimeError(f"A measured run ended as {ending.status}: {ending.reason or ending.failure}")
    return ending


def _no_agent(name: str) -> NoReturn:
    raise AgentUnavailable("No measured workflow has a stage.", agent=name)


@asynccontextmanager
async def bed(folder: Path, name: str = "bench.db") -> AsyncIterator[Bed]:
    """An engine over the database of that name in the folder, made if it is not there."""
    environment = {"HOME": str(folder), "PERDURE_DATA_DIR": str(folder / "data")}
    database = open_database(folder / name)
    try:
        async with Engine(database, load_config(folder, environment), agents=_no_agent) as engine:
            yield Bed(database, engine, folder)
    finally:
        await database.close()


def run_on_lanes(main: Coroutine[Any, Any, Any]) -> Any:
    """As asyncio.run, on the engine's loop."""
    with asyncio.Runner(loop_factory=LaneLoop) as runner:
        return runner.run(main)
