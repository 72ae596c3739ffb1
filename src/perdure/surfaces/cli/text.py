"""Words, times and columns for people: everything here is a pure function to text."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final

ICONS: Final[dict[str, str]] = {
    "pending": "○",
    "queued": "○",
    "running": "●",
    "awaiting_input": "?",
    "paused": "‖",
    "quit": "‖",
    "crashed": "!",
    "blocked": "↑",
    "exit_blocked": "↑",
    "completed": "✓",
    "failed": "✗",
    "skipped": "⊘",
    "cancelled": "⊘",
    "killed": "⊘",
}
COLOURS: Final[dict[str, str]] = {
    "running": "36",
    "awaiting_input": "33",
    "paused": "33",
    "quit": "33",
    "crashed": "31",
    "blocked": "33",
    "exit_blocked": "33",
    "completed": "32",
    "failed": "31",
    "killed": "31",
    "dim": "2",
    "bold": "1",
}


def has_colour(stream: IO[str]) -> bool:
    """Whether colours are wanted there: a terminal that is not dumb, and no NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, colour: bool) -> str:
    """`text` in the colour of a status or style, if colours are wanted."""
    code = COLOURS.get(style, "")
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text


def duration(ms: int | None) -> str:
    """`0.4s`, `12s`, `1m 20s`, `2h 05m`."""
    if ms is None:
        return "-"
    if ms < 10_000:
        return f"{max(0, ms) / 1000:.1f}s"
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    return f"{seconds // 3600}h {seconds % 3600 // 60:02}m"


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def money(nanos: int) -> str:
    """Nano-dollars as dollars."""
    return f"${nanos / 1e9:.4f}"


def value(plain: Any) -> str:
    """A value as a person reads it: texts as they are, the rest as indented JSON."""
    return plain if isinstance(plain, str) else json.dumps(plain, indent=2, ensure_ascii=False)


def first_line(text: str, chars_max: int) -> str:
    """The first line, cut with a mark."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= chars_max else line[: max(0, chars_max - 1)] + "…"


def table(rows: Iterable[Sequence[str]], *, width: int | None = None) -> list[str]:
    """Aligned columns, two spaces apart; only the last column is cut to the width (0: never)."""
    kept = [[cell.replace("\n", " ") for cell in row] for row in rows]
    if not kept:
        return []
    limit = shutil.get_terminal_size((120, 40)).columns if width is None else width
    widths = [max(len(row[column]) for row in kept) for column in range(len(kept[0]))]
    lines = []
    for row in kept:
        start = "  ".join(cell.ljust(widths[column]) for column, cell in enumerate(row[:-1]))
        room = max(12, limit - len(start) - 2) if limit else len(row[-1])
        lines.append(f"{start}  {first_line(row[-1], room)}".rstrip() if start else first_line(row[-1], room))
    return lines
