"""One agent's process and the protocol spoken with it, from its start to its proven end.

    start -> speaking --(it exits, closes its output, prints garbage)--> lost --(close)--> gone
                      --(close)---------------------------------------------------------> gone

The laws: whoever waits for the agent learns of its end within EXIT_SECONDS, with the exit code and the end of what it
complained of; a descendant that holds the pipes open delays nobody. `close` returns when the whole group is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perdure import failures
from perdure.agents.acp.frames import FrameLog
from perdure.agents.acp.peer import OUTPUT_CLOSED, Direction, Listener, Peer, PeerLost, Refused
from perdure.errors import AgentError, AgentProtocolError, AgentUnavailable
from perdure.host.processes import EOF_SECONDS, TERM_SECONDS, Process, spawn, stop, to_the_end

EXIT_SECONDS: Final = 1.0  # from the exit of the process to its end of file
WATCH_SECONDS: Final = 5.0
STDERR_BYTES_MAX: Final = 16 * 1024 * 1024  # of the file; emptied when it grows over that
EVIDENCE_BYTES_MAX: Final = 4096
NOISE_CHARS_MAX: Final = 1000  # of what it printed beside the protocol, in errors

AUTH_REQUIRED: Final = -32000
_KILLED: Final = "was ended because it did not stop when it was told to"


class Connection:
    """A running agent."""

    def __init__(self, name: str, process: Process, listener: Listener, log: tuple[FrameLog, Path]) -> None:
        """Made by `connect`. `log` is where its frames go, and the file of its stderr."""
        self.name = name
        self.peer = Peer(process.stdin, self._observe, listener)
        self._process = process
        self._frames, self._stderr_path = log
        self._noise: list[str] = []
        self._reading = asyncio.create_task(self.peer.read(process.stdout), name="acp-read")
        self._watching = asyncio.create_task(self._watch(), name="acp-watch")

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """The agent's answer to a request. Raises AgentError."""
        future = self.peer.request(method, params)
        try:
            return await future
        except (Refused, PeerLost) as error:
            raise await self.failure(error, method) from error

    async def failure(self, error: Refused | PeerLost, doing: str) -> AgentError:
        """The error to raise for a request that failed, with all the evidence there is."""
        if isinstance(error, Refused):
            return self._refusal(error, doing)
        if self._process.exit_code is None and str(error) == OUTPUT_CLOSED:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):  # the end of its output often comes before its exit
                    await self._process.wait()
        return self._loss(error)

    @property
    def stderr_tail(self) -> str:
        """The end of what the agent complained of."""
        try:
            with self._stderr_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - EVIDENCE_BYTES_MAX))
                return file.read().decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return ""

    @property
    def evidence(self) -> str:
        """What the agent said outside the protocol, for an error's message."""
        said = [f"It complained: {self.stderr_tail}"] if self.stderr_tail else []
        if self._noise:
            said.append(f"It printed: {''.join(self._noise)[:NOISE_CHARS_MAX]}")
        return " ".join(said)

    @property
    def has_printed_noise(self) -> bool:
        """Whether it printed anything that is not of the protocol."""
        return bool(self._noise)

    async def kill(self) -> None:
        """End the agent at once, because it does not stop by itself."""
        self.peer.lose(_KILLED)
        await to_the_end(self._end(eof_seconds=0.0, term_seconds=0.5))

    async def close(self) -> None:
        """End the agent; returns when everything of it is gone, even if cancelled meanwhile. Safe twice."""
        self.peer.lose("was closed")
        await to_the_end(self._end(eof_seconds=EOF_SECONDS, term_seconds=TERM_SECONDS))

    # --- inside

    def _observe(self, way: Direction, line: bytes) -> None:
        """A line passed."""
        self._frames.write(way, line)
        if way == "noise" and sum(map(len, self._noise)) < NOISE_CHARS_MAX:
            self._noise.append(line[:NOISE_CHARS_MAX].decode("utf-8", "replace"))

    async def _end(self, *, eof_seconds: float, term_seconds: float) -> None:
        self._watching.cancel()
        self.peer.drop_requests()
        left = await stop(self._process, eof_seconds=eof_seconds, term_seconds=term_seconds)
        self._reading.cancel()
        await asyncio.gather(self._reading, self._watching, self.peer.settle(), return_exceptions=True)
        self._frames.close()
        if left:
            pids = list(left.ours or left.unprobeable)
            raise AgentProtocolError(
                f"Agent {self.name!r} left processes that cannot be ended: {pids}. End them by hand.",
                agent=self.name,
                pids=pids,
            )

    async def _watch(self) -> None:
        """Notice the exit of the process even if somebody else holds its pipes; keep its stderr file bounded."""
        exited = asyncio.create_task(self._process.wait(), name="acp-exit")
        try:
            while not (await asyncio.wait({exited}, timeout=WATCH_SECONDS))[0]:
                self._trim_stderr()
            await asyncio.wait({self._reading}, timeout=EXIT_SECONDS)
            self.peer.lose("ended")
        finally:
            exited.cancel()

    def _trim_stderr(self) -> None:
        with contextlib.suppress(OSError):
            if self._stderr_path.stat().st_size > STDERR_BYTES_MAX:
                os.truncate(self._stderr_path, 0)

    def _refusal(self, error: Refused, doing: str) -> AgentError:
        data = error.data if isinstance(error.data, dict) else {"text": str(error.data)} if error.data else {}
        more = next((str(data[key]) for key in ("details", "message", "text") if data.get(key)), "")
        said = error.message if more in error.message else f"{error.message}: {more}"
        details: dict[str, Any] = {"agent": self.name, "method": doing, "rpc_code": error.rpc_code, "body": data}
        if error.rpc_code == AUTH_REQUIRED:
            details["code"] = "login_required"
        elif 400 <= error.rpc_code <= 599:  # some agents hand on the status of their model's server
            details["status"] = error.rpc_code
        return AgentError(f"Agent {self.name!r} refused {doing}: {said}", **details)

    def _loss(self, error: PeerLost) -> AgentError:
        code, why = self._process.exit_code, str(error)
        if code is not None and why == OUTPUT_CLOSED:
            why = "ended"
        how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"
        message = f"Agent {self.name!r} {why}{how}. {self.evidence}".strip()
        details: dict[str, Any] = {"agent": self.name, "stderr": self.stderr_tail}
        if "not of the protocol" in why or "too long" in why:
            return AgentProtocolError(message, **details)
        return unavailable(message, **details)  # the session is on disk: another try can go on with it


def unavailable(message: str, **details: Any) -> AgentError:
    """An error that reads as provider_unavailable, unless its text tells what is wrong."""
    if failures.classify(AgentError(message), origin="provider").code not in _TELLING:
        details["code"] = "provider_unavailable"
    return AgentError(message, **details)


_TELLING: Final = frozenset(
    {"login_required", "missing_api_key", "invalid_api_key", "unknown_model", "quota_limited", "rate_limited",
     "forbidden_config"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How an agent is started. `log` is the path of its frames and its stderr, without an ending."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    log: Path


async def connect(name: str, launch: Launch, listener: Listener) -> Connection:
    """A started agent. Raises AgentUnavailable."""
    stderr_path = launch.log.with_suffix(".stderr")
    try:
        frames = FrameLog(launch.log.with_suffix(".frames.jsonl"))
    except OSError as error:
        raise AgentUnavailable(f"Agent {name!r} cannot start: {error}", agent=name) from error
    try:
        process = await spawn(launch.argv, cwd=launch.cwd, env=launch.env, stderr_path=stderr_path)
    except BaseException as error:
        frames.close()
        if isinstance(error, OSError):
            raise AgentUnavailable(f"Agent {name!r} cannot start: {error}", agent=name) from error
        raise
    return Connection(name, process, listener, (frames, stderr_path))
