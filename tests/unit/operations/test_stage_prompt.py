"""The text an agent is given."""

from __future__ import annotations

from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_prompt import (
    AMENDMENTS,
    CONTRACT,
    EARLIER_BYTES_MAX,
    continuation,
    earlier,
    keep_context,
    stage_prompt,
)


def test_the_parts_come_in_a_fixed_order():
    options = StageOptions.of({"reads": ["a.md", "b.md"], "previous": ["x"], "schema": {"type": "string"}})
    text = stage_prompt(options, "Do it.", "text")
    parts = ["Read these files first: a.md, b.md", "Do it.", "<result>\nx\n</result>", CONTRACT, "JSON Schema"]
    assert sorted(parts, key=text.index) == parts


def test_an_agent_that_knows_schemas_is_not_told_about_json_blocks():
    options = StageOptions.of({"schema": {"type": "string"}})
    assert "JSON" not in stage_prompt(options, "Do it.", "given")
    assert "JSON" not in continuation(options, "given")
    assert "JSON Schema" in continuation(options, "text")


def test_an_agent_with_our_tool_is_told_of_it_and_of_the_way_without_it():
    options = StageOptions.of({"schema": {"type": "string"}})
    for text in (stage_prompt(options, "Do it.", "tool"), continuation(options, "tool")):
        assert text.index("perdure_result") < text.index("fenced JSON block") < text.index("JSON Schema")
    assert "perdure_result" not in stage_prompt(StageOptions.of({}), "Do it.", "tool")


def test_the_contract_can_be_left_out():
    assert stage_prompt(StageOptions.of({"steering_contract": False}), "Do it.", "given") == "Do it."
    assert AMENDMENTS in CONTRACT


def test_the_place_of_earlier_results_is_filled_wherever_it_stands():
    options = StageOptions.of({"previous": "x", "steering_contract": False})
    assert stage_prompt(options, "A {previous} B", "given") == "A <result>\nx\n</result> B"
    plain = StageOptions.of({"steering_contract": False})
    assert stage_prompt(plain, "A {previous} B", "given") == "A {previous} B"


def test_what_was_said_before_is_bounded():
    text = earlier([("ask", "é" * EARLIER_BYTES_MAX)])
    assert len(text.encode()) < EARLIER_BYTES_MAX + 500
    assert "[... cut]" in text


def test_kept_lines_stand_between_marks_of_their_own():
    assert keep_context("a\nb").splitlines() == ["<keep-context>", "a", "b", "</keep-context>"]
