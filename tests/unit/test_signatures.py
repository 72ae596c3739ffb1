from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from perdure.definitions import workflow
from perdure.errors import DefinitionInvalid, PayloadInvalid, UsageError
from perdure.signatures import Signature, docstring_parameters


class Point(BaseModel):
    x: int


def plain(a, b=1): ...
def keyword_only(a, *, b, c=2): ...
def open_ended(a, /, *more, b=1, **rest): ...
def nothing(): ...


def takes_point(point: Point) -> Point: ...


class Callable:
    def __call__(self, point: Point) -> Point: ...

    def method(self, point: Point) -> Point: ...


@wraps(takes_point)
def wrapper(*args, **kwargs): ...


calls = st.tuples(
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from("abcd"), st.integers(), max_size=3),
)


@pytest.mark.parametrize("fn", [plain, keyword_only, open_ended, nothing])
@given(call=calls)
def test_binding_agrees_with_python(fn, call):
    args, kwargs = call
    try:
        expected: dict[str, Any] | None = dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except TypeError:
        expected = None
    signature = Signature(fn, "tool x")
    if expected is None:
        with pytest.raises(UsageError, match="tool x"):
            signature.bind(args, kwargs)
        return
    if "more" in expected:
        expected["more"] = list(expected["more"])
    assert signature.bind(args, kwargs) == expected


@pytest.mark.parametrize("fn", [takes_point, partial(takes_point), Callable(), Callable().method, wrapper])
def test_hints_are_found_where_the_function_was_written(fn):
    signature = Signature(fn, "x")
    assert signature.bind((Point(x=1),), {}) == {"point": {"x": 1}}
    assert signature.returns.hint is Point
    with pytest.raises(PayloadInvalid, match="point"):
        signature.bind(({"x": 1},), {})


def test_the_first_parameters_can_be_left_out():
    assert [p.name for p in Signature(plain, "x", skip=1).parameters] == ["b"]


def test_a_hint_that_cannot_be_resolved_names_its_parameter_on_first_use():
    @workflow
    async def lost(ctx, fine: int, gone: Nowhere): ...  # noqa: F821

    with pytest.raises(DefinitionInvalid, match=r"`gone` of lost.*Nowhere"):
        lost.validate_inputs({"fine": 1})


def test_hints_may_name_types_local_to_a_function():
    class Local(BaseModel):
        a: int

    @workflow
    async def inner(ctx, given: Local) -> Local: ...

    assert inner.validate_inputs({"given": Local(a=1)}) == {"given": Local(a=1)}


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        ("Do.", {}),
        (
            "Do.\n\nArgs:\n    a: one\n    b (int): two\n        more\n\n    *c: three\n\nReturns:\n    d: no",
            "abc",
        ),
        ("Do.\n\nArguments:\n  a: one", "a"),
        ("Do.\n\n:param a: one\n:param int b: two\n    more\n:returns: no", "ab"),
        ("Args:\n    a: one\nNotes: b: no", "a"),
    ],
)
def test_descriptions_are_read_from_docstrings(doc, found):
    texts = {"a": "one", "b": "two more", "c": "three"}
    assert docstring_parameters(doc) == {name: texts[name] for name in found}
