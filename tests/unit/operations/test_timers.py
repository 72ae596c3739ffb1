"""`ctx.sleep` and the recorded values: `now`, `random`, `uuid`, `usage`."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import UsageError
from perdure.events import NodeAbandoned, NodeFinished, NodeStarted, ValueRecorded
from tests.bed.lanes import crash_everywhere, play


def of(result, kind):
    return [s.event for s in result.events if isinstance(s.event, kind)]


def test_the_start_of_a_sleep_is_durable_with_its_length_before_the_waiting_begins():
    async def body(ctx, world):
        await ctx.sleep(2.5)

    result = play(body)
    (started,), (finished,) = of(result, NodeStarted), of(result, NodeFinished)
    assert (started.delay_ms, started.name, finished.start) == (2500, "sleep 2.5s", None)
    assert 2.5 <= (result.events[-2].at - result.events[-3].at) / 1000 < 2.6
    crash_everywhere(body)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_length_that_is_no_time_is_refused(seconds):
    async def body(ctx, world):
        with pytest.raises(UsageError):
            ctx.sleep(seconds)

    assert of(play(body), NodeStarted) == []


def test_a_sleep_of_nothing_is_a_step_all_the_same():
    async def body(ctx, world):
        await ctx.sleep(0)

    assert [e.status for e in of(play(body), NodeFinished)] == ["completed"]


def test_two_sleeps_at_once_take_as_long_as_the_longer_one():
    async def body(ctx, world):
        began = await ctx.now()
        await asyncio.gather(ctx.sleep(10), ctx.sleep(4))
        return await ctx.now() - began

    assert 10 <= play(body).output < 10.5


def test_a_sleep_the_code_stops_waiting_for_is_skipped():
    async def body(ctx, world):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await ctx.sleep(100)

    assert [(e.position, e.status) for e in of(play(body), NodeAbandoned)] == [("/:0", "skipped")]


def test_values_are_drawn_once_and_the_same_ever_after():
    async def body(ctx, world):
        drawn = [await ctx.random(), await ctx.uuid(), await ctx.now()]
        world.notes.append(drawn)
        await ctx.tool(world.act, "end", 1.0)
        return drawn

    first = play(body, crash_after=5)
    second = play(body, seed=9, events=first.events)
    assert second.output == first.world.notes[0]
    assert 0 <= second.output[0] < 1


def test_values_are_recorded_and_not_drawn_in_the_graph():
    async def body(ctx, world):
        await ctx.random()

    result = play(body)
    assert [e.kind for e in of(result, ValueRecorded)] == ["random"]
    assert of(result, NodeStarted) == []


def test_another_kind_of_value_at_a_position_is_drift():
    async def before(ctx, world):
        await ctx.random()
        await ctx.tool(world.act, "end", 5.0)

    async def after(ctx, world):
        await ctx.uuid()
        await ctx.tool(world.act, "end", 5.0)

    killed = play(before, crash_after=4)
    ending = play(after, events=killed.events).ending
    assert (ending.status, ending.code) == ("blocked", "replay_mismatch")
    assert "random" in ending.reason


def test_usage_of_a_run_without_agents_is_nothing():
    async def body(ctx, world):
        used = await ctx.usage()
        return [used.tokens_in, used.tokens_out, used.cost_nanos]

    assert play(body).output == [0, 0, None]
