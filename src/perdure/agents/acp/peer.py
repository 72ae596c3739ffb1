"""A JSON-RPC 2.0 peer: one JSON value a line, each way.

The laws:

- Every line that comes is shown to the observer before anything acts on it, and lines are acted on in their order: all
  notifications before an answer have been taken in when that answer reaches its caller.
- A notification is taken in on the spot; a request of the other side runs as a task, since it may wait for a person.
- Once the other side is gone, or is no peer of ours, whatever waits for an answer fails with that reason, at once.

The protocol's library is not used: importing it costs 0.7 s and 42 MB, it copies each frame twice, and it reorders
notifications, drops what it does not know and hides why a peer went away. Tests check what is sent against its schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import msgspec

REQUESTS_MAX: Final = 64  # of the other side, at once
NOISE_LINES_MAX: Final = 1_000  # that are not JSON-RPC, in a session
UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

OUTPUT_CLOSED: Final = "closed its output"

Direction = Literal["in", "out", "noise"]
Observe = Callable[[Direction, bytes], None]

_logger = logging.getLogger("perdure.agents")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Refused(Exception):
    """An error as JSON-RPC carries it, in either direction."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.rpc_code = code
        self.message = message
        self.data = data


class PeerLost(Exception):
    """The other side is gone or does not speak the protocol."""


class Listener(Protocol):
    """Who takes in what the other side says."""

    def notified(self, method: str, params: Any) -> None:
        """Take in a notification; must not block."""
        ...

    async def requested(self, method: str, params: Any) -> Any:
        """The result of a request. Raises Refused."""
        ...


class Peer:
    """One end of a connection. `read` must run for anything to be heard."""

    def __init__(self, writer: asyncio.StreamWriter, observe: Observe, listener: Listener) -> None:
        """`observe` is shown every line, either way."""
        self._writer, self._observe, self._listener = writer, observe, listener
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._noise = 0
        self._lost: PeerLost | None = None

    @property
    def lost(self) -> PeerLost | None:
        """Why the other side is not to be heard any more."""
        return self._lost

    def request(self, method: str, params: Any) -> asyncio.Future[Any]:
        """Send a request; the future gives its result, or raises Refused or PeerLost."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._lost is not None:
            future.set_exception(self._lost)
            return future
        self._last_id += 1
        number = self._last_id
        self._waiting[number] = future
        future.add_done_callback(lambda _future: self._waiting.pop(number, None))
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return future

    def notify(self, method: str, params: Any) -> None:
        """Send a notification; nothing happens if the other side is gone."""
        if self._lost is None:
            self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Take in lines until the stream ends. Does not raise: the end is told to whoever waits."""
        while self._lost is None:
            try:
                line = await reader.readline()
            except ValueError:
                self.lose("sent a line that is too long")
                return
            if not line:
                self.lose(OUTPUT_CLOSED)
                return
            try:
                self._take(line)
            except Exception as error:  # agent boundary: whatever it sent, its turn does not end by silence
                _logger.exception("A line of an agent could not be taken in")
                self.lose(f"sent what could not be taken in ({type(error).__name__}: {error})")

    def lose(self, why: str) -> None:
        """The other side is given up: fail what waits, drop what it asked. Only the first reason counts."""
        if self._lost is not None:
            return
        self._lost = lost = PeerLost(why)
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(lost)
                future.exception()  # marks it as looked at: the caller may be gone by now
        self.drop_requests()

    def drop_requests(self) -> None:
        """Cancel what the other side has asked and not been answered; it is told so where it can be."""
        for task in self._tasks:
            task.cancel()

    async def settle(self) -> None:
        """Return once nothing that the other side asked is under way any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- in

    def _take(self, line: bytes) -> None:
        message = _parsed(line)
        self._observe("in" if message is not None else "noise", line)
        if message is None:
            if line.strip():
                self._noise += 1
            if self._noise > NOISE_LINES_MAX:
                self.lose(f"printed more than {NOISE_LINES_MAX} lines that are not of the protocol")
            return
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            if "id" in message:
                self._ask(number, method, message.get("params"))
            else:
                self._listener.notified(method, message.get("params"))
        elif type(number) is int and (future := self._waiting.get(number)) is not None and not future.done():
            _settle(future, message)

    def _ask(self, number: Any, method: str, params: Any) -> None:
        if len(self._tasks) >= REQUESTS_MAX:
            self._reply(number, error=Refused(INTERNAL_ERROR, f"More than {REQUESTS_MAX} requests at once."))
            return
        task = asyncio.create_task(self._answer(number, method, params), name=f"acp {method}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: Any, method: str, params: Any) -> None:
        try:
            result = await self._listener.requested(method, params)
        except Refused as refused:
            self._reply(number, error=refused)
        except asyncio.CancelledError:
            self._reply(number, error=Refused(INTERNAL_ERROR, "The turn was cancelled."))
        except Exception as error:  # agent boundary: it must not wait for ever
            _logger.exception("A request of an agent failed: %s", method)
            self._reply(number, error=Refused(INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
        else:
            self._reply(number, result=result)

    # --- out

    def _reply(self, number: Any, *, result: Any = None, error: Refused | None = None) -> None:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        if error is None:
            answer["result"] = result
        else:
            answer["error"] = {"code": error.rpc_code, "message": error.message}
            if error.data is not None:
                answer["error"]["data"] = error.data
        if self._lost is None:
            self._send(answer)

    def _send(self, message: dict[str, Any]) -> None:
        line = _encode(message) + b"\n"
        self._observe("out", line)
        with contextlib.suppress(OSError):  # a closed pipe is told by the end of the other one
            self._writer.write(line)
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.lose("does not read what it is sent")


def _settle(future: asyncio.Future[Any], message: dict[str, Any]) -> None:
    error = message.get("error")
    if error is None:
        future.set_result(message.get("result"))
        return
    given = error if isinstance(error, dict) else {"message": str(error)}
    code, text = given.get("code"), given.get("message")
    future.set_exception(
        Refused(code if isinstance(code, int) else INTERNAL_ERROR, str(text or "no reason given"), given.get("data"))
    )


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The JSON-RPC message of a line, None for anything else. Halves of surrogate pairs are replaced."""
    try:
        value = _decode(line)
    except (ValueError, RecursionError):
        try:
            value = json.loads(json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    is_message = isinstance(value, dict) and ("method" in value or "id" in value)
    return value if is_message else None
