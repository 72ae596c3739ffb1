"""Lanes: identity and parents of calls, whatever the timing, in programs killed at every event."""

from __future__ import annotations

import asyncio
import sys
from contextvars import Context as Variables
from contextvars import copy_context

import anyio
import pytest

from perdure.errors import CallOutsideLane
from perdure.events import NodeJoined
from tests.bed.lanes import crash_everywhere, play
from tests.bed.programs import executed_after, nodes


def test_gathered_calls_share_their_parents_and_the_next_call_follows_both():
    async def body(ctx, world):
        await ctx.tool(world.act, 0)
        await asyncio.gather(ctx.tool(world.act, "a"), ctx.tool(world.act, "b"))
        await ctx.tool(world.act, "c")

    for seed in range(20):
        graph = nodes(play(body, seed=seed))
        assert graph["/:1"].parents == graph["/:2"].parents == ("/:0",)
        assert set(graph["/:3"].parents) == {"/:1", "/:2"}


def test_branches_of_two_calls_show_only_their_own_past():
    async def branch(ctx, world, name):
        await ctx.tool(world.act, name + "1")
        await ctx.tool(world.act, name + "2")

    async def body(ctx, world):
        await asyncio.gather(branch(ctx, world, "a"), branch(ctx, world, "b"))
        await ctx.tool(world.act, "end")

    for seed in range(20):
        graph = nodes(play(body, seed=seed))
        lanes = {p.partition(":")[0] for p in graph} - {"/"}
        assert len(lanes) == 2
        for lane in lanes:
            assert graph[f"{lane}:0"].parents == ()
            assert graph[f"{lane}:1"].parents == (f"{lane}:0",)
        assert set(graph["/:0"].parents) == {f"{lane}:1" for lane in lanes}


@pytest.mark.parametrize("timings", [200, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_parallel_limit_one_of_three_shares_the_parents_at_the_call_whatever_the_timing(timings):
    async def body(ctx, world):
        await ctx.tool(world.act, "before")
        await ctx.parallel((ctx.tool(world.act, n) for n in "abc"), limit=1)
        await ctx.tool(world.act, "after")

    shapes = set()
    for seed in range(timings):
        graph = nodes(play(body, seed=seed))
        assert all(graph[f"/:{n}"].parents == ("/:0",) for n in (1, 2, 3))
        shapes.add(tuple(sorted((p, tuple(sorted(n.parents))) for p, n in graph.items())))
    assert len(shapes) == 1


def test_calls_without_a_lane_are_refused_each_with_what_to_do():
    async def body(ctx, world):
        refused = []

        def attempt(where):
            try:
                ctx.tool(world.act, where).close()
            except CallOutsideLane as error:
                assert "asyncio.create_task" in str(error)
                refused.append(where)

        async def attempt_in_task(where):
            attempt(where)

        await asyncio.to_thread(attempt, "thread")
        asyncio.get_running_loop().call_soon(attempt, "callback")
        await asyncio.sleep(0)
        for where, context in (("shared", copy_context()), ("empty", Variables())):
            await asyncio.create_task(attempt_in_task(where), context=context)
        await asyncio.Task(attempt_in_task("foreign task"), loop=asyncio.get_running_loop())

        async def inner() -> None:
            attempt("tool")

        await ctx.tool(inner)
        factory = getattr(asyncio, "eager_task_factory", lambda loop, coro, **_: None)
        try:
            asyncio.get_running_loop().set_task_factory(factory)
        except CallOutsideLane:
            refused.append("factory")
        return refused

    result = play(body)
    assert result.output == ["thread", "callback", "shared", "empty", "foreign task", "tool", "factory"]
    assert result.world.executed == []


def test_an_anyio_group_of_branches_has_one_set_of_positions_whatever_library_tasks_ran_before():
    async def body(ctx, world):
        async def library():
            await anyio.sleep(0)

        async def branch(n):
            await ctx.tool(world.act, n)
            await ctx.tool(world.act, n + 10)

        async with anyio.create_task_group() as group:
            for _ in range(world.rng.randint(0, 5)):
                group.start_soon(library)
        async with anyio.create_task_group() as group:
            for n in range(3):
                group.start_soon(branch, n)

    positions = {frozenset(nodes(play(body, seed=seed))) for seed in range(100)}
    assert len(positions) == 1


def test_wide_joins_keep_at_most_two_edges_and_16_id_bytes_a_node():
    async def body(ctx, world):
        for _ in range(2):
            await asyncio.gather(*(ctx.tool(world.act, n, 0.0) for n in range(1000)))

        async def chain(n):
            if n:
                await asyncio.create_task(chain(n - 1))
            await ctx.tool(world.act, n, 0.0)

        await chain(100)

    result = play(body)
    joins = [s.event for s in result.events if isinstance(s.event, NodeJoined)]
    started = nodes(result)
    edges = sum(len(n.parents) for n in started.values()) + sum(len(j.parents) for j in joins)
    assert edges <= 2 * (len(started) + len(joins))
    assert max(len(n.parents) for n in started.values()) <= 64
    lanes = {p.partition(":")[0] for p in started} - {"/"}
    assert {len(bytes.fromhex(lane)) for lane in lanes} == {8}  # and a number beside it
    crash_everywhere(body, seeds=1, every=997)


def test_equal_calls_are_told_apart_by_position():
    async def body(ctx, world):
        await ctx.tool(world.act, "a", 0.0)
        await ctx.tool(world.act, "a", 0.0)

    first = play(body, crash_after=3)
    assert executed_after(body, first).world.executed == ["a"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_cannot_be_switched_on_under_a_run():
    async def body(ctx, world):
        try:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        except CallOutsideLane:
            return "refused"

    assert play(body).output == "refused"
