"""A bed for stages: the engine's own parts in virtual time, and an agent whose every turn the test decides."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import UNSET

from perdure.agents.session import AgentEvent, Capabilities, SessionSpec, Turn, Turns, TurnUsage
from perdure.definitions import workflow
from perdure.engine.ending import Ending
from perdure.engine.runner import Run
from perdure.engine.stagetools import StageTools
from perdure.engine.tree import RunOptions, Services, Tree, records_of
from perdure.errors import AgentUnavailable
from perdure.events import RunStarted, Stored
from perdure.store.journal import Lease
from perdure.values import raw
from tests.bed.lanes import GRAVEYARD, ROOT, MemoryJournal, VirtualLoop


class StageLoop(VirtualLoop):
    """Time does not pass for timers that were cancelled."""

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        super()._run_once()


Reply = Callable[["FakeSession", str], Awaitable[Turn]] | Turn | str | Exception


class FakeAgent:
    """Answers by a function, or a list of replies used up in order. What it was told is in `prompts`."""

    kind = "fake"

    def __init__(self, *replies: Reply, name: str = "fake", can_reopen=True, **capabilities: bool) -> None:
        self.name = name
        self.capabilities = Capabilities(**capabilities)
        self.replies = list(replies)
        self.can_reopen = can_reopen
        self.prompts: list[tuple[str, str]] = []  # (session id, text)
        self.opened: list[SessionSpec] = []
        self.open_sessions: set[str] = set()
        self.most_open = 0

    async def open(self, spec: SessionSpec, emit: Callable[[AgentEvent], None]) -> FakeSession:
        self.opened.append(spec)
        if spec.reopen_id and not self.can_reopen:
            raise AgentUnavailable("That session is gone.")
        session = FakeSession(self, spec, emit, spec.reopen_id or f"{self.name}-{len(self.opened)}")
        self.open_sessions.add(session.session_id)
        self.most_open = max(self.most_open, len(self.open_sessions))
        return session

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.prompts]


class FakeSession:
    def __init__(
        self, agent: FakeAgent, spec: SessionSpec, emit: Callable[[AgentEvent], None], session_id: str
    ) -> None:
        self.agent, self.spec, self.emit, self.session_id = agent, spec, emit, session_id
        self._turns = Turns()

    async def prompt(self, text: str) -> Turn:
        self.agent.prompts.append((self.session_id, text))
        return await self._turns.run(self._reply(text))

    async def _reply(self, text: str) -> Turn:
        reply = self.agent.replies.pop(0) if self.agent.replies else f"answer {len(self.agent.prompts)}"
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            reply = Turn("end_turn", reply)
        if isinstance(reply, Turn):
            self.emit(AgentEvent("text", reply.text))
            return reply
        return await reply(self, text)

    async def steer(self, text: str) -> bool:
        return False

    async def cancel(self) -> None:
        await self._turns.stop()

    async def close(self) -> None:
        await self._turns.close()
        self.agent.open_sessions.discard(self.session_id)


def after(seconds: float, text: str = "late", value: Any = UNSET, emit_every: float | None = None) -> Reply:
    """A turn that takes its (virtual) time, silent or with a sign of life now and then."""

    async def reply(session: FakeSession, _: str) -> Turn:
        left = seconds
        while left > 0:
            await asyncio.sleep(min(left, emit_every or left))
            left -= emit_every or left
            if emit_every:
                session.emit(AgentEvent("thought", "hm"))
        return Turn("end_turn", text, value, TurnUsage(1, 2, 3))

    return reply


class Served:
    """The engine's tools without a wire: an agent calls `spec.tools.call`."""

    def __init__(self) -> None:
        self.open: set[StageTools] = set()

    async def serve(self, tools: list[Any]) -> StageTools:
        stage = StageTools(tools, socket_path="", url=lambda: "", on_close=self._closed)
        self.open.add(stage)
        return stage

    async def _closed(self, stage: StageTools) -> None:
        self.open.discard(stage)


class FakeTranscript:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def add(self, event: AgentEvent) -> None:
        self.said.append((event.kind, event.text))

    def prompted(self, text: str) -> None:
        self.said.append(("prompt", text))

    async def flush(self) -> None:
        pass


@dataclass
class Played:
    ending: Ending | None  # None: killed
    events: list[Stored]
    seen: list[Any]
    transcripts: dict[str, FakeTranscript] = field(default_factory=dict)
    run: Any = None
    tools_left: int = 0  # sessions whose tools were not closed

    def of(self, kind: type) -> list[Any]:
        return [s.event for s in self.events if isinstance(s.event, kind)]


def run_stages(
    body: Callable[..., Any],
    *agents: FakeAgent,
    events: Sequence[Stored] = (),
    crash_after: int | None = None,
    seed: int = 0,
    cwd: Path = Path("/"),
    scratch: Path = Path("/nonexistent"),
    stages_max: int = 4,
    default: str | None = "fake",
) -> Played:
    """One execution of `async def body(ctx, seen)`, from the committed events of those before it."""
    loop = StageLoop()
    journal = MemoryJournal(list(events), random.Random(seed), crash_after)
    transcripts: dict[str, FakeTranscript] = {}
    served = Served()
    seen: list[Any] = []

    def agent(name: str) -> Any:
        for one in agents:
            if one.name == name:
                return one
        raise AgentUnavailable(f"No agent is called {name!r}. See what is installed: perdure doctor.")

    async def bound(ctx: Any) -> Any:
        return await body(ctx, seen)

    bound.__annotations__ = {}
    records = records_of(list(events))
    epoch = 1 + max((r.epoch for r in records.values()), default=0)
    lease = Lease(root_run_id=ROOT, holder="bed", epoch=epoch, root=1, timeout_ms=90_000_000_000)
    services = Services(
        journal, None, agent, scratch, lambda _run, position, _take: transcripts.setdefault(position, FakeTranscript())
    )  # type: ignore[arg-type]
    tree = Tree(services, lease, RunOptions(cwd=cwd, agent=default, stages_max=stages_max), loop, records)
    tree.scratch = lambda *_: scratch  # type: ignore[method-assign]
    tree.serve_tools = served.serve  # type: ignore[method-assign]
    run = tree.root = Run(tree, workflow(name="program")(bound), {}, tree.record_of(ROOT))

    async def main() -> Ending:
        if run.record.started is None:
            tree.log.note(run, RunStarted(name="program", inputs=raw({})))
        stored = await tree.log.commit(run, run.reopened())
        tree.saw_store_time(stored.at)
        run.begin()
        return await run.execute()

    task = loop.create_task(main())
    task.add_done_callback(lambda _: loop.stop())
    loop.run_forever()
    if journal.crashed:
        GRAVEYARD.append((loop, asyncio.all_tasks(loop), task, run, tree))
        for pending in asyncio.all_tasks(loop):
            pending._log_destroy_pending = False
        return Played(None, journal.events, seen, transcripts, run)
    assert task.done(), f"stalled; open: {list(run.open_calls)}"
    loop.close()
    return Played(task.result(), journal.events, seen, transcripts, run, len(served.open))
