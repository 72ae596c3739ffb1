"""One session of the agent: its folder, history, tools and the turn that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic_ai.models import Model

from perdure.agents.house import updates
from perdure.agents.house.candidate import Candidate, parse_candidate
from perdure.agents.house.chain import Chain
from perdure.agents.house.history import History
from perdure.agents.house.loop import STEPS_MAX, AgentLoop, Ended
from perdure.agents.house.permission import Ask, Mode, Permissions, TurnCancelled
from perdure.agents.house.tools import KINDS, Surroundings
from perdure.agents.house.toolserver import ToolServer
from perdure.agents.house.updates import Tell
from perdure.agents.house.workspace import Change, Workspace
from perdure.errors import NotAllowedNow
from perdure.host.processes import environment

GUIDE: Final = "AGENTS.md"  # of a repository, for agents
GUIDE_CHARS_MAX: Final = 32_000

_INSTRUCTIONS: Final = """\
You are a careful coding agent. You work in the folder {cwd} with the tools you are given.

- Look before you change: read a file before you edit it, search before you assume.
- Do what was asked, all of it and nothing else. Keep to the style of the code around.
- Prove it: run the tests or the program when there are any, and read what they say.
- Nobody answers questions while you work. Decide, and say in the end what you decided.
- A tool that refuses says why. Do not try to get around it.
- End with a short message: what you did, how you know that it works, what is left.
"""

Build = Callable[[Candidate], Model]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every session of a process has in common."""

    candidates: tuple[Candidate, ...]
    build: Build
    folder: Path  # of the histories
    mode: Mode = "ask"
    steps_max: int = STEPS_MAX
    environment: Mapping[str, str] | None = None  # of shell commands


class Session:
    """A conversation. `open` it; then one `prompt` at a time, `cancel` and `close` whenever."""

    def __init__(self, history: History, setup: Setup, cwd: Path, tell: Tell, ask: Ask) -> None:
        """`tell` sends an update, `ask` asks for permission."""
        self.id = history.session_id
        self.history = history
        self.permissions = Permissions(ask, setup.mode)
        self.candidates = setup.candidates
        self._setup = setup
        self._cwd = cwd
        self._tell = tell
        self._servers: list[ToolServer] = []
        self._loop: AgentLoop | None = None
        self._turn: asyncio.Task[Ended] | None = None
        self._cost: Decimal | None = Decimal(0)

    async def open(self, tool_servers: Sequence[Mapping[str, Any]]) -> None:
        """Start the tool servers. Raises AgentUnavailable; nothing is left running then."""
        try:
            for given in tool_servers:
                self._servers.append(await ToolServer.start(given, self._cwd))
        except BaseException:
            await self.close()
            raise
        self._build_loop()

    def choose_model(self, text: str) -> None:
        """Put a model first, before those that were there. Raises UsageError; NotAllowedNow in a turn."""
        if self._turn is not None:
            raise NotAllowedNow("The model cannot be changed while a turn runs; wait for its end or cancel it.")
        chosen = parse_candidate(text)
        self.candidates = tuple(dict.fromkeys((chosen, *self.candidates)))
        self._build_loop()

    async def prompt(self, text: str) -> Ended | None:
        """A turn's end; None if it was cancelled. Raises what the last model raised; NotAllowedNow in a turn."""
        if self._turn is not None or self._loop is None:
            raise NotAllowedNow("The session has a turn under way; wait for its end or cancel it.")
        self._turn = turn = asyncio.create_task(self._loop.run(text), name="house-turn")
        try:
            ended = await turn
        except TurnCancelled:
            return None
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise
            return None
        finally:
            self._turn = None
        self._cost = None if self._cost is None or ended.cost_usd is None else self._cost + ended.cost_usd
        if ended.window_tokens is not None:
            cost = None if self._cost is None else float(self._cost)
            self._tell(updates.used(ended.context_tokens, ended.window_tokens, cost))
        return ended

    def cancel(self) -> None:
        """End the running turn, if there is one."""
        if self._turn is not None:
            self._turn.cancel()

    async def close(self) -> None:
        """End the turn and the tool servers; returns when all is gone. Safe twice."""
        if (turn := self._turn) is not None:
            turn.cancel()
            await asyncio.wait([turn])
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.close() for server in servers))

    def _build_loop(self) -> None:
        taken = list(KINDS)
        further = [tool for server in self._servers for tool in server.build_tools(taken)]
        workspace = Workspace(self._cwd)
        env = environment() if self._setup.environment is None else self._setup.environment
        self._loop = AgentLoop(
            history=self.history,
            chain=Chain(self.candidates),
            build=self._setup.build,
            surroundings=Surroundings(workspace, self.permissions, env, self._changed, self._heard),
            tell=self._tell,
            instructions=instructions_for(self._cwd),
            tools=further,
            steps_max=self._setup.steps_max,
        )

    async def _changed(self, call_id: str, change: Change) -> None:
        self._tell(updates.changed(call_id, change))

    def _heard(self, call_id: str, output: str) -> None:
        self._tell(updates.printed(call_id, output))


def instructions_for(cwd: Path) -> str:
    """What a model is told beside the conversation: how to work, and the folder's own guide for agents."""
    text = _INSTRUCTIONS.format(cwd=cwd)
    guide = cwd / GUIDE
    if guide.is_file():
        said = guide.read_text(errors="replace")[:GUIDE_CHARS_MAX]
        text += f"\nThe guide of this folder, {GUIDE}:\n\n{said}\n"
    return text
