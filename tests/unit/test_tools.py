from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path

import pytest
from pydantic import BaseModel

from perdure.definitions import Retry, Tool, as_tool, tool
from perdure.errors import DefinitionInvalid, OutputInvalid, PayloadInvalid, UsageError


class Report(BaseModel):
    approved: bool
    findings: list[str] = []


@dataclass
class Point:
    x: int
    y: float


@tool(timeout=600, retry=Retry(attempts=2), version=3)
async def run_tests(cwd: str, fast: bool = True, *, only: str | None = None) -> str:
    """Run the tests."""
    return f"{cwd} {fast} {only}"


def test_a_tool_is_called_like_its_function():
    assert asyncio.run(run_tests("/tmp", only="x")) == "/tmp True x"
    assert (run_tests.name, run_tests.timeout, run_tests.is_async, run_tests.__doc__) == (
        "run_tests",
        600,
        True,
        "Run the tests.",
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        (("a",), {}, {"cwd": "a"}),
        ((), {"cwd": "a"}, {"cwd": "a"}),
        (("a", False), {"only": "x"}, {"cwd": "a", "fast": False, "only": "x"}),
    ],
)
def test_arguments_are_bound_by_name_without_defaults(args, kwargs, bound):
    assert run_tests.bind(args, kwargs) == bound


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), (("a", True, 1), {}), (("a",), {"cwd": "b"}), (("a",), {"x": 1}), ((), {"only": "x"})],
)
def test_arguments_that_do_not_fit_are_refused(args, kwargs):
    with pytest.raises(UsageError, match="tool run_tests"):
        run_tests.bind(args, kwargs)


def test_open_parameters_are_bound_too():
    @tool
    def shell(first, /, *argv: Path, **env: Point): ...

    assert shell.bind((1, Path("a"), Path("b")), {"p": Point(1, 2.0)}) == {
        "first": 1,
        "argv": ["a", "b"],
        "env": {"p": {"x": 1, "y": 2.0}},
    }


def test_models_in_arguments_and_results_are_encoded_by_the_annotation():
    @tool
    def review(point: Point, reports: list[Report]) -> Report | None: ...

    report = Report(approved=True)
    assert review.bind((Point(1, 2.0), [report]), {})["reports"] == [{"approved": True, "findings": []}]
    assert review.decode_result(review.encode_result(report)) == report
    assert review.decode_result(review.encode_result(None)) is None
    with pytest.raises(PayloadInvalid, match="point"):
        review.bind(({"x": 1}, []), {})
    with pytest.raises(PayloadInvalid, match="result of review"):
        review.encode_result(3)
    with pytest.raises(OutputInvalid, match="recorded result of tool review"):
        review.decode_result({"approved": "?"})


def test_a_function_becomes_the_same_tool_each_time():
    def plain(a: int) -> int:
        return a

    @wraps(plain)
    def wrapped(a: int) -> int:
        return plain(a)

    assert as_tool(plain) is as_tool(plain)
    assert as_tool(wrapped).fn is wrapped
    assert as_tool(run_tests) is run_tests
    assert as_tool(plain).name == "plain"
    assert not as_tool(plain).is_async


def test_partials_methods_and_callable_objects_are_tools():
    class Fetch:
        async def __call__(self, url: str) -> str:
            return url

        def method(self, url: str) -> str:
            return url

    assert as_tool(Fetch()).is_async
    assert as_tool(Fetch()).name == "Fetch"
    assert as_tool(Fetch().method).bind(("u",), {}) == {"url": "u"}
    made = as_tool(partial(run_tests.fn, "/tmp"))
    assert (made.name, made.is_async, made.bind((False,), {})) == ("run_tests", True, {"fast": False})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(attempts=0),
        lambda: Retry(attempts=True),
        lambda: Retry(wait=-1),
        lambda: Retry(backoff=0.5),
        lambda: tool(timeout=0)(print),
        lambda: tool(on_error="ignore")(print),  # type: ignore[call-overload]
        lambda: tool(name=" ")(print),
        lambda: Tool(fn=3, name="x"),  # type: ignore[arg-type]
    ],
)
def test_wrong_tool_options_are_refused(make):
    with pytest.raises(DefinitionInvalid):
        make()
