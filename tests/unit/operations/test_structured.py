"""The one JSON value of a message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from perdure.agents.session import Turn
from perdure.operations.structured import AnswerUnfit, correction, parse, value_of
from perdure.shapes import schema_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    json_values,
    st.sampled_from(["```json\n{}\n```", "Well.\n\n```json\n{}\n```\nBye.", "~~~\n{}\n~~~", "{}", "\n {}\n"]),
)
def test_every_value_is_found_in_every_usual_form(value, form):
    text = json.dumps(value)
    assert parse(form.replace("{}", text)) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I think it is fine.", "no fenced JSON block"),
        ("", "no fenced JSON block"),
        ("```json\n1\n```\n```json\n2\n```", "2 fenced JSON blocks"),
        ("```\n1\n```\n```\n2\n```", "2 fenced JSON blocks"),
        ("```python\nprint()\n```", "no fenced JSON block"),
        ("```json\n{'a': 1}\n```", "cannot be parsed"),
        ("```json\nNaN\n```", "NaN is not JSON"),
        ("```json\n" + "[" * 100_000 + "\n```", "cannot be parsed"),
        ('{"a": 1} and more', "cannot be parsed"),
    ],
)  # fmt: skip
def test_a_message_without_one_value_is_refused_saying_why(text, said):
    with pytest.raises(AnswerUnfit, match=said):
        parse(text)


def test_the_block_marked_as_json_is_taken_among_other_blocks():
    assert parse("```python\nx\n```\n```json\n[1]\n```\n```\nls\n```") == [1]


def test_a_fence_inside_a_text_does_not_end_a_longer_fence():
    assert parse('````json\n{"a": "x"}\n````') == {"a": "x"}


def test_the_value_beside_the_message_goes_before_the_text_of_one_that_knows_schemas():
    _, typed = schema_of(int)
    assert value_of(Turn("end_turn", "7", 8), typed, "given") == 8
    assert value_of(Turn("end_turn", "7", 8), typed, "text") == 7
    assert value_of(Turn("end_turn", "7", UNSET), typed, "given") == 7


def test_a_value_that_does_not_fit_is_refused_with_its_place():
    _, typed = schema_of(list[int])
    with pytest.raises(AnswerUnfit, match=r"answer\[1\]") as refusal:
        value_of(Turn("end_turn", '[1, "x"]'), typed, "text")
    assert "answer[1]" in correction(refusal.value, "given")


def test_without_a_handed_in_value_the_text_is_looked_at_and_the_refusal_names_the_tool():
    _, typed = schema_of(int)
    assert value_of(Turn("end_turn", "Done.", 8), typed, "tool") == 8
    assert value_of(Turn("end_turn", "7", UNSET), typed, "tool") == 7
    with pytest.raises(AnswerUnfit, match="tool perdure_result") as refusal:
        value_of(Turn("end_turn", "Done.", UNSET), typed, "tool")
    assert "with the tool perdure_result" in correction(refusal.value, "tool")
    assert "fenced JSON block" in correction(refusal.value, "text")
