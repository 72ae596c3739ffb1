"""`ctx.parallel` and `ctx.as_completed`: input order, limits, and what becomes of the others when one fails."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import ToolFailed, UsageError
from perdure.events import NodeAbandoned, NodeFinished
from tests.bed.lanes import crash_everywhere, play

RAN = []


async def refuse(what: str) -> None:
    RAN.append(what)
    raise ValueError(f"{what} refused")


def abandoned(result):
    return [s.event for s in result.events if isinstance(s.event, NodeAbandoned)]


def test_results_come_in_input_order_and_by_name_for_a_mapping():
    async def body(ctx, world):
        listed = await ctx.parallel(ctx.tool(world.act, n, 1.0 - n / 10) for n in range(4))
        named = await ctx.parallel({"x": ctx.tool(world.act, "a", 0.2), "y": ctx.tool(world.act, "b", 0.1)})
        return [listed, named, list(named), await ctx.parallel([])]

    assert play(body).output == [[0, 1, 2, 3], {"x": "a", "y": "b"}, ["x", "y"], []]


def test_cancel_ends_the_siblings_of_the_first_failure_with_the_reason_and_raises_it():
    async def body(ctx, world):
        try:
            await ctx.parallel(
                [ctx.tool(world.act, "slow", 50.0), ctx.tool(refuse, "bad"), ctx.sleep(90), ctx.tool(world.act, "q", 0)]
            )
        except ToolFailed as error:
            return error.failure.message

    result = play(body)
    assert result.output == "bad refused"
    assert {(e.position, e.status, e.reason) for e in abandoned(result)} == {
        ("/:0", "cancelled", "sibling_failed"),
        ("/:2", "skipped", "sibling_failed"),
    }
    assert result.world.executed == ["q"]
    crash_everywhere(body)


def test_branches_that_wait_for_a_slot_when_one_fails_never_begin():
    async def body(ctx, world):
        with pytest.raises(ToolFailed):
            await ctx.parallel([ctx.tool(refuse, "bad"), *(ctx.tool(world.act, n) for n in range(3))], limit=1)

    result = play(body)
    assert result.world.executed == []
    assert [s.event.status for s in result.events if isinstance(s.event, NodeFinished)] == ["failed"]
    assert abandoned(result) == []


def test_collect_lets_all_run_and_puts_failures_in_their_place():
    async def body(ctx, world):
        got = await ctx.parallel(
            {"a": ctx.tool(refuse, "a"), "b": ctx.tool(world.act, "b"), "c": ctx.tool(refuse, "c")}, on_error="collect"
        )
        assert list(got) == ["a", "b", "c"]
        return [type(one).__name__ for one in got.values()]

    result = play(body)
    assert result.output == ["ToolFailed", "str", "ToolFailed"]
    assert abandoned(result) == []
    crash_everywhere(body)


def test_collect_raises_what_is_no_failure_of_a_step_once_all_are_done():
    async def wrong(ctx, world):
        await ctx.tool(world.act, "before", 0)
        raise KeyError("author's mistake")

    async def body(ctx, world):
        with pytest.raises(KeyError):
            await ctx.parallel([wrong(ctx, world), ctx.tool(world.act, "other", 5.0)], on_error="collect")

    assert play(body).world.executed == ["before", "other"]


def test_at_most_limit_branches_run_at_once():
    now, most = 0, 0

    async def branch(ctx, world, n):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await ctx.tool(world.act, n)
        now -= 1

    async def body(ctx, world):
        await ctx.parallel((branch(ctx, world, n) for n in range(9)), limit=3)

    for seed in range(5):
        play(body, seed=seed)
    assert most == 3


@pytest.mark.parametrize("options", [{"limit": 0}, {"on_error": "ignore"}])
def test_wrong_options_are_refused(options):
    async def body(ctx, world):
        with pytest.raises(UsageError):
            ctx.parallel([], **options)

    assert play(body).ending.status == "completed"


def test_nested_groups_cancel_what_is_inside_them():
    async def group(ctx, world, name):
        return await ctx.parallel(ctx.tool(world.act, f"{name}{n}", 50.0) for n in range(2))

    async def body(ctx, world):
        with pytest.raises(ToolFailed):
            await ctx.parallel([group(ctx, world, "x"), ctx.tool(refuse, "bad"), group(ctx, world, "y")])
        await ctx.tool(world.act, "after")

    result = play(body)
    assert result.world.executed == ["after"]
    assert [e.status for e in abandoned(result)] == ["cancelled"] * 4
    crash_everywhere(body)


def test_as_completed_raises_a_failure_at_its_turn_and_leaves_no_branch_running():
    async def body(ctx, world):
        got = []
        with pytest.raises(ToolFailed):
            calls = [ctx.tool(world.act, "quick", 0.0), ctx.tool(world.act, "slow", 50.0)]
            async for one in ctx.as_completed([*calls, _fails_after(ctx, world)]):
                got += [one]
        await ctx.tool(world.act, "after")
        return got

    result = play(body)
    assert result.output == ["quick"]
    assert "slow" not in result.world.executed
    crash_everywhere(body)


async def _fails_after(ctx, world):
    await ctx.tool(world.act, "first", 1.0)
    await ctx.tool(refuse, "then")


def test_a_cancelled_caller_cancels_its_branches():
    async def body(ctx, world):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await ctx.parallel([ctx.tool(world.act, n, 50.0) for n in range(3)])
        await ctx.tool(world.act, "after")

    result = play(body)
    assert result.world.executed == ["after"]
    assert len(abandoned(result)) == 3
    crash_everywhere(body)
