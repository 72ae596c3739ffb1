"""The Model Context Protocol around a stage's tools: the only module that imports the library `mcp`.

It costs a second to import, so the tool server does that in a thread, at the first stage that needs it.

    one server a stage's session     lists its tools, calls them
    one stream a `perdure bridge`    lines of JSON, as by stdio
    one HTTP door for all            loopback only; the bearer token says whose request it is
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from perdure.engine.stagetools import StageTools

FRAME_BYTES_MAX: Final = 4 * 1024 * 1024  # of one message from an agent
HTTP_SESSIONS_MAX: Final = 16  # of one stage
HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"


def server_of(stage: StageTools) -> Server[Any]:
    """The protocol's server for one stage."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        stage.answered = True
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))
                for tool in stage.tools
            ]
        )

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        reply = await stage.call(params.name, params.arguments or {})
        content: list[Any] = [types.TextContent(type="text", text=reply.text)]
        return types.CallToolResult(content=content, is_error=reply.is_error)

    return Server("perdure", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stream(stage: StageTools, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection until its other end leaves."""
    server = server_of(stage)
    lines: Any = _Lines(reader, writer)
    async with stdio_server(lines, lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Lines:
    """A connection as the library's stdio transport wants it: lines of text in, text out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):  # gone, or a frame beyond the bound
            line = b""
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()


class HttpDoor:
    """The tools of every stage on one loopback port."""

    def __init__(self, stage_of: Callable[[str], StageTools | None]) -> None:
        """Listen at once, so that the URL holds before `serve` runs. `stage_of` finds a stage by its token."""
        self._stage_of = stage_of
        self._socket = socket.create_server((HOST, 0))
        self._rooms: dict[str, _Room] = {}
        self._server = _Quiet(
            uvicorn.Config(
                self, lifespan="off", log_config=None, access_log=False, ws="none", interface="asgi3",
                timeout_graceful_shutdown=1, server_header=False,
            )
        )  # fmt: skip

    @property
    def url(self) -> str:
        """Where the tools are."""
        return f"http://{HOST}:{self._socket.getsockname()[1]}{PATH}"

    async def serve(self) -> None:
        """Answer requests until `leave`."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    def leave(self) -> None:
        """Answer no more; `serve` returns."""
        self._server.should_exit = self._server.force_exit = True

    async def forget(self, token: str) -> None:
        """End every session of a stage."""
        room = self._rooms.pop(token, None)
        if room is not None:
            await room.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        token = _bearer(scope)
        stage = self._stage_of(token)
        if stage is None:
            await _refuse(send, 401, "This token opens no stage's tools (any more).")
        elif scope["path"] != PATH:
            await _refuse(send, 404, f"The tools are at {PATH}.")
        else:
            room = self._rooms.get(token)
            if room is None:
                room = self._rooms[token] = _Room(stage)
            await room.serve(scope, receive, send)


class _Quiet(uvicorn.Server):
    """A web server inside our process: signals are none of its business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


class _Room:
    """The HTTP sessions of one stage, kept by a task of their own since whoever opens a task group must close it."""

    def __init__(self, stage: StageTools) -> None:
        self._sessions = StreamableHTTPSessionManager(
            server_of(stage),
            max_sessions=HTTP_SESSIONS_MAX,
            session_idle_timeout=None,  # an agent may work for hours between two calls; closing the stage ends them
            max_request_body_size=FRAME_BYTES_MAX,
            security_settings=TransportSecuritySettings(allowed_hosts=[f"{HOST}:*"], allowed_origins=[]),
        )
        self._open = asyncio.Event()
        self._keeper = asyncio.create_task(self._keep(), name="stage-tools-http")

    async def serve(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await self._open.wait()
        await self._sessions.asgi_app(scope, receive, send)

    async def close(self) -> None:
        self._keeper.cancel()
        await asyncio.wait([self._keeper])

    async def _keep(self) -> None:
        async with self._sessions.run():
            self._open.set()
            await asyncio.get_running_loop().create_future()


async def _refuse(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode()})


def _bearer(scope: MutableMapping[str, Any]) -> str:
    for name, value in scope.get("headers", ()):
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            return str(token).strip() if kind.lower() == "bearer" else ""
    return ""
