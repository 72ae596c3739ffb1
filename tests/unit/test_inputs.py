from __future__ import annotations

from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perdure.definitions import workflow
from perdure.errors import InputInvalid


class Severity(Enum):
    low = "low"
    high = "high"


class Report(BaseModel):
    approved: bool
    findings: list[str] = []


def problems_of(refusal: pytest.ExceptionInfo[Any]) -> dict[str, tuple[str, str]]:
    return {p["path"]: (p["expected"], p["got"]) for p in refusal.value.details["problems"]}


@workflow
async def counted(ctx, count: int, label: str = "x", ratio: float | None = None): ...


@workflow
async def typed(
    ctx,
    count: int = 0,
    ratio: float = 0.0,
    sure: bool = False,
    name: str = "",
    level: Severity = Severity.low,
    where: Path = Path(),
    by_day: date | None = None,
    either: int | str = 0,
    items: list[str] = [],  # noqa: B006
    report: Report | None = None,
    free: Any = None,
): ...


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("count=3", "count", 3),
        ("ratio=3", "ratio", 3.0),
        ("ratio=1e-3", "ratio", 0.001),
        ("sure=yes", "sure", True),
        ("sure=False", "sure", False),
        ("name=3", "name", "3"),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
        ('name="a"', "name", '"a"'),
        ('name:="@x"', "name", "@x"),
        ("level=high", "level", Severity.high),
        ("where=/a/b", "where", Path("/a/b")),
        ("by_day=2026-01-02", "by_day", date(2026, 1, 2)),
        ("by_day=null", "by_day", None),
        ("either=3", "either", 3),
        ("either=x", "either", "x"),
        ('items=["a"]', "items", ["a"]),
        ('report={"approved": true}', "report", Report(approved=True)),
        ("free=[1]", "free", [1]),
        ("free=word", "free", "word"),
    ],
)
def test_text_is_read_by_the_type_of_its_parameter(assignment, key, value):
    parsed = typed.parse_text([assignment])
    assert parsed[key] == value
    assert type(parsed[key]) is type(value)
    assert typed.validate_inputs(parsed) == parsed


def test_problems_of_text_are_listed_at_once():
    with pytest.raises(InputInvalid) as refusal:
        counted.parse_text(["label", "ratio=nan", "countt=3", "label:=["])
    assert set(problems_of(refusal)) == {"label", "ratio", "countt", "count"}
    assert problems_of(refusal)["ratio"] == ("float | None", "'nan'")


def test_a_hyphen_in_a_key_stands_for_an_underscore():
    assert typed.parse_text(["by-day=null"])["by_day"] is None


def test_inputs_come_from_files_and_assignments_win(tmp_path):
    (tmp_path / "all.json").write_text('{"count": 1, "name": "file"}')
    (tmp_path / "text.md").write_text("# Plan\n")
    parsed = typed.parse_text(["count=2", f"name=@{tmp_path}/text.md"], tmp_path / "all.json")
    assert (parsed["count"], parsed["name"]) == (2, "# Plan\n")


@pytest.mark.parametrize("content", [None, "[1]", "{", '{"count": NaN}', '{"count": "1"}'])
def test_a_file_that_is_missing_or_no_object_is_one_problem(tmp_path, content):
    if content is not None:
        (tmp_path / "all.json").write_text(content)
    with pytest.raises(InputInvalid) as refusal:
        typed.parse_text([], tmp_path / "all.json")
    assert len(refusal.value.details["problems"]) == 1
    with pytest.raises(InputInvalid):
        typed.parse_text([f"name=@{tmp_path}/gone"])
