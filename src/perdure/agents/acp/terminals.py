"""Commands that an agent runs through us (`terminal/*`): in the stage's folder, through the process door, bounded.

    create -> running --(it exits, kill)--> ended --(release)--> forgotten
              running --(release, the turn's end)--------------> ended, forgotten

The law: no command outlives the turn that started it, and what it started is ended with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.agents.acp.peer import INTERNAL_ERROR, INVALID_PARAMS, Refused
from perdure.agents.acp.places import OutsideFolder, inside
from perdure.host.processes import Process, spawn, stop
from perdure.ids import new_id

TERMINALS_MAX: Final = 32  # at once
OUTPUT_BYTES_MAX: Final = 1024 * 1024  # the end is kept, if the agent does not ask for less
_MERGED: Final = 'exec 2>&1; exec "$@"'  # a terminal has one stream


class Terminals:
    """The commands of one session's turn."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        """`env` is what a command sees, beside what the agent gives it."""
        self._folder, self._env = folder, env
        self._open: dict[str, _Terminal] = {}

    async def create(self, params: Any) -> dict[str, Any]:
        """Start a command. Raises Refused."""
        command, args, env, cwd = _command(params, self._folder)
        if len(self._open) >= TERMINALS_MAX:
            raise Refused(INTERNAL_ERROR, f"At most {TERMINALS_MAX} terminals at once: release one first.")
        argv = ["sh", "-c", _MERGED, "sh", command, *args] if args else ["sh", "-c", f"exec 2>&1\n{command}"]
        try:
            process = await spawn(argv, cwd=cwd, env={**self._env, **env})
        except OSError as error:
            raise Refused(INTERNAL_ERROR, f"{command!r} cannot start: {error}") from None
        await process.feed()
        terminal_id = f"terminal-{new_id()}"
        limit = params.get("outputByteLimit")
        kept = min(limit, OUTPUT_BYTES_MAX) if isinstance(limit, int) and limit >= 0 else OUTPUT_BYTES_MAX
        self._open[terminal_id] = _Terminal(process, kept)
        return {"terminalId": terminal_id}

    async def output(self, params: Any) -> dict[str, Any]:
        """What a command has printed so far, and how it ended if it has."""
        return self._known(params).state()

    async def wait_for_exit(self, params: Any) -> dict[str, Any]:
        """How a command ended, once it has."""
        return await self._known(params).wait()

    async def kill(self, params: Any) -> dict[str, Any]:
        """End a command; its output can still be read."""
        await self._known(params).end()
        return {}

    async def release(self, params: Any) -> dict[str, Any]:
        """End a command and forget it."""
        terminal = self._known(params)
        self._open.pop(params["terminalId"], None)
        await terminal.end()
        return {}

    async def close(self) -> None:
        """End every command."""
        open_ones, self._open = list(self._open.values()), {}
        await asyncio.gather(*(terminal.end() for terminal in open_ones))

    def _known(self, params: Any) -> _Terminal:
        terminal_id = params.get("terminalId") if isinstance(params, Mapping) else None
        terminal = self._open.get(terminal_id) if isinstance(terminal_id, str) else None
        if terminal is None:
            raise Refused(INVALID_PARAMS, f"There is no terminal {terminal_id!r}.")
        return terminal


class _Terminal:
    """One command."""

    def __init__(self, process: Process, bytes_max: int) -> None:
        self._process, self._bytes_max = process, bytes_max
        self._kept = bytearray()
        self._cut = False
        self._reading = asyncio.create_task(self._read(), name="terminal-read")

    def state(self) -> dict[str, Any]:
        shown = {"output": bytes(self._kept).decode("utf-8", "ignore"), "truncated": self._cut}
        return shown if self._process.exit_code is None else {**shown, "exitStatus": _status(self._process.exit_code)}

    async def wait(self) -> dict[str, Any]:
        code = await self._process.wait()
        await asyncio.wait({self._reading}, timeout=1)  # a child of it may hold its output open
        return _status(code)

    async def end(self) -> None:
        await stop(self._process, eof_seconds=0.0, term_seconds=1.0)
        await asyncio.wait({self._reading}, timeout=1)
        self._reading.cancel()

    async def _read(self) -> None:
        while piece := await self._process.stdout.read(65_536):
            self._kept += piece
            if len(self._kept) > self._bytes_max:
                del self._kept[: len(self._kept) - self._bytes_max]
                self._cut = True


def _status(code: int) -> dict[str, Any]:
    return {"exitCode": None, "signal": str(-code)} if code < 0 else {"exitCode": code, "signal": None}


def _command(params: Any, folder: Path) -> tuple[str, list[str], dict[str, str], Path]:
    """Command, arguments, variables and folder of a create request. Raises Refused."""
    given = params if isinstance(params, Mapping) else {}
    command, args, pairs = given.get("command"), given.get("args") or [], given.get("env") or []
    if not isinstance(command, str) or not command.strip():
        raise Refused(INVALID_PARAMS, "terminal/create needs command, a text.")
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise Refused(INVALID_PARAMS, "args must be a list of texts.")
    env = {
        pair["name"]: pair["value"]
        for pair in pairs
        if isinstance(pair, Mapping) and isinstance(pair.get("name"), str) and isinstance(pair.get("value"), str)
    }
    try:
        cwd = inside(str(given.get("cwd") or "."), folder)
    except OutsideFolder as error:
        raise Refused(INVALID_PARAMS, str(error)) from None
    return command, args, env, cwd
