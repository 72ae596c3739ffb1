"""One line of the results: a figure, what it should be, and what the bare machine did in the same minute.

`value` is what is judged. Whether more or less is better follows from the goal and the floor; with one of them alone,
`is_more_better` says it. `ratio` compares the measured work with its baseline.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

COLUMNS = ("name", "value", "unit", "goal", "floor", "baseline", "ratio", "ok", "note")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure and its judgement. `value` None: it could not be measured here, and `note` says why."""

    name: str
    value: float | None
    unit: str
    goal: float | None = None
    floor: float | None = None
    baseline: float | None = None
    ratio: float | None = None
    note: str = ""
    is_more_better: bool = True

    @property
    def ok(self) -> bool | None:
        """Whether the floor is reached; None when there is no floor or no value."""
        return self._reaches(self.floor)

    @property
    def goal_met(self) -> bool | None:
        """Whether the goal is reached; None when there is no goal or no value."""
        return self._reaches(self.goal)

    def _reaches(self, mark: float | None) -> bool | None:
        if mark is None or self.value is None:
            return None
        more = self.is_more_better if self.goal is None or self.floor is None else self.goal > self.floor
        return self.value >= mark if more else self.value <= mark

    def to_dict(self) -> dict[str, Any]:
        """The row as results.json holds it."""
        fields = asdict(self)
        del fields["is_more_better"]
        return {**fields, "ok": self.ok, "goal_met": self.goal_met}


def unmeasured(name: str, reason: str) -> Row:
    """The row of something that cannot be measured here."""
    return Row(name=name, value=None, unit="", note=reason)


def to_row(fields: dict[str, Any]) -> Row:
    """A row that came from another process, as `vars` gave it."""
    return Row(**fields)


def median_ratio(measured: Sequence[float], baseline: Sequence[float]) -> float:
    """The median of the quotients of neighbours: a slow minute slows both sides of a pair."""
    return median(a / b for a, b in zip(measured, baseline, strict=True))


def to_table(rows: Iterable[Row]) -> str:
    """The rows for people."""
    lines = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    left = {0, 2, 7, 8}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (row.value, row.goal, row.floor, row.baseline, row.ratio)
    value, goal, floor, baseline, ratio = (_number(number) for number in numbers)
    return (row.name, value, row.unit, goal, floor, baseline, ratio, _verdict(row), row.note)


def _verdict(row: Row) -> str:
    if row.value is None:
        return "not measured"
    if row.ok is False:
        return "BELOW FLOOR"
    if row.goal_met is None:
        return ""
    if row.goal_met:
        return "goal"
    return "floor" if row.ok else "below goal"


def _number(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def write_results(rows: Iterable[Row], file: Path) -> None:
    """Replace the file by these rows."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps([row.to_dict() for row in rows], indent=1) + "\n", encoding="utf-8")
    fresh.replace(file)
