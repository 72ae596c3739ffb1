"""Rehearsal scripts: found by name, then by pattern; wrong ones are refused with every problem named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from perdure.agents.script import ScriptTurn, load_script
from perdure.agents.session import TurnUsage
from perdure.errors import ConfigInvalid

TOML = """
[implement]
text = "Done."
files = { "src/fix.py" = "x = 1" }
commands = [["git", "add", "-A"]]

[["review-*"]]
value = { approved = false }
[["review-*"]]
value = { approved = true }

[review-risk]
fail = { code = "rate_limited" }
delay = 2
usage = { tokens_in = 9, tokens_out = 1, cost_nanos = 5 }
"""


def text_of(turn: ScriptTurn | None) -> Any:
    assert turn is not None
    return turn.value if turn.value is not UNSET else turn.text


def test_a_toml_file_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text(TOML)
    script = load_script(path)
    implement, risk = script.turn("implement", 0), script.turn("review-risk", 0)
    assert implement == ScriptTurn(text="Done.", files={"src/fix.py": "x = 1"}, commands=(("git", "add", "-A"),))
    assert risk is not None
    assert risk.fail is not None
    assert (risk.fail.code, risk.delay, risk.usage) == ("rate_limited", 2.0, TurnUsage(9, 1, 5))


def test_a_json_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"plan": {"text": "A plan."}}))
    assert text_of(load_script(str(path)).turn("plan", 0)) == "A plan."


def test_the_name_itself_goes_before_patterns_and_patterns_go_in_order() -> None:
    script = load_script({"*": {"text": "any"}, "a*": {"text": "a-any"}, "abc": {"text": "exact"}})
    assert [text_of(script.turn(name, 0)) for name in ("abc", "ab", "x")] == ["exact", "any", "any"]


def test_turns_are_taken_in_order_and_the_last_one_serves_the_rest() -> None:
    script = load_script({"review": [{"text": "no"}, {"text": "yes"}]})
    assert [text_of(script.turn("review", n)) for n in range(4)] == ["no", "yes", "yes", "yes"]


def test_a_stage_without_an_entry_has_no_turn() -> None:
    assert load_script({"a": {}}).turn("b", 0) is None
    assert load_script(None).turn("b", 0) is None


def test_a_value_of_null_is_a_value() -> None:
    turn = load_script({"a": {"value": None}}).turn("a", 0)
    assert turn is not None
    assert turn.value is None


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"txt": "x"}, "did you mean 'text'"),
        ({"zzz": "x"}, "known: text, value"),
        ({"text": 3}, "a.text: expected a text"),
        ({"files": {"../out": "x"}}, "'../out' must be a relative path"),
        ({"files": {"/etc/x": "x"}}, "'/etc/x' must be a relative path"),
        ({"files": {"x": 1}}, "a table of path = text"),
        ({"commands": ["ls"]}, "a list of argument lists"),
        ({"commands": [[]]}, "a list of argument lists"),
        ({"delay": -1}, "expected seconds"),
        ({"delay": True}, "expected seconds"),
        ({"delay": float("nan")}, "expected seconds"),
        ({"fail": "boom"}, "{ code ="),
        ({"usage": {"tokens": 1}}, "tokens_in"),
        ({"usage": {"tokens_in": -1}}, "not negative"),
        ({"value": float("inf")}, "cannot be stored as JSON"),
        ([], "a: the list of turns is empty"),
        ("text", "a: expected a table"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(entry: Any, said: str) -> None:
    with pytest.raises(ConfigInvalid, match="not a valid rehearsal script") as caught:
        load_script({"a": entry})
    assert said in caught.value.message


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_script({"a": {"txt": "x", "delay": -1}, "b": [{"text": 1}]})
    assert len(caught.value.details["problems"]) == 3


@pytest.mark.parametrize(
    ("name", "content"), [("s.toml", "a = ["), ("s.json", "{"), ("s.json", "[1]"), ("s.toml", None)]
)
def test_a_file_that_cannot_be_read_or_parsed_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigInvalid, match=name):
        load_script(tmp_path / name)
