"""Closed sets and what must be said about each member: events, error codes, public names, folders of tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, inspect

import perdure
from perdure import errors, events

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("filled", [False, True], ids=["required fields", "all fields"])
@pytest.mark.parametrize("name", events.TYPES)
def test_every_event_survives_its_codec(name: str, filled: bool) -> None:
    event = sample(inspect.type_info(events.TYPES[name]), filled)
    assert events.decode(name, events.encode(event)) == event
    assert events.NAMES[type(event)] == name
    assert event.key


def sample(kind: inspect.Type, filled: bool) -> Any:
    """A value of a type; with `filled`, optional fields too, but not those of a record inside one of its own kind."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            wanted = [f for f in fields if f.required or (filled and not refers_to(f.type, cls))]
            return cls(**{f.name: sample(f.type, filled) for f in wanted})
        case inspect.UnionType(types=types):
            return sample(next(t for t in types if not isinstance(t, inspect.NoneType)), filled)
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.VarTupleType(item_type=item):
            return (sample(item, filled),)
        case inspect.DictType():
            return {"k": 1}
        case inspect.RawType():
            return Raw(b'{"k":[1,null]}')
        case _:
            return {inspect.StrType: "t", inspect.IntType: 7, inspect.BoolType: True, inspect.AnyType: 1}[type(kind)]


def refers_to(kind: inspect.Type, cls: type) -> bool:
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(t, inspect.StructType) and t.cls is cls for t in types)


def error_classes(base: type[errors.PerdureError] = errors.PerdureError) -> Iterator[type[errors.PerdureError]]:
    yield base
    for cls in base.__subclasses__():
        yield from error_classes(cls)


def test_every_error_has_a_code_of_its_own_and_a_default_message() -> None:
    codes: dict[str, str] = {}
    for cls in dict.fromkeys(error_classes()):
        assert codes.setdefault(cls.code, cls.__name__) == cls.__name__, f"{cls.__name__} shares the code {cls.code}"
        assert cls().message if cls is not errors.ControlRefused else cls.__doc__


def test_every_error_code_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE))
    assert explained == {cls.code for cls in error_classes() if cls.__module__ == errors.__name__}


def test_the_public_names_are_sorted_and_listed() -> None:
    listed = re.findall(r"^- `(\w+)`", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert list(perdure.__all__) == sorted(perdure.__all__)
    assert listed == list(perdure.__all__)
    assert not [name for name in perdure.__all__ if not hasattr(perdure, name)]


def test_every_folder_of_tests_is_run() -> None:
    script = (ROOT / "scripts" / "test").read_text()
    folders = {f.relative_to(ROOT / "tests").parts[0] for f in (ROOT / "tests").rglob("test_*.py")}
    assert not [folder for folder in sorted(folders) if not re.search(rf"\b{folder}\b", script)]
