"""Made-up values: whatever pydantic can ask for is answered, the same each time, and it validates."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import ipaddress
import json
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    RootModel,
    TypeAdapter,
    conlist,
    constr,
)

from perdure.agents.sample import Draws, SampleImpossible, sample


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Finding(Strict):
    file: str
    line: Annotated[int, Field(ge=1)]
    severity: Literal["high", "low"]
    note: str | None = None


class Findings(Strict):
    approved: bool
    problems: list[Finding]
    score: Annotated[int, Field(ge=1, le=20)]


class Numbers(Strict):
    any_int: int
    any_float: float
    tight: Annotated[float, Field(gt=0, lt=0.001)]
    negative: Annotated[int, Field(lt=-5)]
    even: Annotated[int, Field(multiple_of=2, gt=2, lt=6)]
    tenth: Annotated[float, Field(multiple_of=0.5, ge=1, le=2)]
    one: Annotated[float, Field(ge=3, le=3)]
    price: decimal.Decimal
    bounded_price: Annotated[decimal.Decimal, Field(ge=1, le=2)]


class Texts(Strict):
    short: Annotated[str, Field(max_length=3)]
    long: Annotated[str, Field(min_length=200)]
    exact: Annotated[str, Field(min_length=5, max_length=5)]
    key: Annotated[str, Field(pattern=r"^[A-Z]{2,5}-\d+$")]
    version: Annotated[str, Field(pattern=r"^v?\d+\.\d+(\.\d+)?(-rc\d)?$")]
    choice: Annotated[str, Field(pattern=r"^(feat|fix|docs)(\([a-z]+\))?: [^\n]{5,30}$")]
    mixed: constr(pattern=r"^\w[\w.-]*@(?:example|test)\.org$", max_length=40)  # type: ignore[valid-type]


class Formats(BaseModel):
    when: dt.datetime
    day: dt.date
    clock: dt.time
    length: dt.timedelta
    who: uuid.UUID
    who4: Annotated[uuid.UUID, Field()]
    address: ipaddress.IPv4Address
    address6: ipaddress.IPv6Address
    url: AnyUrl
    path: Path
    text: Json[Any]
    blob: bytes


class Lists(Strict):
    some: conlist(int, min_length=2, max_length=3)  # type: ignore[valid-type]
    none: conlist(int, max_length=0)  # type: ignore[valid-type]
    nested: list[list[Colour]]
    names: Annotated[list[str], Field(min_length=7)]


class Sets(BaseModel):
    flags: Annotated[set[bool], Field(min_length=2)]
    numbers: Annotated[set[Annotated[int, Field(ge=0, le=3)]], Field(min_length=4)]
    pair: tuple[int, str]
    many: tuple[int, ...]
    colours: frozenset[Colour]


class Maps(Strict):
    by_name: dict[str, int]
    by_colour: dict[Literal["red", "green"], list[Finding]]
    least: Annotated[dict[str, bool], Field(min_length=3)]
    anything: dict[str, Any]
    free: Any


class Tree(Strict):
    name: str
    children: list[Tree]


class Chain(Strict):
    next: Chain | None


class Leaf(Strict):
    kind: Literal["leaf"]
    value: int


class Both(Strict):
    kind: Literal["both"]
    left: Expression
    right: Expression


class Expression(RootModel[Annotated[Leaf | Both, Field(discriminator="kind")]]):
    pass


class Options(Strict):
    maybe: int | None
    either: int | str | list[bool] | None
    nothing: None
    only: Literal[7]
    aliased: Annotated[int, Field(alias="the-alias")]
    defaulted: Colour = Colour.RED
    described: Annotated[Finding, Field(description="a field with a reference and words")]


Both.model_rebuild()
SHAPES = [Findings, Numbers, Texts, Formats, Lists, Sets, Maps, Tree, Chain, Expression, Options]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_sample_validates_against_the_model_whose_schema_it_was_made_for(shape: type[BaseModel]) -> None:
    schema = shape.model_json_schema()
    for key in range(8):
        shape.model_validate_json(json.dumps(sample(schema, key)))


@given(seed=st.integers(), stage=st.text())
def test_any_seed_and_stage_name_give_a_valid_review(seed: int, stage: str) -> None:
    Findings.model_validate_json(json.dumps(sample(Findings.model_json_schema(), seed, stage)))


_LEAVES = st.sampled_from(
    [int, str, bool, float, Colour, Finding, Annotated[int, Field(ge=3, le=4)], Annotated[str, Field(max_length=2)]]
)
_TYPES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda t: list[t]),  # type: ignore[valid-type]
        inner.map(lambda t: dict[str, t]),  # type: ignore[valid-type]
        inner.map(lambda t: t | None if isinstance(t, type) else list[t]),
        st.tuples(inner, inner).map(lambda pair: tuple[pair]),  # type: ignore[valid-type]
    ),
    max_leaves=6,
)


@given(shape=_TYPES, seed=st.integers(0, 1000))
def test_a_sample_validates_for_any_composition_of_types(shape: Any, seed: int) -> None:
    adapter = TypeAdapter(shape)
    adapter.validate_json(json.dumps(sample(adapter.json_schema(), seed)))


def test_the_same_key_gives_the_same_sample_and_another_key_another_one() -> None:
    schema = Findings.model_json_schema()
    assert sample(schema, 1, "review") == sample(schema, 1, "review")
    assert len({json.dumps(sample(schema, 1, f"review-{n}")) for n in range(20)}) > 10


def test_samples_are_pinned_so_that_a_rehearsal_is_the_same_on_every_machine() -> None:
    assert [Draws("a", 1).below(1000), Draws("a", 2).below(1000)] == [898, 386]


def test_free_text_says_that_it_is_a_rehearsal() -> None:
    assert sample({"type": "string"}).startswith("rehearsal")


def test_both_branches_of_a_boolean_come_up() -> None:
    assert {sample({"type": "boolean"}, n) for n in range(20)} == {True, False}


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 5},
        {"type": "number", "exclusiveMinimum": 4, "maximum": 4},
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "#/$defs/Self", "$defs": {"Self": {"$ref": "#/$defs/Self"}}},
        {"type": "string", "pattern": "^(a)\\1b{3}$", "maxLength": 2},
        {"type": "string", "pattern": "("},
        {"anyOf": [False]},
    ],
)
def test_a_schema_without_a_value_is_refused_and_never_answered_wrongly(schema: Any) -> None:
    with pytest.raises(SampleImpossible):
        sample(schema)


def test_alternatives_may_be_plain_true_and_false() -> None:
    assert sample({"anyOf": [False, {"const": 3}]}) == 3
    assert isinstance(sample({"anyOf": [True]}), str)


def test_references_with_siblings_all_of_and_type_lists_are_followed() -> None:
    schema = {
        "$defs": {"Base": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"b": {"type": ["null", "string"]}}, "required": ["b"]}],
    }
    value = sample(schema)
    assert isinstance(value["a"], int)
    assert value["b"] is None or isinstance(value["b"], str)
