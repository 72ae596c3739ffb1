"""Text files that an agent reads and writes through us (`fs/*`): inside the stage's folder only.

Plain functions, run in a thread. The last step of a path is opened without following a link, so a link that appears
after the look at the path is refused, not followed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.agents.acp.peer import INTERNAL_ERROR, INVALID_PARAMS, Refused
from perdure.agents.acp.places import OutsideFolder, inside

READ_BYTES_MAX: Final = 16 * 1024 * 1024
WRITE_BYTES_MAX: Final = 16 * 1024 * 1024
NOT_FOUND: Final = -32002


def read_text_file(params: Any, folder: Path) -> dict[str, Any]:
    """The result of a read request: the whole file, or `limit` lines from `line` (counted from 1). Raises Refused."""
    path = _path(params, folder)
    line, limit = _whole(params, "line"), _whole(params, "limit")
    try:
        with open(path, "rb", opener=_opener) as file:
            data = file.read(READ_BYTES_MAX + 1)
    except FileNotFoundError:
        raise Refused(NOT_FOUND, f"There is no file {path}.", {"uri": str(path)}) from None
    except OSError as error:
        raise Refused(INTERNAL_ERROR, f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > READ_BYTES_MAX:
        raise Refused(INTERNAL_ERROR, f"{path} is larger than {READ_BYTES_MAX} bytes. Read it with a tool of yours.")
    try:
        text = data.decode()
    except UnicodeDecodeError:  # with its bytes replaced, a file that is written back would be damaged
        raise Refused(INTERNAL_ERROR, f"{path} is not a text in UTF-8. Look at it with a tool of yours.") from None
    if line is None and limit is None:
        return {"content": text}
    first = max(1, line or 1) - 1
    lines = text.split("\n")
    return {"content": "\n".join(lines[first : None if limit is None else first + limit])}


def write_text_file(params: Any, folder: Path) -> dict[str, Any]:
    """Write a file and the folders it needs; the result of the request. Raises Refused."""
    path = _path(params, folder)
    content = params.get("content")
    if not isinstance(content, str):
        raise Refused(INVALID_PARAMS, "fs/write_text_file needs content, a text.")
    data = content.encode("utf-8", "replace")
    if len(data) > WRITE_BYTES_MAX:
        raise Refused(INVALID_PARAMS, f"A file may have at most {WRITE_BYTES_MAX} bytes; this one has {len(data)}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb", opener=_opener) as file:
            file.write(data)
    except OSError as error:
        raise Refused(INTERNAL_ERROR, f"{path} cannot be written: {error.strerror}.") from None
    return {}


def _opener(path: str, flags: int) -> int:
    # Not blocking: a pipe in the folder must not hold the thread until somebody opens its other end.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)


def _path(params: Any, folder: Path) -> Path:
    given = params.get("path") if isinstance(params, Mapping) else None
    if not isinstance(given, str):
        raise Refused(INVALID_PARAMS, "The request needs path, a text.")
    try:
        return inside(given, folder)
    except OutsideFolder as error:
        raise Refused(INVALID_PARAMS, str(error)) from None


def _whole(params: Mapping[str, Any], key: str) -> int | None:
    value = params.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(INVALID_PARAMS, f"{key} must be a whole number that is not negative.")
    return value
