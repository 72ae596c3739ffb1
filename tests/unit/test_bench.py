from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # bench is no part of the installed package

from bench.cases import NAMES
from bench.peers import versus
from bench.row import Row, median_ratio, to_row, to_table, unmeasured, write_results


def test_more_is_better_when_the_goal_is_above_the_floor():
    rates = [Row(name="r", value=value, unit="1/s", goal=100, floor=50) for value in (49, 50, 99, 100)]
    assert [(row.ok, row.goal_met) for row in rates] == [(False, False), (True, False), (True, False), (True, True)]


def test_less_is_better_when_the_goal_is_below_the_floor():
    times = [Row(name="t", value=value, unit="ms", goal=6, floor=15) for value in (6, 7, 15, 16)]
    assert [(row.ok, row.goal_met) for row in times] == [(True, True), (True, False), (True, False), (False, False)]


def test_a_goal_without_a_floor_judges_nothing_but_the_goal():
    assert Row(name="x", value=6, unit="x", goal=5).goal_met is True
    few = Row(name="statements", value=4, unit="", goal=3, is_more_better=False)
    assert (few.ok, few.goal_met) == (None, False)


def test_what_cannot_be_measured_is_neither_good_nor_bad():
    row = unmeasured("memory", "needs /proc")
    assert (row.value, row.ok, row.goal_met, row.note) == (None, None, None, "needs /proc")


def test_the_ratio_is_the_median_of_neighbours_and_forgives_a_slow_minute():
    assert median_ratio([50, 5, 60], [100, 10, 100]) == 0.5
    with pytest.raises(ValueError, match="shorter"):
        median_ratio([1, 2], [1])


def test_the_results_hold_every_field_of_every_row(tmp_path):
    file = tmp_path / "results.json"
    write_results([Row(name="a", value=2.0, unit="x", goal=3, floor=1, baseline=4.0, ratio=0.5)], file)
    assert json.loads(file.read_text()) == [
        {"name": "a", "value": 2.0, "unit": "x", "goal": 3, "floor": 1, "baseline": 4.0, "ratio": 0.5, "note": "",
         "ok": True, "goal_met": False},
    ]  # fmt: skip


def test_a_row_survives_the_way_from_the_process_of_its_case():
    row = Row(name="a", value=2.0, unit="x", goal=3, is_more_better=False, note="n")
    assert to_row(json.loads(json.dumps(vars(row)))) == row


def test_the_table_has_a_line_for_each_row_and_names_what_misses_its_floor():
    rows = [
        Row(name="fast", value=12_345.0, unit="1/s", goal=10_000, floor=3_000),
        Row(name="slow", value=0.123, unit="x", goal=0.85, floor=0.6),
        unmeasured("gone", "no disk"),
    ]
    head, *lines = to_table(rows).splitlines()
    assert head.split()[:2] == ["name", "value"]
    assert [line.split()[0] for line in lines] == ["fast", "slow", "gone"]
    assert "12,345" in lines[0] and lines[0].endswith("goal")
    assert lines[1].endswith("BELOW FLOOR")
    assert "not measured" in lines[2] and lines[2].endswith("no disk")


def test_the_best_peer_is_the_best_of_those_as_shipped():
    steps = "sequential steps"
    rows = [
        Row(name=steps, value=1000.0, unit="1/s"),
        Row(name=f"peer dbos: {steps}", value=100.0, unit="1/s"),
        Row(name=f"peer burr: {steps}", value=250.0, unit="1/s"),
        Row(name=f"peer burr-wal: {steps}", value=2000.0, unit="1/s"),
        unmeasured("peer langgraph", "no network"),
    ]
    (best,) = versus.against_best(rows)
    assert (best.value, best.baseline, best.note, best.goal_met) == (4.0, 250.0, "burr", False)


def test_every_case_is_a_module():
    folder = Path(sys.modules["bench.cases"].__path__[0])
    assert {file.stem for file in folder.glob("*.py")} - {"__init__"} == set(NAMES)
