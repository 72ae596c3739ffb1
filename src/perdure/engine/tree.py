"""What a root run and its children share while this process owns them: the log, the lease, limits, services.

The root's lease covers the whole tree; its renewal is the engine's (engine/engine.py). Stopping the tree stops the
root, and through it every child.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perdure.agents.session import Agent
from perdure.engine.ending import Ending
from perdure.engine.loop import LaneLoop
from perdure.engine.replay import Record
from perdure.engine.runlog import RunLog
from perdure.engine.runner import Run
from perdure.errors import AgentUnavailable, Fenced, JournalError, PerdureError, Signal, StorageUnavailable
from perdure.events import RunStarted, Stored
from perdure.store.journal import Journal, Lease, NewRun
from perdure.values import raw

if TYPE_CHECKING:
    from perdure.definitions import Workflow
    from perdure.engine.attention import Attention
    from perdure.operations.base import Call

_logger = logging.getLogger("perdure.engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run is executed. Stored with the run, so that a resume does the same."""

    cwd: Path
    agent: str | None = None  # the default agent; None: the configuration's
    stages_max: int = 4
    on_prompt: Literal["wait", "fail", "default"] = "wait"
    on_drift: Literal["stop", "rerun"] = "stop"
    seed: int = 0  # of the rehearsal agent
    script: Any = None  # of the rehearsal agent: a path, or the script itself
    worktrees: bool = True  # False: stages that want one work in the run's folder, as rehearsals do


class Services:
    """What the engine lends to its trees."""

    def __init__(
        self, journal: Journal, attention: Attention, agents: Callable[[str], Agent], scratch: Path, transcripts: Any,
        tools: Any = None, worktrees: Any = None,
    ) -> None:  # fmt: skip
        """`scratch` is the folder for runs' artifacts; `agents` builds an agent by its configured name.

        `tools` serves the engine's tools to agents (engine/toolserver.py), `worktrees` makes worktrees for stages.
        """
        self.journal, self.attention, self.agents = journal, attention, agents
        self.scratch, self.transcripts, self.tools, self.worktrees = scratch, transcripts, tools, worktrees


class Tree:
    """A root run in this process."""

    def __init__(
        self, services: Services, lease: Lease, options: RunOptions, loop: LaneLoop, records: dict[str, Record]
    ) -> None:
        """`records` holds what is recorded of every run of the tree, by run id."""
        self.services, self.lease, self.options, self.loop = services, lease, options, loop
        self.root_run_id = lease.root_run_id
        self.log = RunLog(services.journal, lease, loop, self._on_lost)
        self.attention = services.attention
        self.slots = asyncio.Semaphore(options.stages_max)
        self.counts: dict[str, int] = {}
        self.has_agents = False
        self.root: Run | None = None
        self.warnings: list[str] = []
        self._records = records
        root = records.get(self.root_run_id)
        self.crashed = root is not None and root.status == "running"
        self.rerun = options.on_drift == "rerun" or any(r.rerun for r in records.values())
        self._agents: dict[str, Agent] = {}
        self.renewed = loop.real_time()
        self._clock = (max((r.last_at for r in records.values()), default=0), loop.real_time())
        self.renew: Callable[[], Any] | None = None

    # --- runs

    def record_of(self, run_id: str) -> Record:
        """What is recorded of a run of the tree; empty for a new one."""
        record = self._records.pop(run_id, None)
        return Record(run_id) if record is None else record

    async def reload(self) -> None:
        """Read again what is recorded of every run."""
        self._records = records_of(await self.services.journal.load(self.root_run_id))

    async def execute_child(
        self, parent: Run, call: Call, workflow: Workflow, inputs: dict[str, Any], stored: dict[str, Any], run_id: str
    ) -> Ending:
        """Run a child to its end, or go on with it, under the ids its place gives it."""
        record = self.record_of(run_id)
        definition, digest = str(workflow.location()), workflow.source_digest()
        if record.started is None:
            await self.services.journal.create_child(
                self.lease,
                NewRun(
                    run_id=run_id, root_run_id=self.root_run_id, parent_run_id=parent.run_id,
                    parent_position=call.position, depth=parent.depth + 1, name=workflow.name, cwd=str(parent.cwd),
                    definition=definition, file_digest=digest,
                ),
            )  # fmt: skip
        child = Run(self, workflow, inputs, record, parent)
        parent.children[call.position] = child
        try:
            if record.started is None:
                started = RunStarted(
                    name=workflow.name, inputs=raw(stored), definition=definition, file_digest=digest,
                    cwd=str(parent.cwd), fingerprint=call.digest,
                )  # fmt: skip
                self.log.note(child, started)
            await self.log.commit(child, child.reopened())
            child.begin()
            return await child.execute()
        finally:
            del parent.children[call.position]

    def stop(self, ending: Ending, signal: Signal) -> None:
        """End every run of the tree with this verdict."""
        assert self.root is not None
        self.root.stop(ending, signal)

    def _on_lost(self, error: PerdureError) -> None:
        """Nothing more can be written: whoever took over, or the disk, decides; we stop at once."""
        self.stop(
            Ending(status="running", code=error.code, reason=error.message, recorded=False), Fenced(error.message)
        )

    # --- lease and time

    def check_lease(self) -> Any:
        """What to await before a side effect, if the lease may be past its time. It raises if the lease is lost."""
        return self._renewed() if self._may_be_late and self.renew is not None else None

    @property
    def _may_be_late(self) -> bool:
        return self.loop.real_time() - self.renewed >= self.lease.timeout_ms / 1000 * 0.9

    async def _renewed(self) -> None:
        assert self.renew is not None
        await self.renew()
        if self._may_be_late:
            self.log.close(StorageUnavailable("The lease of the run could not be renewed in time. Resume the run."))
        if self.log.lost is not None:
            raise self.log.lost

    def saw_store_time(self, at_ms: int) -> None:
        """The store's clock read `at_ms` just now."""
        self._clock = (at_ms, self.loop.real_time())

    def store_now_ms(self) -> int:
        """The store's clock, milliseconds, as well as this process knows it."""
        at, seen = self._clock
        return at + int((self.loop.real_time() - seen) * 1000)

    # --- services for stages

    def agent(self, name: str | None) -> Agent:
        """The agent a stage names, else the run's. Raises AgentUnavailable when there is none."""
        chosen = name or self.options.agent
        if chosen is None:
            raise AgentUnavailable(
                "No agent is configured. Name one with --agent NAME or agent = NAME in perdure.toml; to try the "
                "workflow without a model: --agent rehearsal.",
            )
        if chosen not in self._agents:
            self._agents[chosen] = self.services.agents(chosen)
        self.has_agents = True
        return self._agents[chosen]

    def scratch(self, run_id: str, position: str) -> Path:
        """The folder for a stage's files, made now."""
        path = self.services.scratch / run_id / position.replace("/", "body").replace(":", "-")
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def worktrees(self) -> Any:
        """The worktrees of runs (operations/worktrees.py)."""
        return self.services.worktrees

    def transcript(self, run_id: str, position: str, take: int) -> Any:
        """The transcript of a stage."""
        return self.services.transcripts(run_id, position, take)

    async def serve_tools(self, tools: list[Any]) -> Any:
        """These tools of the engine, served to one session of a stage until they are closed."""
        return await self.services.tools.open(tools)

    def warn(self, message: str) -> None:
        """Tell the user something that does not stop the run."""
        if message not in self.warnings:
            self.warnings.append(message)
            _logger.warning("%s", message)


def records_of(events: list[Stored]) -> dict[str, Record]:
    """What is recorded of each run of a tree. Raises JournalError when the journal does not add up."""
    records: dict[str, Record] = {}
    for stored in events:
        record = records.get(stored.run_id)
        if record is None:
            record = records[stored.run_id] = Record(stored.run_id)
        record.apply(stored)
    for record in records.values():
        record.ready()
        if record.started is None:
            raise JournalError(f"The journal of {record.run_id} has no beginning.", run_id=record.run_id)
    return records
