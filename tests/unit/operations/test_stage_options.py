"""StageOptions: what is accepted, what is refused and how, what goes into the digest."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from perdure.errors import NotAvailable, PayloadInvalid, UsageError
from perdure.operations.results import TaskResult
from perdure.operations.stage_options import StageOptions


class Plan(BaseModel):
    steps: list[str]


def test_an_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="'idle_timeout'"):
        StageOptions.of({"idle_timout": 3})
    with pytest.raises(UsageError, match="Options: agent, base"):
        StageOptions.of({"zzz": 3})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("agent", ""), ("agent", 3), ("model", []), ("fallback_models", "one"), ("fallback_models", [1]),
        ("context", "new"), ("context", []), ("fork_from", 3), ("reads", "a.md"), ("reads", [3]), ("output", 3),
        ("cwd", ""),
        ("output", "a\0b"), ("output_mode", "both"), ("tools", "read"), ("timeout", True), ("timeout", -1),
        ("timeout", "5"),
        ("idle_timeout", float("inf")), ("max_output", 1.5), ("max_output", 0), ("previous", 3), ("previous", [3]),
        ("steering_contract", 1), ("label", 3),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused_naming_the_option(name, given):
    with pytest.raises(UsageError, match=f"The option {name} takes") as refusal:
        StageOptions.of({name: given})
    assert type(refusal.value) is UsageError


@pytest.mark.parametrize("name", ["mcp", "group"])
def test_what_is_to_come_is_refused_unless_it_says_none(name):
    with pytest.raises(NotAvailable, match="later version"):
        StageOptions.of({name: "x"})
    assert StageOptions.of({name: None}).written == {}


def test_options_that_need_each_other_are_checked_together():
    with pytest.raises(UsageError, match="fork"):
        StageOptions.of({"fork_from": "a"})
    with pytest.raises(UsageError, match="output="):
        StageOptions.of({"output_mode": "file"})


def test_the_digest_holds_what_was_written_and_nothing_else():
    plain = StageOptions.of({})
    assert plain.digest("stage", "a", "p") == StageOptions.of({"model": None, "label": "shown"}).digest(
        "stage", "a", "p"
    )
    assert plain.digest("stage", "a", "p") != plain.digest("stage", "a", "q")
    for given in ({"model": "m"}, {"timeout": 5}, {"schema": Plan}, {"reads": ["a"]}, {"idle_timeout": 600.0}):
        assert StageOptions.of(given).digest("stage", "a", "p") != plain.digest("stage", "a", "p")
    assert StageOptions.of({"cwd": Path("sub")}).written == {"cwd": "sub"}


def test_a_result_before_counts_by_its_name_and_text_not_by_where_it_came_from():
    live = TaskResult(name="a", text="t", replayed=False, session_id="1")
    replayed = TaskResult(name="a", text="t", replayed=True, session_id="1")
    one, other = StageOptions.of({"previous": live}), StageOptions.of({"previous": [replayed]})
    assert one.previous == other.previous == (("a", "t"),)
    assert one.digest("stage", "b", "p") == other.digest("stage", "b", "p")


def test_a_schema_is_kept_as_json_schema_and_as_what_makes_the_typed_value():
    options = StageOptions.of({"schema": Plan})
    assert options.schema["properties"]["steps"]["type"] == "array"
    assert options.typed({"steps": ["a"]}) == Plan(steps=["a"])


def test_text_that_cannot_be_stored_is_refused_at_the_call():
    with pytest.raises(PayloadInvalid):
        StageOptions.of({"previous": "\ud800"})


@pytest.mark.parametrize(
    ("given", "written"),
    [("fix", "fix"), (True, True), (Path("../other"), {"path": "../other"}), ("v1.2_x-y", "v1.2_x-y")],
)
def test_a_worktree_is_a_name_a_path_or_true(given, written):
    options = StageOptions.of({"worktree": given})
    assert options.worktree == given
    assert options.written == {"worktree": written}


@pytest.mark.parametrize("given", ["", "a/b", "../x", ".hidden", "-x", "a..b", "x.lock", "x.", "a b", "x" * 65, 3, "ü"])
def test_a_worktrees_name_is_good_for_a_folder_and_a_branch(given):
    with pytest.raises(UsageError, match="worktree takes a name"):
        StageOptions.of({"worktree": given})


def test_no_worktree_is_no_option():
    assert StageOptions.of({"worktree": False}) == StageOptions.of({})


def test_a_base_needs_a_worktree():
    assert StageOptions.of({"worktree": "fix", "base": "HEAD~1"}).base == "HEAD~1"
    for worktree in (None, False):
        with pytest.raises(UsageError, match="base= needs worktree="):
            StageOptions.of({"base": "main", "worktree": worktree})
