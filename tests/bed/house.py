"""Our own agent without a process and without a model: scripted answers, and a client at the other end of a socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelUnavailableError,
)
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from perdure.agents.acp.peer import Peer
from perdure.agents.house.candidate import Candidate
from perdure.agents.house.serving import Serving
from perdure.agents.house.session import Setup

PRIMARY, SECOND = Candidate("test", "primary"), Candidate("test", "second")


@dataclass
class Call:
    """A model wants a tool."""

    tool: str
    arguments: dict[str, Any]


@dataclass
class Script:
    """The answers of models, one a request, whoever is asked: texts, calls, errors, events to wait for; or lists."""

    steps: list[Any]
    asked: list[list[ModelMessage]] = field(default_factory=list)
    by: list[Candidate] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)  # offered in the last request

    def build(self, candidate: Candidate) -> FunctionModel:
        async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            self.asked.append(list(messages))
            self.by.append(candidate)
            self.tools = [tool.name for tool in info.function_tools]
            step = self.steps.pop(0)
            for piece in step if isinstance(step, list) else [step]:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, asyncio.Event):
                    await piece.wait()
                elif isinstance(piece, Call):
                    call_id = f"call-{len(self.asked)}"
                    yield {0: DeltaToolCall(piece.tool, json.dumps(piece.arguments), tool_call_id=call_id)}
                else:
                    yield piece

        return FunctionModel(stream_function=answer, model_name=candidate.model)


class Client:
    """The engine's side: requests, and what was told meanwhile. `allow` answers questions of permission."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.allow: Callable[[dict[str, Any]], str | None] = lambda _asked: "allow_once"
        self.peer: Peer | None = None

    def notified(self, method: str, params: Any) -> None:
        assert method == "session/update"
        self.updates.append(params["update"])

    async def requested(self, method: str, params: Any) -> Any:
        assert method == "session/request_permission"
        self.asked.append(params)
        chosen = self.allow(params)
        return {"outcome": {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}}

    async def call(self, method: str, **params: Any) -> Any:
        assert self.peer is not None
        return await self.peer.request(method, params)

    async def prompt(self, session_id: str, text: str) -> Any:
        return await self.call("session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"]["text"] for one in self.updates if one["sessionUpdate"] == kind)


@asynccontextmanager
async def served(script: Script, folder: Path, **more: Any) -> AsyncIterator[Client]:
    """A client of an agent that answers by the script; when it leaves, the agent has ended."""
    candidates = more.pop("candidates", (PRIMARY, SECOND))
    setup = Setup(candidates=candidates, build=script.build, folder=folder / "sessions", **more)
    ours, theirs = socket.socketpair()
    client = Client()
    reader, writer = await asyncio.open_connection(sock=ours)
    agent_reader, agent_writer = await asyncio.open_connection(sock=theirs)
    serving = asyncio.create_task(Serving(setup).serve(agent_reader, agent_writer))
    client.peer = Peer(writer, lambda _way, _line: None, client)
    reading = asyncio.create_task(client.peer.read(reader))
    try:
        yield client
    finally:
        writer.close()
        await serving
        agent_writer.close()
        await asyncio.gather(reading, agent_writer.wait_closed(), return_exceptions=True)


async def new(client: Client, cwd: Path, **more: Any) -> str:
    """The id of a new session."""
    return str((await client.call("session/new", cwd=str(cwd), mcpServers=[], **more))["sessionId"])


def run(script: Script, folder: Path, *prompts: str, **more: Any) -> tuple[Client, list[Any]]:
    """The answers to prompts in one session, and the client that heard everything."""

    async def scenario() -> tuple[Client, list[Any]]:
        async with served(script, folder, **more) as client:
            session_id = await new(client, folder)
            return client, [await client.prompt(session_id, prompt) for prompt in prompts]

    return asyncio.run(scenario())


def prompts_of(script: Script) -> list[str]:
    """What a person said, as the last request to a model had it."""
    parts = [part for message in script.asked[-1] for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


def results_of(script: Script) -> list[str]:
    """What tools gave, as the last request to a model had it."""
    parts = [part for message in script.asked[-1] for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


async def begun(client: Client) -> None:
    """Return once the agent has shown something."""
    while not client.updates:
        await asyncio.sleep(0)


CATEGORIES = {429: ModelRateLimitError, 401: ModelAuthenticationError, 503: ModelUnavailableError}


def limited(status: int = 429) -> ModelHTTPError:
    """What a provider's client raises for a status."""
    error = ModelHTTPError.for_category(CATEGORIES[status], status_code=status, model_name="primary", body="no")
    assert isinstance(error, ModelHTTPError)
    return error
