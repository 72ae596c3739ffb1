"""`perdure_result` by itself: what it takes, how often, and what it says."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import UNSET
from pydantic import BaseModel

from perdure.operations.result_tool import ResultTool
from perdure.operations.structured import CORRECTIONS_MAX
from perdure.shapes import schema_of


class Part(BaseModel):
    name: str


class Whole(BaseModel):
    parts: list[Part]


def tool_of(wanted):
    tool = ResultTool(*schema_of(wanted))
    tool.begin_turn()
    return tool


def call(tool, **arguments):
    return asyncio.run(tool.call(arguments))


def test_the_fields_of_an_object_are_the_arguments():
    tool = tool_of(Whole)
    assert tool.input_schema["properties"].keys() == {"parts"}
    assert not call(tool, parts=[{"name": "a"}]).is_error
    assert tool.value == {"parts": [{"name": "a"}]}


@pytest.mark.parametrize(
    ("wanted", "value"),
    [(list[Part], [{"name": "a"}]), (int, 7), ({"enum": ["yes", "no"]}, "no"), (Whole | Part, {"name": "a"})],
)
def test_what_is_no_object_is_wrapped_and_references_still_hold(wanted, value):
    tool = tool_of(wanted)
    assert tool.input_schema["type"] == "object"
    assert tool.input_schema["required"] == ["value"]
    assert "$defs" not in tool.input_schema["properties"]["value"]
    assert call(tool, other=1).is_error
    assert tool.value is UNSET
    assert not call(tool, value=value).is_error
    assert tool.value == value


def test_one_value_counts_a_turn_and_a_new_turn_takes_a_new_one():
    tool = tool_of(int)
    assert not call(tool, value=1).is_error
    again = call(tool, value=2)
    assert again.is_error
    assert "counts" in again.text
    assert tool.value == 1
    tool.begin_turn()
    assert tool.value is UNSET
    assert not call(tool, value=2).is_error


def test_an_unfit_value_is_refused_with_its_place_until_the_corrections_are_used_up():
    tool = tool_of(Whole)
    for _ in range(CORRECTIONS_MAX):
        refused = call(tool, parts=[{"name": 3}])
        assert "answer.parts[0].name" in refused.text
        assert "call again" in refused.text
    last = call(tool, parts=[{"name": 3}])
    assert "last" in last.text
    late = call(tool, parts=[{"name": "fits"}])
    assert late.is_error
    assert tool.value is UNSET


def test_what_cannot_be_stored_is_refused():
    tool = tool_of({"type": "number"})
    assert call(tool, value=float("nan")).is_error
    assert tool.value is UNSET
