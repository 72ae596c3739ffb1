"""The public names: there when asked for, and not paid for before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import perdure
from perdure import definitions, errors

HEAVY = ("apsw", "asyncio", "msgspec", "pydantic", "rich", "perdure.engine", "perdure.errors", "perdure.store")


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_perdure_imports_nothing_heavy() -> None:
    assert in_a_fresh_process(f"import sys, perdure; print([m for m in {HEAVY!r} if m in sys.modules])") == "[]"


def test_a_star_import_gives_exactly_the_public_names() -> None:
    code = "from perdure import *; print(*sorted(n for n in dir() if not n.startswith('_')))"
    assert in_a_fresh_process(code).split() == sorted(perdure.__all__)


@pytest.mark.parametrize("name", perdure.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert getattr(perdure, name).__doc__
    assert name in dir(perdure)


def test_a_public_name_is_the_thing_itself() -> None:
    assert perdure.workflow is definitions.workflow
    assert perdure.StageFailed is errors.StageFailed


def test_what_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'worflow'"):
        perdure.worflow  # noqa: B018
