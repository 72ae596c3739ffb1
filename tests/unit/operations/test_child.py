"""`ctx.workflow` under other timings and kills at every event, in virtual time. With the real store: tests/contract."""

from __future__ import annotations

import asyncio

import pytest

from perdure.definitions import workflow
from perdure.engine import runner
from perdure.errors import ChildFailed, InputInvalid, UsageError
from perdure.events import NodeAbandoned, NodeStarted, StatusChanged
from tests.bed.lanes import ROOT, crash_everywhere, play

WORLD = None


def with_world(body):
    """The body, with the world where the child workflows below find it: their inputs must be JSON."""

    async def program(ctx, world):
        global WORLD  # noqa: PLW0603
        WORLD = world
        return await body(ctx, world)

    return program


async def refuse(what: str) -> None:
    WORLD.executed.append(what)
    raise ValueError(f"{what} refused")


@workflow
async def leaf(ctx, name: str, steps: int = 2) -> str:
    for n in range(steps):
        await ctx.tool(WORLD.act, f"{name}{n}")
    return name


@workflow
async def tree(ctx, name: str) -> list:
    got = await ctx.parallel({n: ctx.workflow(leaf, name=f"{name}/{n}") for n in "ab"})
    await ctx.sleep(1)
    return [got["a"].output, got["b"].output]


@workflow
async def refuses(ctx, name: str) -> None:
    await ctx.tool(WORLD.act, f"{name} before")
    await ctx.tool(refuse, f"{name} bad")


@workflow
async def leaves(ctx, name: str) -> str:
    await ctx.tool(WORLD.act, f"{name} before")
    ctx.exit("skipped", reason="enough", output=name)


def statuses(result):
    """How every child ended last, by its boundary's position in the root; only of direct children."""
    ends = {s.run_id: s.event.status for s in result.events if isinstance(s.event, StatusChanged)}
    starts = [s.event for s in result.events if s.run_id == ROOT and isinstance(s.event, NodeStarted)]
    return {start.position: ends.get(start.child_run_id) for start in starts if start.child_run_id}


@with_world
async def nested(ctx, world):
    got = await asyncio.gather(ctx.workflow(tree, name="x"), ctx.workflow(tree, name="y"))
    await ctx.tool(world.act, "end")
    return [one.output for one in got]


@with_world
async def caught(ctx, world):
    try:
        await ctx.workflow(refuses, name="x")
    except ChildFailed:
        await ctx.tool(world.act, "rollback")
    skipped = await ctx.workflow(leaves, name="y")
    await ctx.tool(world.act, f"end {skipped.status}")


@with_world
async def timed_out(ctx, world):
    try:
        async with asyncio.timeout(0.3):
            await ctx.workflow(leaf, name="slow", steps=50)
    except TimeoutError:
        await ctx.tool(world.act, "late")
    await ctx.sleep(5)
    await ctx.tool(world.act, "end")


@with_world
async def siblings(ctx, world):
    try:
        await ctx.parallel([ctx.workflow(leaf, name="x", steps=50), ctx.workflow(refuses, name="y")])
    except ChildFailed:
        world.notes.append("caught")
    await ctx.tool(world.act, "end")


@with_world
async def left(ctx, world):
    behind = asyncio.create_task(ctx.workflow(tree, name="x"))
    await ctx.tool(world.act, "quick", 0.02)
    ctx.exit("skipped")
    await behind


@pytest.mark.parametrize("program", [nested, caught, timed_out, siblings, left])
def test_killed_at_any_event_and_resumed_with_other_timing_children_take_the_same_course(program):
    crash_everywhere(program, seeds=2, every=3 if program is nested else 1)


def test_children_that_nobody_waits_for_any_more_end_as_cancelled_and_their_steps_stop():
    for program in (timed_out, siblings, left):
        result = play(program)
        assert "cancelled" in statuses(result).values(), program
        assert "slow49" not in result.world.executed
        reasons = {s.event.reason for s in result.events if isinstance(s.event, NodeAbandoned)}
        assert reasons <= {"cancelled", "sibling_failed", "run_ended"}, reasons


def test_what_is_no_workflow_or_has_wrong_inputs_is_refused_at_the_call():
    async def plain(ctx): ...

    @with_world
    async def body(ctx, world):
        with pytest.raises(UsageError, match="@workflow"):
            ctx.workflow(plain)
        with pytest.raises(InputInvalid, match="name"):
            ctx.workflow(leaf, name=3)
        return "refused"

    result = play(body)
    assert (result.output, len(result.events)) == ("refused", 3)


def test_the_limit_of_child_runs_names_itself(monkeypatch):
    monkeypatch.setitem(runner.LIMITS, "boundary", (2, "child runs in a run tree"))

    @with_world
    async def body(ctx, world):
        for n in range(3):
            await ctx.workflow(leaf, name=str(n))

    result = play(body)
    assert result.ending.status == "failed"
    assert "2 child runs in a run tree" in result.ending.failure.message
    assert len(statuses(result)) == 2
