"""The record of one session's frames, in the order in which they passed: one JSON object a line, next to its stderr.

    {"at": 1767225600000, "way": "out", "frame": {"jsonrpc": "2.0", ...}}
    {"at": 1767225600017, "way": "noise", "text": "a line that is not of the protocol"}

It is for people who look into a session, and the only place that keeps what perdure itself does not understand. The
law: what the agent is given as a secret (environment and headers of its tools, its model's headers) is not in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.agents.acp.peer import Direction
from perdure.clock import SystemClock
from perdure.values import redact

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_SECRET: Final = frozenset({"env", "headers"})  # fields of requests of ours


class FrameLog:
    """Appends frames to a file; a line is written whole, at once. What goes over the bound is left out."""

    def __init__(self, path: Path) -> None:
        """Open the file; OSError if it cannot be."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = FILE_BYTES_MAX - os.fstat(self._file).st_size
        self._clock = SystemClock()

    def write(self, way: Direction, line: bytes) -> None:
        """Keep one line as it passed."""
        if self._file < 0:
            return
        if way == "noise":
            body = b'"text": ' + msgspec.json.encode(redact(line.decode("utf-8", "replace").rstrip("\n")))
        else:
            frame = line.strip()
            body = b'"frame": ' + (_without_secrets(frame) if way == "out" else frame)
        entry = b'{"at": %d, "way": "%s", %s}\n' % (self._clock.wall_ms(), way.encode(), body)
        self._left -= len(entry)
        if self._left < 0:
            self.close()
            return
        try:
            os.write(self._file, entry)
        except OSError:  # a full disk costs the record, not the session
            self.close()

    def close(self) -> None:
        """Keep no more. Safe twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _without_secrets(frame: bytes) -> bytes:
    if not (b'"env"' in frame or b'"headers"' in frame):
        return frame
    return msgspec.json.encode(_blanked(msgspec.json.decode(frame)))


def _blanked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "[redacted]" if key in _SECRET else _blanked(inner) for key, inner in value.items()}
    return [_blanked(inner) for inner in value] if isinstance(value, list) else value
