"""A bed for agents that speak ACP: the agent of `acp_agent.py`, its sessions, and what was heard of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from perdure.agents.acp.agent import AcpAgent, build
from perdure.agents.acp.session import AcpSession
from perdure.agents.session import AgentEvent, SessionSpec

COMMAND = [sys.executable, str(Path(__file__).with_name("acp_agent.py"))]
T = TypeVar("T")


class Bed:
    """A stage's folder, and everything its agent said."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "cwd"
        self.cwd.mkdir(exist_ok=True)
        self.scratch = folder / "scratch"
        self.heard: list[AgentEvent] = []

    def agent(self, *arguments: str, **settings: Any) -> AcpAgent:
        return build("bed", {"command": [*COMMAND, *arguments], **settings})

    async def open(self, *arguments: str, spec: dict[str, Any] | None = None, **settings: Any) -> AcpSession:
        wanted = SessionSpec("run-1", "node-1", "stage", self.cwd, self.scratch, **(spec or {}))
        return await self.agent(*arguments, **settings).open(wanted, self.heard.append)

    def play(self, scenario: Callable[[AcpSession], Awaitable[T]], *arguments: str, **more: Any) -> T:
        """What a scenario gives for a session that is closed after it."""

        async def main() -> T:
            session = await self.open(*arguments, **more)
            try:
                return await scenario(session)
            finally:
                await session.close()

        return asyncio.run(main())

    def say(self, text: str, *arguments: str, **more: Any) -> str:
        """What the agent answers to one prompt in a session of its own."""

        async def scenario(session: AcpSession) -> str:
            return (await session.prompt(text)).text

        return self.play(scenario, *arguments, **more)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.heard]

    def notes(self) -> list[str]:
        return [event.text for event in self.heard if event.kind == "note"]

    def frames(self, way: str) -> list[dict[str, Any]]:
        """What passed, in its order."""
        (file,) = self.scratch.glob("*.frames.jsonl")
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        return [entry.get("frame", entry) for entry in entries if entry["way"] == way]
