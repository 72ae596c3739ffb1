"""Words, times and columns for people: everything here is a pure function to text."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final
from unicodedata import combining, east_asian_width

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
VALUE_CHARS_MAX: Final = 20_000
FIRST_COLUMN_MIN: Final = 14
LAST_COLUMN_MIN: Final = 8
WRAP_COLUMNS_MIN: Final = 24

# What could steer a terminal, or turn the direction of a line, is shown as a mark. Tab and newline stay.
_MARKS: Final = {
    **{code: 0x2400 + code for code in range(0x20) if code not in {0x09, 0x0A}},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}
_OUR_COLOURS: Final = re.compile(rf"(\x1b\[(?:0|{'|'.join(sorted(set(COLOURS.values())))})m)")
_RESET: Final = "\x1b[0m"


def safe(text: str, *, colour: bool = False) -> str:
    """`text` as a terminal may have it: what agents and tools said cannot steer it. With `colour`, colours stay."""
    text = text.replace("\r\n", "\n")
    if not colour or "\x1b" not in text:
        return text.translate(_MARKS)
    parts = _OUR_COLOURS.split(text)
    parts[::2] = [part.translate(_MARKS) for part in parts[::2]]
    kept = "".join(parts)
    return kept if len(parts) == 1 or kept.endswith(_RESET) else kept + _RESET


def has_colour(stream: IO[str]) -> bool:
    """Whether colours are wanted there: a terminal that is not dumb, and no NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, colour: bool) -> str:
    """`text` in the colour of a status or style, if colours are wanted."""
    code = COLOURS.get(style, "")
    return f"\x1b[{code}m{safe(text)}{_RESET}" if colour and code else text


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
    """A value as a person reads it: texts as they are, the rest as indented JSON, cut when very long."""
    shown = plain if isinstance(plain, str) else json.dumps(plain, indent=2, ensure_ascii=False)
    if len(shown) <= VALUE_CHARS_MAX:
        return shown
    return f"{shown[:VALUE_CHARS_MAX]}…\n({len(shown)} characters; --json prints them all)"


def first_line(text: str, columns_max: int) -> str:
    """The first line, cut with a mark when it is longer or more lines follow."""
    line, newline, _ = text.strip().partition("\n")
    return cut(f"{line} …" if newline and line else line, columns_max)


def indented(text: str, prefix: str, *, lines_max: int) -> list[str]:
    """`prefix` and the text, its further lines below it; at most so many lines."""
    lines = text.strip().splitlines() or [""]
    if len(lines) > lines_max:
        lines[lines_max - 1 :] = [f"{lines[lines_max - 1]} …"]
    return [f"{' ' * len(prefix) if index else prefix}{line}" for index, line in enumerate(lines)]


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(line: str, columns_max: int) -> str:
    """A line in at most so many columns, with a mark where it was cut."""
    if columns(line) <= columns_max:
        return line
    kept = line[: max(0, columns_max - 1)]
    while kept and columns(kept) >= columns_max:
        kept = kept[:-1]
    return kept + "…"


def terminal_columns() -> int:
    """How wide lines may be."""
    return shutil.get_terminal_size((120, 40)).columns


def table(rows: Iterable[Sequence[str]], *, width: int | None = None) -> list[str]:
    """Aligned columns, two spaces apart; the last one is cut to the width (0: never), a very long first one too."""
    kept = [[safe(cell.replace("\n", " ")) for cell in row] for row in rows]
    if not kept:
        return []
    limit = terminal_columns() if width is None else width
    widths = [max(columns(row[column]) for row in kept) for column in range(len(kept[0]) - 1)]
    if limit and widths:
        others = sum(size + 2 for size in widths[1:]) + 2
        widths[0] = min(widths[0], max(FIRST_COLUMN_MIN, limit - others - LAST_COLUMN_MIN))
    return [_row(row, widths, limit) for row in kept]


def wrapped_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """As `table`, but what does not fit into the last column goes on below it."""
    import textwrap

    kept = [[safe(" ".join(cell.split())) if column else safe(cell) for column, cell in enumerate(row)] for row in rows]
    limit, lines = terminal_columns(), []
    for row, start in zip(kept, table([[*row[:-1], "|"] for row in kept], width=0), strict=True):
        begin = start[:-1]
        if limit - columns(begin) < WRAP_COLUMNS_MIN:
            lines += [begin.rstrip(), *textwrap.wrap(row[-1], limit, initial_indent="    ", subsequent_indent="    ")]
            continue
        first, *rest = textwrap.wrap(row[-1], limit - columns(begin)) or [""]
        lines += [(begin + first).rstrip(), *(" " * columns(begin) + line for line in rest)]
    return lines


def _row(row: list[str], widths: list[int], limit: int) -> str:
    start = ""
    for cell, size in zip(row[:-1], widths, strict=True):
        shown = cut(cell, size)
        start += shown + " " * (size - columns(shown) + 2)
    return (start + (cut(row[-1], max(LAST_COLUMN_MIN, limit - columns(start))) if limit else row[-1])).rstrip()
