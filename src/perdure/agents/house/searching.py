"""Search in the files of a workspace: names by a glob, lines by a regular expression.

Bounded in files, matches and text, so that one careless pattern costs seconds, not the turn. Folders that hold other
people's code or none at all are left out. Symbolic links are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from perdure.agents.house.workspace import Workspace
from perdure.errors import UsageError

FILES_MAX: Final = 20_000  # looked at
FILE_BYTES_MAX: Final = 2 * 1024 * 1024  # larger ones are skipped
MATCHES_MAX: Final = 200
LINE_CHARS_MAX: Final = 300
LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules", ".mypy_cache"})


def search(workspace: Workspace, pattern: str, path: str = ".", glob: str = "") -> str:
    """Matching lines as `file:line: text`; with an empty pattern the names of the files. Raises UsageError."""
    place = workspace.locate(path)
    if not place.exists():
        raise UsageError(f"There is no {path}.", path=path)
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"The pattern is not a regular expression: {error}.", pattern=pattern) from None
    found: list[str] = []
    for file in _files(place, workspace, glob):
        found += _matches(file, workspace.show(file), wanted) if pattern else [workspace.show(file)]
        if len(found) > MATCHES_MAX:
            return "\n".join([*found[:MATCHES_MAX], "[... more matches; narrow the pattern, path or glob]"])
    return "\n".join(found) or "Nothing matches."


def _files(place: Path, workspace: Workspace, glob: str) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    seen = 0
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(names):
            seen += 1
            if seen > FILES_MAX:
                return
            file = Path(folder, name)
            if not glob or fnmatch(name, glob) or fnmatch(workspace.show(file), glob):
                yield file


def _matches(file: Path, name: str, wanted: re.Pattern[str]) -> list[str]:
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
            return []
        data = file.read_bytes()
    except OSError:  # gone or not readable: as if it were not there
        return []
    if b"\0" in data:
        return []
    lines = enumerate(data.decode("utf-8", "replace").splitlines(), 1)
    return [f"{name}:{number}: {line[:LINE_CHARS_MAX]}" for number, line in lines if wanted.search(line)]
