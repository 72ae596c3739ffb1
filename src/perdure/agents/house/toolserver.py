"""A server of further tools that the client names: the Model Context Protocol by standard input and output.

Such a server is a process of this session: started by the process door, ended with the session. Its tools are put
beside our own; one that has a name of ours is called SERVER_NAME. The peer below is the one that speaks to agents,
since both protocols are JSON-RPC with a message a line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic_ai import Tool, ToolFailed

from perdure.agents.acp.peer import METHOD_NOT_FOUND, Direction, Peer, PeerLost, Refused
from perdure.errors import AgentUnavailable
from perdure.host.processes import Process, environment, spawn, stop

PROTOCOL: Final = "2025-06-18"
START_SECONDS: Final = 30.0
PAGES_MAX: Final = 20  # of a list of tools


class ToolServer:
    """One running server and its tools."""

    def __init__(self, name: str, process: Process) -> None:
        """Use `start`."""
        self.name = name
        self.tools: list[dict[str, Any]] = []
        self._process = process
        self._peer = Peer(process.stdin, _observe, _Answers())
        self._reads = [asyncio.create_task(self._peer.read(process.stdout), name="read-tool-server")]
        if process.stderr is not None:
            self._reads.append(asyncio.create_task(_complaints(process.stderr), name="read-tool-server-stderr"))

    @classmethod
    async def start(cls, given: Mapping[str, Any], cwd: Path) -> ToolServer:
        """Start the server that an entry of `mcpServers` names. Raises AgentUnavailable if it does not answer."""
        name = str(given.get("name", "tools"))
        argv = [str(given.get("command", "")), *map(str, given.get("args") or ())]
        env = {str(one["name"]): str(one["value"]) for one in given.get("env") or ()}
        try:
            process = await spawn(argv, cwd=cwd, env=environment(extra=env))
        except OSError as error:
            raise AgentUnavailable(f"The tool server {name!r} cannot start: {error}", server=name) from error
        server = cls(name, process)
        try:
            async with asyncio.timeout(START_SECONDS):
                await server._greet()
        except (Refused, PeerLost, TimeoutError) as error:
            await server.close()
            why = str(error) or f"it said nothing for {START_SECONDS:g} s"
            raise AgentUnavailable(f"The tool server {name!r} does not answer: {why}.", server=name) from error
        except BaseException:
            await server.close()
            raise
        return server

    async def close(self) -> None:
        """End the server; returns when it is gone."""
        self._peer.lose("was closed")
        await stop(self._process)
        for read in self._reads:
            read.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)

    def build_tools(self, taken: Sequence[str]) -> list[Tool[Any]]:
        """Its tools as the agent takes them; names in `taken` are avoided."""
        return [self._build(tool, taken) for tool in self.tools]

    async def _greet(self) -> None:
        await self._peer.request(
            "initialize",
            {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "perdure-house", "version": "1"}},
        )
        self._peer.notify("notifications/initialized", {})
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._peer.request("tools/list", {"cursor": cursor} if cursor else {})
            self.tools += [tool for tool in page.get("tools", ()) if isinstance(tool.get("name"), str)]
            cursor = page.get("nextCursor")
            if not cursor:
                return

    def _build(self, tool: Mapping[str, Any], taken: Sequence[str]) -> Tool[Any]:
        name = str(tool["name"])

        async def call(**arguments: Any) -> str:
            try:
                result = await self._peer.request("tools/call", {"name": name, "arguments": arguments})
            except (Refused, PeerLost) as error:
                raise ToolFailed(f"The tool server {self.name!r} failed: {error}") from None
            text = "\n".join(str(one.get("text", "")) for one in result.get("content", ()) if one.get("type") == "text")
            if result.get("isError"):
                raise ToolFailed(text or "It failed without a reason.")
            return text or "Done."

        return Tool.from_schema(
            call,
            name=f"{self.name}_{name}" if name in taken else name,
            description=str(tool.get("description") or ""),
            json_schema=dict(tool.get("inputSchema") or {"type": "object"}),
        )


class _Answers:
    """What a tool server may ask of us: whether we live."""

    def notified(self, method: str, params: Any) -> None:
        """Lists that change and progress are not followed."""

    async def requested(self, method: str, params: Any) -> Any:  # noqa: ARG002  part of the protocol
        """The result of a request. Raises Refused."""
        if method == "ping":
            return {}
        raise Refused(METHOD_NOT_FOUND, f"There is no {method} here.")


def _observe(_way: Direction, _line: bytes) -> None:
    """The client keeps the frames that matter: its own."""


async def _complaints(stream: asyncio.StreamReader) -> None:
    while piece := await stream.read(65_536):
        sys.stderr.write(piece.decode("utf-8", "replace"))
