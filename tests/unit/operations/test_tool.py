"""`ctx.tool`: what may be stored, how a tool is called, and what becomes of one that nobody waits for any more."""

from __future__ import annotations

import asyncio
import math
import threading
from contextvars import ContextVar
from dataclasses import dataclass

import pytest
from msgspec import UNSET
from pydantic import BaseModel

from perdure.definitions import Retry, tool
from perdure.engine import runner
from perdure.errors import CallOutsideLane, LimitReached, PayloadInvalid, ToolFailed
from perdure.events import NodeAbandoned, NodeFinished, NodeStarted
from perdure.values import raw
from tests.bed.lanes import play


def events_of(result, kind):
    return [s.event for s in result.events if isinstance(s.event, kind)]


# --- what may be stored


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "result"),
        ({"a": [1, 2, math.inf]}, r"result \.a\[2\]|result .*a.*2"),
        (object(), "result"),
        ({1: "a"}, "result"),
        ((1, 2), "result"),
    ],
)
def test_a_result_that_is_not_json_fails_the_node_naming_the_path_and_is_not_tried_again(value, said):
    tried = []

    @tool(retry=Retry(attempts=3, wait=0))
    async def give():
        tried.append(1)
        return value

    async def body(ctx, world):
        with pytest.raises(ToolFailed, match=said):
            await ctx.tool(give)

    result = play(body)
    (finished,) = events_of(result, NodeFinished)
    assert (finished.status, finished.value, len(tried)) == ("failed", UNSET, 1)


def test_a_result_that_is_too_large_is_the_tools_failure(monkeypatch):
    monkeypatch.setattr("perdure.operations.tool.raw", _refuse_size)

    async def big() -> str:
        return "x"

    async def body(ctx, world):
        with pytest.raises(ToolFailed, match="too large"):
            await ctx.tool(big)
        return "went on"

    assert play(body).output == "went on"


def _refuse_size(value, *, what="value"):
    if what.endswith("result "):
        raise LimitReached("The result is too large.")
    return raw(value, what=what)


@pytest.mark.parametrize("argument", [math.nan, object(), {1, 2}, b"x", {"a": (1,)}])
def test_an_argument_that_is_not_json_is_refused_at_the_call_and_nothing_is_recorded(argument):
    async def take(x) -> None: ...

    async def body(ctx, world):
        with pytest.raises(PayloadInvalid, match="x"):
            ctx.tool(take, argument)

    assert not events_of(play(body), NodeFinished)


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Pair:
    left: Point
    right: Point


def test_models_and_dataclasses_come_back_typed_live_and_on_replay():
    async def mirror(pair: Pair) -> Pair:
        return Pair(pair.right, pair.left)

    async def body(ctx, world):
        got = await ctx.tool(mirror, Pair(Point(x=1), Point(x=2)))
        assert isinstance(got, Pair)
        assert isinstance(got.left, Point)
        world.notes.append((got.left.x, got.right.x))
        await ctx.tool(world.act, "end", 1.0)
        return got.left.x

    first = play(body, crash_after=4)
    second = play(body, events=first.events)
    assert second.output == 2
    assert first.world.notes == second.world.notes


@pytest.mark.parametrize("value", [None, "", 0, False, [], {}])
def test_empty_results_replay_as_what_they_were(value):
    ran = []

    async def give():
        ran.append(1)
        return value

    async def body(ctx, world):
        got = await ctx.tool(give)
        assert got == value
        assert type(got) is type(value)
        await ctx.tool(world.act, "end", 1.0)

    first = play(body, crash_after=3)
    assert play(body, events=first.events).ending.status == "completed"
    assert len(ran) == 1


def test_the_arguments_are_kept_for_people_redacted_and_short():
    async def take(text: str, password: str) -> None: ...

    async def body(ctx, world):
        await ctx.tool(take, "x" * 5000, password="hunter2hunter2")

    (finished,) = events_of(play(body), NodeFinished)
    detail = bytes(finished.start.detail)
    assert b"hunter2" not in detail
    assert len(detail) < 1200


# --- how it is called


def test_a_plain_function_runs_in_a_thread_with_the_authors_context_variables():
    flavour = ContextVar("flavour", default="none")

    def where() -> list:
        return [threading.current_thread() is threading.main_thread(), flavour.get()]

    async def body(ctx, world):
        flavour.set("lemon")
        return await ctx.tool(where)

    assert play(body).output == [False, "lemon"]


def test_a_plain_function_that_raises_stop_iteration_fails_instead_of_never_ending():
    def take() -> int:
        return next(iter(()))

    async def body(ctx, world):
        with pytest.raises(ToolFailed, match="StopIteration"):
            await ctx.tool(take)
        return "went on"

    assert play(body).output == "went on"


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
def test_a_tool_that_cancels_itself_or_wants_to_end_the_process_has_failed(plain, error):
    def act() -> None:
        raise error

    async def act_async() -> None:
        raise error

    async def body(ctx, world):
        with pytest.raises(ToolFailed):
            await ctx.tool(act if plain else act_async)
        return "went on"

    assert play(body).output == "went on"


def test_a_ctx_call_inside_a_tool_is_refused_and_says_what_to_do():
    async def body(ctx, world):
        async def inner() -> None:
            await ctx.tool(world.act, "inner")

        def plain() -> None:
            ctx.exit("skipped")

        for function in (inner, plain):
            with pytest.raises(ToolFailed, match=r"asyncio\.create_task"):
                await ctx.tool(function)
        return "refused"

    result = play(body)
    assert (result.output, result.world.executed) == ("refused", [])
    assert CallOutsideLane.code == "CALL_OUTSIDE_LANE"


def test_another_version_name_or_argument_is_another_step():
    def program(version=1, name="act", n=1):
        async def act(n: int) -> int:
            return n

        async def body(ctx, world):
            await ctx.tool(tool(act, name=name, version=version), n)
            await ctx.tool(world.act, "end", 5.0)

        return body

    killed = play(program(), crash_after=3)
    assert play(program(), events=killed.events).ending.status == "completed"
    for change in ({"version": 2}, {"name": "other"}, {"n": 2}):
        assert play(program(**change), events=killed.events).ending.status == "blocked", change


# --- abandoned


def test_the_value_of_a_tool_that_ignores_its_cancellation_is_dropped():
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
        return "late"

    async def body(ctx, world):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await ctx.tool(stubborn)
        await ctx.sleep(30)
        return "went on"

    result = play(body)
    assert result.output == "went on"
    assert [e.position for e in events_of(result, NodeFinished)] == ["/:1"]
    (abandoned,) = events_of(result, NodeAbandoned)
    assert (abandoned.position, abandoned.status) == ("/:0", "cancelled")


def test_no_attempt_follows_once_the_code_no_longer_waits():
    tried = []

    @tool(retry=Retry(attempts=5, wait=2))
    async def refuse() -> None:
        tried.append(1)
        raise ValueError("no")

    async def body(ctx, world):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await ctx.tool(refuse)
        await ctx.sleep(30)

    play(body)
    assert len(tried) == 1


def test_a_step_that_takes_its_time_shows_its_start_and_a_quick_one_carries_it():
    async def body(ctx, world):
        await ctx.tool(world.act, "quick", 0.0)
        await ctx.tool(world.act, "slow", 5.0)

    result = play(body)
    assert [e.position for e in events_of(result, NodeStarted)] == ["/:1"]
    assert [e.start is not None for e in events_of(result, NodeFinished)] == [True, False]


def test_the_limit_of_tool_calls_names_itself(monkeypatch):
    monkeypatch.setitem(runner.LIMITS, "tool", (3, "tool calls in a run tree"))

    async def body(ctx, world):
        for n in range(5):
            await ctx.tool(world.act, n)

    result = play(body)
    assert result.ending.status == "failed"
    assert result.world.executed == [0, 1, 2]
    assert "3 tool calls in a run tree" in result.ending.failure.message
