"""`perdure bridge`: what an agent starts to reach the engine's tools, a byte pump from stdio to the engine's socket.

It understands nothing of what it carries and imports nothing but a few modules of the standard library: every session
of an agent starts one. Where to and as whom is in its environment, put there by the engine (engine/stagetools.py).

    stdin --------> socket     end of file: no more requests; what is on its way is still answered
    stdout <------- socket     end of file: the session is over; leave at once
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from typing import Any, Final

SOCKET: Final = "PERDURE_TOOLS_SOCKET"
TOKEN: Final = "PERDURE_TOOLS_TOKEN"  # noqa: S105  the name of a variable
PIECE_BYTES: Final = 65_536
GREETING_BYTES_MAX: Final = 256
GREETING_SECONDS: Final = 10.0
OK: Final = b"ok"


def bridge_command(_parts: Any, _arguments: Namespace, _out: Any) -> int:
    """Carry bytes until either side is done; the exit code."""
    path, token = os.environ.get(SOCKET), os.environ.get(TOKEN)
    if not path or not token:
        return _refuse(f"{SOCKET} and {TOKEN} are not set. perdure starts the bridge itself, for the agent of a stage.")
    try:
        connection = _connected(path, token)
    except OSError as error:
        return _refuse(f"the engine's tools cannot be reached: {error}. Is the run still going on?")
    return _carry(connection)


def _connected(path: str, token: str) -> socket.socket:
    """The connection, let in. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(GREETING_SECONDS)
    connection.connect(path)
    connection.sendall(f"{token}\n".encode())
    greeting = b""
    while not greeting.endswith(b"\n") and len(greeting) < GREETING_BYTES_MAX:
        byte = connection.recv(1)  # one at a time: what follows the line belongs to the agent
        if not byte:
            break
        greeting += byte
    if greeting.strip() != OK:
        raise ConnectionRefusedError(greeting.decode("utf-8", "replace").strip() or "refused")
    connection.settimeout(None)
    return connection


def _carry(connection: socket.socket) -> int:
    threading.Thread(target=_send, args=(connection,), daemon=True).start()
    with contextlib.suppress(OSError):  # the agent reads no more, or the engine is gone
        _pump(connection.fileno(), _to_stdout)
    os._exit(0)  # the thread may sit in a read that nothing ends


def _send(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other direction notices by itself
        _pump(sys.stdin.fileno(), connection.sendall)
        connection.shutdown(socket.SHUT_WR)


def _pump(source: int, write: Callable[[bytes], Any]) -> None:
    while piece := os.read(source, PIECE_BYTES):
        write(piece)


def _to_stdout(piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


def _refuse(why: str) -> int:
    print(f"perdure bridge: {why}", file=sys.stderr)
    return 1
