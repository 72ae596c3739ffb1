"""Shapes: a type an author wrote, seen as JSON.

A shape checks a value strictly (nothing is coerced), gives the plain JSON that is stored for it, and restores the typed
value from that. The law it keeps: `restore(dump(value))` is what the first run saw. Values that fit a plain JSON type
exactly pass without pydantic, whose import costs more than a whole small run; pydantic then explains what does not fit.
"""

# ruff: noqa: PLC0415  pydantic and jsonschema-rs are imported when first needed

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal

from perdure import values
from perdure.errors import DefinitionInvalid, ExtraMissing, OutputInvalid, PayloadInvalid

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

GOT_CHARS_MAX: Final = 80

Problem = dict[str, str]  # path, expected, got, message
Validator = Callable[[Any], Any]

_SCALARS: Final = (str, int, bool, type(None))
_LEAVES: Final = (Any, float, list, dict, *_SCALARS)


class Shape:
    """One type; `where` names its owner in errors, such as "parameter `count` of review"."""

    def __init__(self, hint: Any, where: str = "type") -> None:
        self.hint = type(None) if hint is None else hint
        self.where = where
        self.is_plain = _is_plain(self.hint)  # only JSON types: what goes in is what is stored

    def take(self, value: Any, path: str, *, to_keep: bool = False) -> tuple[Any, list[Problem]]:
        """The typed value of one that Python code gave, or the problems: strict, so "3" is not an int.

        `to_keep` also refuses what its stored form would not bring back: a secret, an instance of a subclass.
        """
        if self.is_plain and _fits(self.hint, value):
            return value, []
        typed, problems = self._validated(lambda: self.adapter.validate_python(value, strict=True), value, path)
        if to_keep and not problems and not self.is_plain:
            again, problems = self.restore(self.dump(typed, path), path)
            if not problems and again != typed:
                problems = [
                    problem(path, f"exactly what the JSON form of {type_text(self.hint)} can hold", got_text(value))
                ]
        return typed, problems

    def restore(self, plain: Any, path: str) -> tuple[Any, list[Problem]]:
        """The typed value of a plain JSON one, or the problems."""
        if self.is_plain and _fits(self.hint, plain):
            return plain, []
        try:
            text = values.dump(plain, what=path)
        except PayloadInvalid as refusal:
            return None, [_refused(refusal)]
        return self._validated(lambda: self.adapter.validate_json(text, strict=True), plain, path)

    def dump(self, value: Any, what: str = "value") -> Any:
        """The plain JSON stored for a value of this type. Raises PayloadInvalid when it is not of this type."""
        if self.is_plain:
            return value
        try:
            return self.adapter.dump_python(value, mode="json", by_alias=True, round_trip=True, warnings="error")
        except ValueError as problem:  # pydantic's own, and text that is not UTF-8
            raise PayloadInvalid(
                f"{what} cannot be stored as {type_text(self.hint)}: got {got_text(value)}. Pass one of that type or "
                "change the annotation.",
                path=what,
                expected=type_text(self.hint),
                got=got_text(value),
            ) from problem

    def schema(self) -> dict[str, Any]:
        """The JSON Schema."""
        return self.adapter.json_schema()

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """pydantic's view of the type. Raises DefinitionInvalid when pydantic cannot handle it."""
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

        try:
            return TypeAdapter(self.hint)
        except (PydanticUserError, PydanticUndefinedAnnotation) as problem:
            said = str(problem).split("\n", 1)[0]
            raise DefinitionInvalid(
                f"{self.where}: {type_text(self.hint)} cannot be checked or stored. {said}", got=type_text(self.hint)
            ) from problem

    def _validated(self, validate: Callable[[], Any], value: Any, path: str) -> tuple[Any, list[Problem]]:
        from pydantic import ValidationError

        try:
            typed = validate()
        except ValidationError as refusal:
            return None, explain(refusal, value, path)
        try:
            values.check(self.dump(typed, path), path)
        except PayloadInvalid as refusal:
            return None, [_refused(refusal)]
        return typed, []


def schema_of(wanted: Any) -> tuple[dict[str, Any], Validator]:
    """The JSON Schema of a type (or of a JSON Schema dict), and what turns a plain JSON answer into the typed value.

    The validator raises OutputInvalid listing every problem. DefinitionInvalid when `wanted` is no usable schema.
    """
    if isinstance(wanted, Mapping):
        schema = dict(wanted)
        return schema, _schema_validator(schema)
    shape = Shape(wanted, "schema")

    def validate(answer: Any) -> Any:
        typed, problems = shape.restore(answer, "answer")
        check_none(problems, "The answer does not fit the schema")
        return typed

    return shape.schema(), validate


def check_none(problems: list[Problem], sentence: str) -> None:
    """Raise OutputInvalid if there are problems."""
    if problems:
        raise OutputInvalid(f"{sentence}: {summary(problems)}.", problems=problems)


def summary(problems: list[Problem]) -> str:
    """All problems on one line."""
    return "; ".join(problem["message"] for problem in problems)


def problem(path: str, expected: str, got: str) -> Problem:
    """One thing that does not fit, for people and for programs."""
    return {"path": path, "expected": expected, "got": got, "message": f"{path}: expected {expected}, got {got}"}


def type_text(hint: Any) -> str:
    """A type as its author would write it: `list[str]`, `Findings`."""
    if typing.get_origin(hint) is typing.Annotated:
        return type_text(typing.get_args(hint)[0])
    if hint is type(None):
        return "None"
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return hint.__qualname__.rpartition("<locals>.")[2]
    return re.sub(r"(?<!['\w.])(?:[A-Za-z_]\w*\.|<locals>\.)+", "", str(hint))


def got_text(value: Any) -> str:
    """A value in an error: short, and with its type."""
    text = repr(value)
    if len(text) > GOT_CHARS_MAX:
        text = text[: GOT_CHARS_MAX - 1] + "…"
    return f"{text} ({type(value).__name__})"


def is_number(value: Any) -> bool:
    """Whether it is a finite int or float; a bool is none."""
    return type(value) in {int, float} and isfinite(value)


def explain(refusal: ValidationError, root: Any, path: str) -> list[Problem]:
    """pydantic's refusal as problems, one a place: the arms of a union that all failed are joined by "or"."""
    found: dict[str, Problem] = {}
    for error in refusal.errors(include_url=False):
        place = path + _place(root, error["loc"], missing=error["type"] == "missing")
        if error["type"] == "missing":
            expected, got = "a value", "nothing"
        elif error["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
            expected, got = "no such field", got_text(error["input"])
        else:
            expected = re.sub(r"^(?:Input|Value) should be ", "", error["msg"])
            got = got_text(error["input"])
        earlier = found.get(place)
        if earlier and expected not in earlier["expected"].split(" or "):
            expected = f"{earlier['expected']} or {expected}"
        found[place] = problem(place, expected, got)
    return list(found.values())


def _place(value: Any, location: tuple[int | str, ...], *, missing: bool) -> str:
    """Where in the value an error lies; parts of the location that only name a union's arm are left out."""
    text = ""
    for index, part in enumerate(location):
        if isinstance(part, int) and isinstance(value, (list, tuple)) and part < len(value):
            value, text = value[part], f"{text}[{part}]"
        elif isinstance(value, Mapping) and part in value:
            value, text = value[part], f"{text}.{part}"
        elif isinstance(part, str) and hasattr(value, part) and not isinstance(value, (str, int, float, list, Mapping)):
            value, text = getattr(value, part), f"{text}.{part}"
        elif missing and index == len(location) - 1:
            text = f"{text}.{part}"
    return text


def _refused(refusal: PayloadInvalid) -> Problem:
    path, got = str(refusal.details.get("path", "value")), str(refusal.details.get("got", "something else"))
    return problem(path, "a value that JSON can hold", got.removeprefix("got "))


def _is_plain(hint: Any) -> bool:
    if hint in _LEAVES:
        return True
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return all(type(arg) in _SCALARS for arg in args)
    if origin is list or origin is typing.Union or origin is types.UnionType:
        return all(_is_plain(arg) for arg in args)
    return origin is dict and args[0] is str and _is_plain(args[1])


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value is exactly of a plain type."""
    if hint in _SCALARS:
        return type(value) is hint and (hint is not str or _is_storable(value))
    if hint is float:
        return type(value) is float and isfinite(value)
    if typing.get_origin(hint) is Literal:
        return any(type(value) is type(one) and value == one for one in typing.get_args(hint))
    if hint is Any or hint is list or hint is dict:
        return (hint is Any or type(value) is hint) and _is_storable(value)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return type(value) is list and all(_fits(args[0], item) for item in value)
    if origin is dict:
        return type(value) is dict and all(_fits(str, k) and _fits(args[1], v) for k, v in value.items())
    return any(_fits(arg, value) for arg in args)


def _is_storable(value: Any) -> bool:
    try:
        values.check(value)
    except PayloadInvalid:
        return False
    return True


def _schema_validator(schema: dict[str, Any]) -> Validator:
    """A validator of a raw JSON Schema. References are resolved inside the schema only, never over the network."""
    try:
        import jsonschema_rs
    except ImportError as missing:
        raise ExtraMissing(
            "Checking a JSON Schema needs jsonschema-rs: pip install jsonschema-rs. Or give a pydantic model as schema."
        ) from missing

    def refuse(uri: str) -> Any:
        raise ValueError(f"{uri} lies outside the schema")

    try:
        values.check(schema, "schema")
        checker = jsonschema_rs.validator_for(schema, retriever=refuse)
    except (ValueError, PayloadInvalid) as invalid:
        said = str(invalid).split("\n", 1)[0]
        raise DefinitionInvalid(
            f"schema is not a JSON Schema: {said}. Or give a pydantic model.", got=said
        ) from invalid

    def validate(answer: Any) -> Any:
        values.check(answer, "answer")
        problems = []
        for error in checker.iter_errors(answer):
            place = "answer" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path)
            wrong = {"path": place, "expected": error.message, "got": got_text(error.instance)}
            problems.append({**wrong, "message": f"{place}: {error.message}"})
        check_none(problems, "The answer does not fit the schema")
        return answer

    return validate
