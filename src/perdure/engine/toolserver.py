"""The engine's tool server: every stage's tools, by a Unix socket and, where an agent wants it, by loopback HTTP.

One server serves all sessions of the process. It starts with the first of them; a run without such stages pays
nothing. Whoever connects shows a token first, and gets exactly the tools of that token's session (stagetools.py):

    perdure bridge --(token, newline)--> "ok" -> the protocol's lines, both ways        (toolwire.py speaks it)
                                     +-> a sentence, and the end, for a token that opens nothing

The socket lies in a folder that only this user can enter (socketfolder.py). Closing a session ends its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from contextvars import Context
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from perdure.engine.socketfolder import SocketFolder
from perdure.engine.stagetools import StageTools
from perdure.operations.engine_tool import EngineTool

TOKEN_SECONDS: Final = 10.0  # for a connection to show its token
CONNECTIONS_MAX: Final = 64  # at once, over all stages, that have not shown theirs yet or talk

OK: Final = b"ok\n"
_logger = logging.getLogger("perdure.engine")


class ToolServer:
    """Serves tools to agents. Enter it or not; leave it by `close`."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._stages: dict[str, StageTools] = {}
        self._connections: dict[asyncio.Task[None], StageTools | None] = {}
        self._starting = asyncio.Lock()
        self._wire: ModuleType | None = None
        self._folder: SocketFolder | None = None
        self._server: asyncio.Server | None = None
        self._door: Any = None
        self._doorkeeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self, tools: Sequence[EngineTool]) -> StageTools:
        """Serve these tools to one session from now on, until its `close`."""
        async with self._starting:
            if self._server is None:
                await self._start()
        assert self._folder is not None
        stage = StageTools(tools, socket_path=self._folder.socket, url=self._url, on_close=self._forget)
        self._stages[stage.token] = stage
        return stage

    async def close(self) -> None:
        """Serve nobody any more; returns when everything is gone. Safe twice, and before the first stage."""
        for stage in list(self._stages.values()):
            await stage.close()
        await _end(list(self._connections))
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._doorkeeper is not None:
            self._door.leave()
            await asyncio.wait([self._doorkeeper])
            self._door = self._doorkeeper = None
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    # --- starting

    async def _start(self) -> None:
        self._wire = await asyncio.to_thread(import_module, "perdure.engine.toolwire")
        self._folder = await asyncio.to_thread(SocketFolder.make)
        limit = self._wire.FRAME_BYTES_MAX
        self._server = await asyncio.start_unix_server(self._connected, self._folder.socket, limit=limit)

    def _url(self) -> str:
        if self._door is None:
            assert self._wire is not None
            self._door = self._wire.HttpDoor(self._stages.get)
            self._doorkeeper = asyncio.create_task(self._door.serve(), name="stage-tools-http")
        return str(self._door.url)

    # --- connections

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(
            self._serve(reader, writer), name="stage-tools", context=Context()
        )
        self._connections[task] = None
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TOKEN_SECONDS):
                shown = await reader.readline()
            stage = self._stages.get(shown.decode("ascii", "replace").strip())
            if stage is None:
                writer.write(b"This token opens no stage's tools (any more).\n")
                return
            task = asyncio.current_task()
            assert task is not None
            assert self._wire is not None
            self._connections[task] = stage
            writer.write(OK)
            await self._wire.serve_stream(stage, reader, writer)
        except (TimeoutError, ConnectionError, ValueError):  # too slow, gone, or no token at all
            pass
        except Exception:  # agent boundary: what an agent sends must not end the engine
            _logger.exception("A connection to a stage's tools failed")
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _forget(self, stage: StageTools) -> None:
        self._stages.pop(stage.token, None)
        await _end([task for task, owner in self._connections.items() if owner is stage])
        if self._door is not None:
            await self._door.forget(stage.token)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
