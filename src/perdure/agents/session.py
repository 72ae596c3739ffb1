"""What the engine knows of an agent: open a session, prompt it, steer it, cancel it, close it.

Every kind of agent implements `Agent` and `AgentSession` and passes one contract suite (tests/contract/test_agent.py).
The laws of a session:

- One turn at a time. A turn ends by its `Turn`, by an `AgentError`, or by cancellation; never by silence.
- When `prompt` returns or raises, and when `cancel` returns, nothing of that turn works on. When `close` returns, no
  process of the session is left.
- `cancel` ends the turn with `stop="cancelled"`. Cancelling the task that awaits `prompt` raises there as usual.
- `close` may be called at any time, twice, and while a turn runs.
- `emit` is called on the session's event loop, in order, and must not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import UNSET

from perdure.errors import AgentProtocolError

EventKind = Literal["text", "thought", "tool_call", "tool_result", "plan", "usage", "stderr", "note"]
Stop = Literal["end_turn", "cancelled", "refusal", "max_tokens"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an agent can do beyond answering."""

    schema: bool = False  # returns a value for a JSON Schema by itself
    reopen: bool = False  # goes on with a session by its id
    steer: bool = False  # takes text while a turn runs
    fork: bool = False  # copies a session
    mcp: bool = False  # can be given MCP servers, so the engine's tools


class EngineTools(Protocol):
    """The engine's MCP server for one stage, as the agent's side needs it. Made by the engine."""

    def stdio(self) -> tuple[list[str], dict[str, str]]:
        """Argument list and environment of a command that serves the tools by stdio; secrets only in the latter."""
        ...

    def http(self) -> tuple[str, dict[str, str]] | None:
        """URL and headers of the tools on loopback; None if that is not offered."""
        ...

    @property
    def result(self) -> Any:
        """The value handed in by `perdure_result` in this turn; UNSET if none was."""
        ...

    def begin_turn(self) -> None:
        """Allow one new result."""
        ...

    @property
    def answered(self) -> bool:
        """Whether the agent has listed or called the tools: they really reach it."""
        ...


PermissionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


@dataclass(frozen=True, slots=True)
class PermissionOption:
    """One of the answers an agent offers with its question."""

    option_id: str
    name: str
    kind: PermissionKind


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """What an agent wants to do and may not do unasked."""

    title: str
    kind: str  # as the agent calls it: edit, execute, fetch, ...
    paths: tuple[str, ...]  # absolute; empty if the agent does not say
    options: tuple[PermissionOption, ...]
    detail: Any = None  # the agent's own input of the tool, plain JSON


@dataclass(frozen=True, slots=True)
class PermissionChosen:
    """The answer. None: nobody chose, so the agent is told that its question is off."""

    option_id: str | None


Permit = Callable[[PermissionAsked], Awaitable[PermissionChosen]]


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """Where and for whom a session is opened."""

    run_id: str
    node_id: str
    stage: str  # the stage's name
    cwd: Path
    scratch: Path  # a folder of the engine for files about the session, such as its stderr
    model: str | None = None
    schema: dict[str, Any] | None = None  # JSON Schema of the wanted value
    reopen_id: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: EngineTools | None = None  # for agents that can be given MCP servers
    permit: Permit | None = None  # asks a person; agents that may ask use it under their policy "ask"


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Something the agent said or did: what goes into the transcript."""

    kind: EventKind
    text: str
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """What a turn cost. None = the agent does not say."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_nanos: int | None = None  # nano-dollars


@dataclass(frozen=True, slots=True)
class Turn:
    """How a turn ended: why it stopped, the final message, the value if the agent gives one by itself."""

    stop: Stop
    text: str
    value: Any = UNSET
    usage: TurnUsage | None = None


Emit = Callable[[AgentEvent], None]


class AgentSession(Protocol):
    """One conversation with an agent."""

    session_id: str

    async def prompt(self, text: str) -> Turn:
        """Run one turn to its end; AgentError when the agent fails."""
        ...

    async def steer(self, text: str) -> bool:
        """Give the running turn more text; False if there is none or the agent cannot."""
        ...

    async def cancel(self) -> None:
        """End the running turn with `stop="cancelled"`; returns when it has ended."""
        ...

    async def close(self) -> None:
        """End the session; returns when everything of it is gone. Idempotent."""
        ...


class Agent(Protocol):
    """A configured agent."""

    name: str
    kind: str
    capabilities: Capabilities

    async def open(self, spec: SessionSpec, emit: Emit) -> AgentSession:
        """Start a session, or go on with `spec.reopen_id`; AgentError when the agent cannot."""
        ...


class Turns:
    """The turns of one session: one at a time, each with an end (the laws above, once for every kind)."""

    def __init__(self) -> None:
        self._turn: asyncio.Task[Turn] | None = None
        self._stopped = False
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._turn is not None

    async def run(self, turn: Coroutine[Any, Any, Turn]) -> Turn:
        """The turn's end; `stop="cancelled"` if `stop` was called meanwhile."""
        if self._closed or self._turn is not None:
            turn.close()
            why = "is closed: open another one" if self._closed else "has a turn under way: await it first, or steer it"
            raise AgentProtocolError(f"The session cannot be prompted: it {why}.")
        task = self._turn = asyncio.create_task(turn, name="agent-turn")
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._stopped and not (current and current.cancelling()):
                return Turn("cancelled", "")
            raise
        finally:
            self._turn, self._stopped = None, False

    async def stop(self) -> None:
        """Cancel the running turn, if any, and wait for its end."""
        if task := self._turn:
            self._stopped = True
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Stop, and refuse further turns."""
        self._closed = True
        await self.stop()
