"""`ctx.exit`: it ends the run from any depth, nothing undoes it, and the first one wins."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import UsageError
from perdure.events import NodeAbandoned, NodeFinished, StatusChanged
from tests.bed.lanes import crash_everywhere, play


def ended(result):
    return [s.event for s in result.events if isinstance(s.event, StatusChanged)][-1]


@pytest.mark.parametrize(
    ("status", "stored"),
    [
        ("completed", "completed"),
        ("skipped", "skipped"),
        ("cancelled", "cancelled"),
        ("blocked", "exit_blocked"),
        ("failed", "failed"),
    ],
)
def test_each_status_is_recorded_with_its_reason_and_output(status, stored):
    async def body(ctx, world):
        ctx.exit(status, reason="no ticket", output={"done": 1})

    result = play(body)
    event = ended(result)
    assert (event.status, event.reason, bytes(event.output), event.exited) == (stored, "no ticket", b'{"done":1}', True)
    assert result.ending.exited
    assert result.output == {"done": 1}


def test_a_failed_exit_is_resumable_only_when_it_says_so():
    async def body(ctx, world):
        ctx.exit("failed", resumable=world is None)

    async def resumable(ctx, world):
        ctx.exit("failed", resumable=True)

    assert not play(body).ending.resumable
    assert play(resumable).ending.resumable


@pytest.mark.parametrize("catch", [Exception, BaseException])
def test_whatever_the_code_catches_around_it_the_run_ends(catch):
    async def body(ctx, world):
        try:
            ctx.exit("skipped", reason="enough")
        except catch:
            await ctx.tool(world.act, "after the exit")
        return "completed after all"

    result = play(body)
    assert (result.ending.status, result.ending.reason, result.output) == ("skipped", "enough", None)
    assert result.world.executed == []


def test_code_that_swallows_the_exit_and_then_waits_for_something_is_ended_all_the_same():
    async def body(ctx, world):
        try:
            ctx.exit("skipped")
        except BaseException:
            await asyncio.get_running_loop().create_future()

    assert play(body, limit_s=60).ending.status == "skipped"


def test_from_a_branch_deep_below_it_ends_the_whole_run():
    async def deep(ctx, depth):
        if depth:
            return await asyncio.create_task(deep(ctx, depth - 1))
        return ctx.exit("completed", output="from below")

    async def body(ctx, world):
        async with asyncio.TaskGroup() as group:
            group.create_task(deep(ctx, 4))
            group.create_task(ctx.tool(world.act, "slow", 50.0))
        await ctx.tool(world.act, "never")

    result = play(body)
    assert (result.ending.status, result.output) == ("completed", "from below")
    assert result.world.executed == []
    (abandoned,) = [s.event for s in result.events if isinstance(s.event, NodeAbandoned)]
    assert (abandoned.status, abandoned.position.endswith(":0")) == ("cancelled", True)
    crash_everywhere(body)


def test_the_first_of_two_exits_wins():
    async def leave(ctx, world, name, seconds):
        await ctx.tool(world.act, name, seconds)
        ctx.exit("completed", output=name)

    async def body(ctx, world):
        await asyncio.gather(leave(ctx, world, "a", 0.2), leave(ctx, world, "b", 0.1))

    assert play(body).output == "b"
    crash_everywhere(body, seeds=4)


def test_an_exit_in_a_finally_block_cannot_replace_the_one_that_is_under_way():
    async def body(ctx, world):
        try:
            ctx.exit("skipped")
        finally:
            ctx.exit("failed")

    assert play(body).ending.status == "skipped"


def test_steps_in_flight_are_cancelled_before_the_runs_end_is_recorded():
    async def body(ctx, world):
        slow = asyncio.create_task(ctx.tool(world.act, "slow", 50.0))
        await ctx.tool(world.act, "quick", 0.01)
        ctx.exit("completed")
        await slow

    result = play(body)
    kinds = [type(s.event) for s in result.events[-2:]]
    assert kinds == [NodeAbandoned, StatusChanged]
    assert [s.event.status for s in result.events[-2:]] == ["cancelled", "completed"]
    assert len([s for s in result.events if isinstance(s.event, NodeFinished)]) == 1


def test_an_exit_that_replays_comes_at_its_place_and_runs_nothing():
    async def body(ctx, world):
        await ctx.tool(world.act, "a")
        ctx.exit("blocked", reason="wait for it")

    whole = play(body)
    killed = play(body, crash_after=len(whole.events) - 1)
    second = play(body, events=killed.events)
    assert (second.ending.status, second.world.executed) == ("exit_blocked", [])


def test_an_unknown_status_or_a_resumable_success_is_refused_and_the_run_goes_on():
    async def body(ctx, world):
        for arguments in ({"status": "done"}, {"status": "completed", "resumable": True}):
            with pytest.raises(UsageError):
                ctx.exit(**arguments)
        return "went on"

    assert play(body).output == "went on"


def test_an_output_that_is_not_json_is_refused():
    async def body(ctx, world):
        ctx.exit("completed", output={"a": object()})

    result = play(body)
    assert result.ending.status == "failed"
    assert "output.a" in result.ending.failure.message
