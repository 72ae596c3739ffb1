"""What may be stored, and in which text (spec/journal.md 3)."""

import json
import math
from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import values
from perdure.errors import LimitReached, PayloadInvalid

text = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
)


class Text(str):
    __slots__ = ()


class Number(IntEnum):
    ONE = 1


@given(plain)
def test_what_is_plain_comes_back_as_it_was(value):
    stored = values.dump(value)
    assert values.load(stored) == value
    assert stored == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert values.load(values.raw(value)) == value


@given(st.integers())
def test_integers_of_any_size_survive(number):
    assert values.load(values.dump({"n": number * 10**30})) == {"n": number * 10**30}


def test_the_text_does_not_depend_on_the_order_of_keys():
    assert (
        values.dump({"b": 1, "a": [True, None]})
        == values.dump({"a": [True, None], "b": 1})
        == '{"a":[true,null],"b":1}'
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ((1,), "value cannot be stored as JSON: got tuple."),
        ({"a": [1, {"b": math.nan}]}, "value.a[1].b cannot be stored as JSON: got NaN."),
        ([math.inf], "value[0] cannot be stored as JSON: got an infinite number."),
        ({1: 2}, "value cannot be stored as JSON: got the key 1."),
        ("\ud800", "value cannot be stored as JSON: got a lone surrogate."),
        ({"a": {"\udfff": 1}}, r"value.a cannot be stored as JSON: got the key '\udfff'."),
        ([Text("x")], "value[0] cannot be stored as JSON: got Text."),
        ([Number.ONE], "value[0] cannot be stored as JSON: got Number."),
        (b"x", "value cannot be stored as JSON: got bytes."),
        ({"a": {1}}, "value.a cannot be stored as JSON: got set."),
    ],
)
def test_what_is_not_plain_is_refused_with_its_place(value, problem):
    with pytest.raises(PayloadInvalid) as refused:
        values.dump(value)
    assert refused.value.message == problem


def test_cycles_are_refused_and_sharing_is_not():
    cycle = {"list": [1]}
    cycle["list"].append(cycle)
    with pytest.raises(PayloadInvalid, match="cycle"):
        values.dump(cycle)
    shared = [1]
    assert values.dump([shared, shared, {"a": shared}]) == '[[1],[1],{"a":[1]}]'


@pytest.mark.parametrize("depth", [49, 50, 51, 200])
def test_depth_is_no_reason_to_refuse(depth):
    value = "end"
    for _ in range(depth):
        value = [value]
    assert values.load(values.dump(value)) == value


def test_a_bad_leaf_below_the_fast_depth_is_found():
    value = (1,)
    for _ in range(80):
        value = {"a": value}
    with pytest.raises(PayloadInvalid, match="tuple"):
        values.dump(value)


def test_what_no_encoder_can_follow_is_refused():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(PayloadInvalid, match="nested too deeply"):
        values.dump(value)


def test_the_bound_counts_bytes():
    assert values.dump("é" * 10, bytes_max=22)
    with pytest.raises(LimitReached):
        values.dump("é" * 10, bytes_max=21)


def test_equal_calls_have_equal_digests_and_other_calls_others():
    assert values.digest("tool", {"a": 1, "b": 2}) == values.digest("tool", {"b": 2, "a": 1})
    assert values.digest("tool", {"a": 1}) != values.digest("tool", {"a": True})
    assert values.digest(1, 2) != values.digest([1, 2])
    assert len(values.digest()) == 33


def test_a_digest_is_the_same_in_every_release():
    assert values.digest("tool", "fetch", {"url": "é", "n": 10**20}) == "h" + DIGEST


DIGEST = "571302612c70fcbcf13ed9547743ece7"


# --- redaction


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Authorization: Bearer abcdefghij", "Authorization: Bearer [redacted]"),
        ('{"api_key": "abc"}', '{"api_key": "[redacted]"}'),
        ("password=hunter2&x=1", "password=[redacted]&x=1"),
        ("https://user:pass@host/path", "https://[redacted]@host/path"),
        ("key sk-abcdefghijklmnop end", "key [redacted key] end"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_are_taken_out_and_doing_it_again_changes_nothing(before, after):
    assert values.redact(before) == after
    assert values.redact(after) == after


def test_secrets_of_the_environment_are_taken_out(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "correct-horse")
    assert values.redact("it was correct-horse") == "it was [redacted]"


def test_long_text_is_cut_at_its_beginning():
    assert values.bounded("a" * 100 + "end", 10) == "[... cut]\naaaaaaaend"
    assert values.bounded("short", 10) == "short"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["a" * 200_000, "a-" * 50_000, "http://" * 20_000, "token" * 20_000, "sk-" * 30_000])
def test_redacting_a_hostile_text_takes_time_in_proportion_to_it(text):
    """The patterns once took minutes on a long word; at most the timeout of this test is allowed here."""
    assert "token=abc" not in values.redact(text + " token=abc")
