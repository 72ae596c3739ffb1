from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from perdure import values
from perdure.definitions import Workflow, normalise, workflow
from perdure.errors import DefinitionInvalid, InputInvalid, OutputInvalid, PayloadInvalid, UsageError


class Severity(Enum):
    low = "low"
    high = "high"


class Finding(BaseModel):
    path: str
    line: int = Field(default=1, alias="lineNumber")
    severity: Severity = Severity.low


class Report(BaseModel):
    approved: bool
    findings: list[Finding] = []


@dataclass
class Point:
    x: int
    y: float


@workflow
async def rich(
    ctx: Context,  # noqa: F821  the context's type is never looked up
    count: int,
    where: Path,
    day: date,
    level: Severity,
    point: Point,
    report: Report,
    pair: tuple[int, ...] = (1, 2),
    tag: Literal["a", "b"] | None = None,
    extra: Any = None,
) -> Report:
    """Takes everything.

    Second paragraph.
    """


GIVEN = {
    "count": 3,
    "where": Path("/tmp/x"),
    "day": date(2026, 1, 2),
    "level": Severity.high,
    "point": Point(1, 2.0),
    "report": Report(approved=True, findings=[Finding(path="a.py", lineNumber=7)]),
}


@workflow(name="Count_it now!", budget={"max_cost": 5.0})
async def counting(ctx, count: int, label: str = "x", ratio: float | None = None):
    """Count.

    Args:
        count (int): how many, at
            most
        label: what
            to print
    """


def problems_of(refusal: pytest.ExceptionInfo[Any]) -> dict[str, tuple[str, str]]:
    return {p["path"]: (p["expected"], p["got"]) for p in refusal.value.details["problems"]}


# --- decoration


def test_missing_hints_are_named_all_at_once():
    with pytest.raises(DefinitionInvalid) as refusal:

        @workflow
        async def bad(ctx, first, second, third: int): ...

    assert "`first`" in refusal.value.message
    assert "`second`" in refusal.value.message
    assert "third" not in refusal.value.message


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("async def f(ctx, *args: int): ...", "*args"),
        ("async def f(ctx, **more: int): ...", "**more"),
        ("async def f(ctx, a: int, /): ...", "`a`"),
        ("async def f(): ...", "ctx"),
        ("async def f(*, ctx): ...", "ctx"),
        ("def f(ctx): ...", "async def"),
    ],
)
def test_parameters_that_cannot_be_inputs_are_refused(source, named):
    names: dict[str, Any] = {}
    exec(source, names)
    with pytest.raises(DefinitionInvalid) as refusal:
        workflow(names["f"])
    assert named in refusal.value.message


@pytest.mark.parametrize(
    ("name", "normal"),
    [("fix_it", "fix-it"), ("  Fix  It ", "fix-it"), ("a--b__c", "a-b-c"), ("-Ä1!", "1"), ("ÄÖ", "")],
)
def test_names_are_normalised(name, normal):
    assert normalise(name) == normal


@given(st.text())
def test_normalising_twice_changes_nothing(name):
    assert normalise(normalise(name)) == normalise(name)


def test_a_name_without_letters_is_refused():
    async def body(ctx): ...

    with pytest.raises(DefinitionInvalid):
        workflow(body, name="__")  # type: ignore[call-overload]


def test_name_and_description_come_from_options_or_from_the_function():
    assert (counting.name, counting.description) == ("count-it-now", "Count.")
    assert (rich.name, rich.description) == ("rich", "Takes everything.")


@pytest.mark.parametrize(
    "options",
    [
        {"budget": {"max_costs": 1}},
        {"budget": {"max_tokens": 1.5}},
        {"budget": {"max_cost": float("nan")}},
        {"budget": {"max_cost": -1}},
        {"heartbeat_minutes": -1},
        {"max_depth": 0},
        {"worktree": ""},
        {"worktree": "a/b"},
        {"worktree": 3},
    ],
)
def test_wrong_options_are_refused(options):
    async def body(ctx): ...

    with pytest.raises(DefinitionInvalid):
        workflow(**options)(body)


def test_calling_a_workflow_says_how_to_run_it():
    with pytest.raises(UsageError, match=r"perdure run rich.*ctx\.workflow.*rehearse"):
        rich(None, 1)


# --- inputs


def test_inside_python_nothing_is_coerced():
    with pytest.raises(InputInvalid) as refusal:
        counting.validate_inputs({"count": "3"})
    assert problems_of(refusal) == {"count": ("a valid integer", "'3' (str)")}
    with pytest.raises(InputInvalid):
        counting.validate_inputs({"count": True})


def test_every_problem_is_listed_at_once():
    with pytest.raises(InputInvalid) as refusal:
        counting.validate_inputs({"labl": "x", "ratio": float("inf")})
    assert problems_of(refusal) == {
        "count": ("int", "nothing"),
        "labl": ("`label`", "`labl`"),
        "ratio": ("a value that JSON can hold", "an infinite number"),
    }
    assert "perdure inputs count-it-now" in refusal.value.message


def test_problems_inside_a_value_are_named_by_path():
    @workflow
    async def nested(ctx, reports: list[Report], level: int | str): ...

    with pytest.raises(InputInvalid) as refusal:
        nested.validate_stored({"reports": [{"approved": 1, "findings": [{}]}], "level": [1]})
    assert problems_of(refusal) == {
        "reports[0].approved": ("a valid boolean", "1 (int)"),
        "reports[0].findings[0].path": ("a value", "nothing"),
        "level": ("a valid integer or a valid string", "[1] (list)"),
    }


def test_non_finite_numbers_are_refused_deep_inside_models():
    @workflow
    async def deep(ctx, point: Point, anything: Any = None): ...

    for given_values in ({"point": Point(1, float("nan"))}, {"point": Point(1, 1.0), "anything": [float("inf")]}):
        with pytest.raises(InputInvalid):
            deep.validate_inputs(given_values)


def test_instances_pass_and_come_back_the_same_from_their_stored_form():
    validated = rich.validate_inputs(GIVEN)
    stored = values.load(values.dump(rich.dump_inputs(validated)))
    assert stored["level"] == "high"
    assert stored["report"]["findings"][0]["lineNumber"] == 7
    assert rich.validate_stored(stored) == validated
    assert rich.validate_inputs(validated) == validated
    assert list(validated) == [field.name for field in rich.input_fields()]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@workflow
async def anything(
    ctx,
    any_: Any = None,
    number: float = 0.0,
    maybe: int | str | None = None,
    listed: list[float] | None = None,
    table: dict[str, list[int]] | None = None,
): ...


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "any_": json_values,
            "number": st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False),
            "maybe": st.none() | st.integers() | st.text(),
            "listed": st.lists(st.integers(0, 9) | st.floats(0, 1), max_size=4),
            "table": st.dictionaries(st.text(max_size=2), st.lists(st.integers(), max_size=2), max_size=2),
        },
    )
)
def test_a_stored_input_is_restored_as_the_same_value_and_type(given_values):
    try:
        validated = anything.validate_inputs(given_values)
        stored = values.load(values.dump(anything.dump_inputs(validated)))
    except (InputInvalid, PayloadInvalid):
        return  # lone surrogates
    assert repr(anything.validate_stored(stored)) == repr({k: _sorted(v) for k, v in validated.items()})


def _sorted(value):
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def test_defaults_are_stored_and_mutable_ones_are_not_shared():
    @workflow
    async def with_list(ctx, items: list[str] = []): ...  # noqa: B006

    first = with_list.validate_inputs({})
    first["items"].append("x")
    assert with_list.validate_inputs({}) == {"items": []}


def test_a_default_that_does_not_fit_its_hint_is_an_invalid_definition():
    @workflow
    async def wrong(ctx, count: int = None): ...  # noqa: RUF013  the mistake under test

    for ask in (lambda: wrong.validate_inputs({}), wrong.input_fields, wrong.input_schema):
        with pytest.raises(DefinitionInvalid, match="count"):
            ask()


class OneWay(BaseModel):
    name: str = Field(validation_alias="read", serialization_alias="written")


class Larger(Finding):
    more: int = 3


@pytest.mark.parametrize(
    ("hint", "value"),
    [(OneWay, OneWay(read="x")), (SecretStr, SecretStr("x")), (Finding, Larger(path="a")), (bytes, b"\xff")],
)
def test_an_input_that_its_stored_form_would_not_bring_back_is_refused(hint, value):
    async def lossy(ctx, given): ...

    lossy.__annotations__["given"] = hint
    with pytest.raises(InputInvalid, match="given"):
        workflow(lossy).validate_inputs({"given": value})


def test_an_output_may_be_more_than_its_annotation():
    assert rich.validate_output(type("Longer", (Report,), {})(approved=True)) == {"approved": True, "findings": []}


# --- forms


def test_fields_say_type_default_and_description():
    count, label, ratio = counting.input_fields()
    assert (count.type, count.required, count.default, count.description) == ("int", True, None, "how many, at most")
    assert (label.type, label.required, label.default, label.description) == ("str", False, "x", "what to print")
    assert ratio.type == "float | None"


def test_descriptions_come_from_annotated_fields_and_from_rest_lines():
    @workflow
    async def described(ctx, a: Annotated[int, Field(description="from the field", gt=0)], b: str, c: str):
        """Do.

        :param a: not this
        :param str b: from the
            docstring
        :param c: other
        """

    assert [f.description for f in described.input_fields()] == ["from the field", "from the docstring", "other"]
    with pytest.raises(InputInvalid):
        described.validate_inputs({"a": 0, "b": "", "c": ""})


def test_the_schema_describes_all_inputs_with_shared_definitions():
    schema = rich.input_schema()
    assert schema["required"] == ["count", "where", "day", "level", "point", "report"]
    assert schema["properties"]["pair"]["default"] == [1, 2]
    assert schema["additionalProperties"] is False
    assert {"Report", "Finding", "Severity", "Point"} <= schema["$defs"].keys()


# --- output


def test_an_output_that_lacks_a_field_is_refused_with_its_path():
    with pytest.raises(OutputInvalid) as refusal:
        rich.validate_output({"approved": True, "findings": [{"lineNumber": 3}]})
    assert problems_of(refusal) == {"output.findings[0].path": ("a value", "nothing")}


def test_an_output_becomes_plain_json():
    report = Report(approved=True, findings=[Finding(path="a", severity=Severity.high)])
    plain = {"approved": True, "findings": [{"path": "a", "lineNumber": 1, "severity": "high"}]}
    assert rich.validate_output(report) == plain
    assert rich.validate_output({"approved": True, "findings": [{"path": "a", "severity": "high"}]}) == plain
    assert counting.validate_output({"any": [1, None]}) == {"any": [1, None]}


@pytest.mark.parametrize("value", [object(), float("nan"), (1,), {1: 2}, {"a": Path()}])
def test_without_an_annotation_the_output_is_any_json_value(value):
    with pytest.raises(OutputInvalid):
        counting.validate_output(value)


def test_an_output_of_another_type_names_both():
    with pytest.raises(OutputInvalid) as refusal:
        rich.validate_output("text")
    assert problems_of(refusal)["output"][1] == "'text' (str)"


# --- source


def test_a_definition_knows_its_file_and_digest():
    assert counting.source_file() == Path(__file__).resolve()
    assert counting.source_digest().startswith("h")
    assert counting.location() == str(Path(__file__).resolve())


def test_a_definition_without_a_file_has_no_digest():
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec("async def f(ctx): ...", names)
    made = workflow(names["f"])
    assert (made.source_file(), made.source_digest(), made.location()) == (None, "", "nowhere")


def test_a_workflow_is_frozen_and_is_itself_only():
    assert isinstance(rich, Workflow)
    assert {rich, counting} != {rich}
    with pytest.raises(AttributeError):
        rich.name = "other"  # type: ignore[misc]
