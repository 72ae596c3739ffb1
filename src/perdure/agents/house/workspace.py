"""The files an agent may touch: those below one folder, by text, exactly, and within bounds.

The law: a path is resolved, with every symbolic link in it, before it is used, and what lies outside the folder is
refused whatever it was called. Commands that a shell runs are not held by this; see tools.py.
Everything here is synchronous; callers use a thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from perdure.agents.acp.places import OutsideFolder, inside
from perdure.errors import UsageError

FILE_BYTES_MAX: Final = 10 * 1024 * 1024  # of a file that is read or edited
SHOWN_CHARS_MAX: Final = 50_000  # of one answer
LINES_MAX: Final = 2_000  # of one answer
LINE_CHARS_MAX: Final = 2_000
ENTRIES_MAX: Final = 500  # of a folder


@dataclass(frozen=True, slots=True)
class Change:
    """What a write or edit did. `before` is None for a file that is new."""

    path: Path
    before: str | None
    after: str


class Workspace:
    """One folder and what may be done in it. Methods raise UsageError with a sentence for the model to read."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def locate(self, path: str) -> Path:
        """The real place of a path, absolute or relative to the folder. Raises UsageError outside of it."""
        try:
            return inside(path, self.root)
        except OutsideFolder as outside:
            raise UsageError(str(outside), path=path) from None

    def show(self, place: Path) -> str:
        """A place as people write it: relative to the folder."""
        return str(place.relative_to(self.root))

    def read(self, path: str, offset: int = 1, limit: int = LINES_MAX) -> str:
        """Lines of a file, each after its number, from line `offset` on; the entries of a folder."""
        place = self.locate(path)
        if place.is_dir():
            return _entries(place)
        lines = _text_of(place, path).splitlines()
        first = max(offset, 1)
        wanted = lines[first - 1 : first - 1 + max(1, min(limit, LINES_MAX))]
        if not wanted:
            return f"{path} has {len(lines)} lines; there is nothing from line {first} on."
        shown, chars = [], 0
        for number, line in enumerate(wanted, first):
            text = f"{number}\t{line if len(line) <= LINE_CHARS_MAX else f'{line[:LINE_CHARS_MAX]} [... cut]'}"
            chars += len(text) + 1
            if chars > SHOWN_CHARS_MAX:
                break
            shown.append(text)
        last = first - 1 + len(shown)
        more = f"\n[{len(lines) - last} more lines; go on with offset={last + 1}]" if last < len(lines) else ""
        return "\n".join(shown) + more

    def write(self, path: str, content: str) -> Change:
        """Make a file, or give one a new content; folders on the way are made."""
        place = self.locate(path)
        if place.is_dir():
            raise UsageError(f"{path} is a folder.", path=path)
        before = _text_of(place, path) if place.exists() else None
        with _said(path):
            place.parent.mkdir(parents=True, exist_ok=True)
            _replace(place, content)
        return Change(place, before, content)

    def edit(self, path: str, old: str, new: str, *, every: bool = False) -> Change:
        """Replace `old`, which must be there exactly once, or `every` occurrence of it."""
        place = self.locate(path)
        before = _text_of(place, path)
        if not old:
            raise UsageError("The text to replace is empty; use write for a new file.")
        count = before.count(old)
        if count == 0 and "\r\n" in before:  # the model saw lines, not their ends
            old, new = (text.replace("\r\n", "\n").replace("\n", "\r\n") for text in (old, new))
            count = before.count(old)
        if count == 0:
            raise UsageError(f"{path} does not hold that text. Read the file and give the text exactly.", path=path)
        if count > 1 and not every:
            raise UsageError(
                f"{path} holds that text {count} times. Give more of the lines around it, or set replace_all.",
                path=path,
            )
        after = before.replace(old, new)
        with _said(path):
            _replace(place, after)
        return Change(place, before, after)


def _text_of(place: Path, path: str) -> str:
    with _said(path):
        if place.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{path} is larger than {FILE_BYTES_MAX} bytes; use shell to look at parts of it.")
        if not place.is_file():
            raise UsageError(f"{path} is not a regular file.", path=path)
        data = place.read_bytes()
    if b"\0" in data:
        raise UsageError(f"{path} is not a text file.", path=path)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text.", path=path) from None


@contextlib.contextmanager
def _said(path: str) -> Iterator[None]:
    """What the file system refuses, as a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.", path=path) from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}.", path=path) from error


def _replace(place: Path, content: str) -> None:
    """Write beside and rename, so that a reader, or a kill, never sees half a file; the mode stays."""
    beside = place.with_name(f".{place.name}.{os.getpid()}.new")
    try:
        beside.write_bytes(content.encode("utf-8", "surrogatepass"))
        if place.exists():
            beside.chmod(place.stat().st_mode & 0o7777)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def _entries(place: Path) -> str:
    with _said(str(place)), os.scandir(place) as entries:
        names = sorted(f"{entry.name}{'/' if entry.is_dir() else ''}" for entry in islice(entries, ENTRIES_MAX + 1))
    cut = "\n[... more]" if len(names) > ENTRIES_MAX else ""
    return "\n".join(names[:ENTRIES_MAX]) + cut or "The folder is empty."
