"""Inputs that come as text: a command line's `key=value`, and the JSON Schema that forms are made of.

The only place where text becomes typed: everything else is strict (spec/authoring.md 1).
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure import values
from perdure.errors import PayloadInvalid
from perdure.shapes import Problem, Shape, got_text, problem, type_text
from perdure.signatures import MISSING, Signature

Taken = dict[str, tuple[Any, list[Problem]]]  # by input: its value, and what is wrong with it

_BOOLS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def parse(shapes: Mapping[str, Shape], assignments: list[str], file: Path | None) -> tuple[Taken, list[Problem]]:
    """The inputs given as text. Problems that belong to no input come second."""
    taken: Taken = {}
    problems: list[Problem] = []
    for name, value in _from_file(file, problems).items():
        taken[name] = shapes[name].restore(value, name) if name in shapes else (value, [])
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        is_json = key.endswith(":")
        name = key.removesuffix(":").strip().replace("-", "_")
        if not equals or not name:
            problems.append(problem(assignment, "key=value, key:=JSON or key=@file", repr(assignment)))
        elif name not in shapes:
            taken[name] = (text, [])
        elif is_json:
            taken[name] = _from_json(shapes[name], name, text)
        elif text.startswith("@"):
            taken[name] = _from_text_file(shapes[name], name, Path(text[1:]).expanduser())
        else:
            taken[name] = _from_text(shapes[name], name, text)
    return taken, problems


def object_schema(signature: Signature, title: str) -> dict[str, Any]:
    """The JSON Schema of a function's parameters; definitions of models are shared under `$defs`."""
    from pydantic import TypeAdapter  # noqa: PLC0415  loads when a schema is asked for

    adapters = [(p.name, "validation", signature.shapes[p.name].adapter) for p in signature.parameters]
    by_name, shared = TypeAdapter.json_schemas(adapters) if adapters else ({}, {})  # type: ignore[arg-type]
    properties: dict[str, Any] = {}
    for parameter in signature.parameters:
        schema = dict(by_name[parameter.name, "validation"])
        if description := signature.description(parameter):
            schema["description"] = description
        if parameter.default is not MISSING:
            schema["default"] = signature.shapes[parameter.name].dump(signature.default(parameter), parameter.name)
        properties[parameter.name] = schema
    required = [p.name for p in signature.parameters if p.default is MISSING]
    whole = {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {**whole, **shared}


def _from_file(file: Path | None, problems: list[Problem]) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        given = _load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as refusal:
        problems.append(problem(str(file), "a JSON file", str(refusal)))
        return {}
    if isinstance(given, dict):
        return given
    problems.append(problem(str(file), "one JSON object with the inputs", got_text(given)))
    return {}


def _from_text_file(shape: Shape, name: str, path: Path) -> tuple[Any, list[Problem]]:
    try:
        with path.open("rb") as opened:
            data = opened.read(values.VALUE_BYTES_MAX + 1)
        if len(data) > values.VALUE_BYTES_MAX:
            return None, [problem(name, f"a file of at most {values.VALUE_BYTES_MAX} bytes", str(path))]
        return _from_text(shape, name, data.decode())
    except (OSError, ValueError) as refusal:
        return None, [problem(name, "a readable text file", f"{path}: {refusal}")]


def _from_json(shape: Shape, name: str, text: str) -> tuple[Any, list[Problem]]:
    try:
        return shape.restore(_load(text), name)
    except ValueError as refusal:
        return None, [problem(name, "JSON", f"{text!r}: {refusal}")]


def _from_text(shape: Shape, name: str, text: str) -> tuple[Any, list[Problem]]:
    """Text is itself for a string; else it is JSON, or the text of what JSON writes as a string (enum, path, date)."""
    arms = _arms(shape.hint)
    if str in arms and not arms & {int, float, bool, Any}:
        return shape.restore(text, name)
    if arms <= {bool, type(None)} and text.lower() in _BOOLS:
        return _BOOLS[text.lower()], []
    problems: list[Problem] = []
    try:
        value, problems = shape.restore(_load(text), name)
    except ValueError:
        if arms <= {int, float, bool, type(None)}:
            return None, [problem(name, type_text(shape.hint), repr(text))]
    else:
        if not problems:
            return value, []
    value, as_text = shape.restore(text, name)
    return value, as_text and (problems or as_text)


def _arms(hint: Any) -> set[Any]:
    """The types a hint is made of at its top: `Annotated[int, ...] | None` -> int, None."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _arms(args[0])
    if origin is typing.Union or origin is types.UnionType:
        return set().union(*(_arms(arg) for arg in args))
    return {hint}


def _load(text: str) -> Any:
    parsed = json.loads(text)
    try:
        values.check(parsed)
    except PayloadInvalid as refusal:
        raise ValueError(refusal.message) from refusal
    return parsed
