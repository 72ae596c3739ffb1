from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from perdure.definitions import schema_of
from perdure.errors import DefinitionInvalid, OutputInvalid


class Report(BaseModel):
    approved: bool
    findings: list[str] = []


@dataclass
class Point:
    x: int
    y: float


def problems_of(refusal: pytest.ExceptionInfo[Any]) -> dict[str, tuple[str, str]]:
    return {p["path"]: (p["expected"], p["got"]) for p in refusal.value.details["problems"]}


@pytest.mark.parametrize(
    ("wanted", "good", "typed_value", "bad"),
    [
        (Report, {"approved": True}, Report(approved=True), {"approved": "yes"}),
        (Point, {"x": 1, "y": 2}, Point(1, 2.0), {"x": 1}),
        (list[int], [1], [1], ["1"]),
        (Literal["a", "b"], "a", "a", "c"),
        ({"type": "object", "required": ["a"]}, {"a": 1}, {"a": 1}, {}),
    ],
)
def test_a_schema_accepts_the_answers_that_fit(wanted, good, typed_value, bad):
    schema, validate = schema_of(wanted)
    assert isinstance(schema, dict)
    assert validate(good) == typed_value
    with pytest.raises(OutputInvalid, match="answer") as refusal:
        validate(bad)
    assert refusal.value.details["problems"]


def test_a_json_schema_names_every_problem_by_path():
    _, validate = schema_of({"properties": {"a": {"type": "integer"}, "b": {"items": {"type": "string"}}}})
    with pytest.raises(OutputInvalid) as refusal:
        validate({"a": "x", "b": ["ok", 1]})
    assert set(problems_of(refusal)) == {"answer.a", "answer.b[1]"}


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"$ref": "http://example.com/schema.json"}, {"x": object()}])
def test_a_schema_that_is_none_or_lies_elsewhere_is_refused(schema):
    with pytest.raises(DefinitionInvalid, match="outside the schema" if "$ref" in schema else "schema"):
        schema_of(schema)


def test_a_type_that_cannot_be_stored_is_refused():
    with pytest.raises(DefinitionInvalid):
        schema_of(asyncio.Lock)


def test_plain_types_are_checked_without_importing_pydantic():
    source = """
import sys
from typing import Literal
from perdure.definitions import tool, workflow
@tool
def t(a: str, b: list[int]) -> dict[str, float]: ...
@workflow
async def w(ctx, issue: str, rounds: int = 2, mode: Literal['a', 'b'] = 'a') -> dict: ...
w.validate_inputs(w.parse_text(["issue=x", "rounds=3", "mode=b"]))
w.validate_output({"a": [1]})
t.decode_result(t.encode_result({"x": t.bind(("a", [1]), {})["b"][0] / 2}))
assert "pydantic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", source], check=True)
