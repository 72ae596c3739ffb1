"""What counts as an answer."""

import pytest

from perdure.answers import normalise
from perdure.errors import InputInvalid

COLOURS = ("Red", "2", "Green ")


@pytest.mark.parametrize("answer", [True, " YES ", "y", "Approve", "confirm", "true"])
def test_yes_is_understood(answer):
    assert normalise("confirm", answer) is True


@pytest.mark.parametrize("answer", [False, "no", "N", " reject", "deny", "FALSE"])
def test_no_is_understood(answer):
    assert normalise("confirm", answer) is False


@pytest.mark.parametrize("answer", ["maybe", "", 1, None, []])
def test_a_confirmation_is_never_guessed(answer):
    with pytest.raises(InputInvalid, match="yes or no"):
        normalise("confirm", answer)


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [("red", "Red"), ("2", "2"), (2, "2"), (1, "Red"), ("3", "Green "), (" green", "Green "), ("1", "Red")],
)
def test_a_choice_goes_by_label_then_by_number(answer, chosen):
    assert normalise("select", answer, choices=COLOURS) == chosen


@pytest.mark.parametrize("answer", [True, 0, 4, "01", "blue", "", "-1", 1.0, None, "9" * 30, "²"])
def test_a_choice_that_is_none_is_refused_with_the_choices(answer):
    with pytest.raises(InputInvalid) as refused:
        normalise("select", answer, choices=COLOURS)
    assert refused.value.details["choices"] == list(COLOURS)


def test_choices_that_differ_only_in_case_go_by_the_exact_label():
    assert normalise("select", "a", choices=("A", "a")) == "a"
    assert normalise("select", "A", choices=("a", "A")) == "A"


def test_a_text_is_kept_as_it_is():
    assert normalise("input", "  two lines\n ") == "  two lines\n "
    assert normalise("editor", "") == ""
    with pytest.raises(InputInvalid, match="a text"):
        normalise("input", 3)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_a_form_takes_an_object_or_its_json_text():
    assert normalise("form", {"n": 1}, schema=SCHEMA) == {"n": 1}
    assert normalise("form", '{"n": 2}', schema=SCHEMA) == {"n": 2}


@pytest.mark.parametrize("answer", ["{", {"n": "x"}, {}, {"n": float("nan")}])
def test_a_form_that_does_not_fit_is_refused_with_the_schema(answer):
    with pytest.raises(InputInvalid) as refused:
        normalise("form", answer, schema=SCHEMA)
    assert refused.value.details["expected"] == SCHEMA
