"""The order on replay when the code waits for something that nobody records: patience, then drift.

What the order does otherwise is proved, killed at every event, in test_lanes_and_order.py.
"""

from __future__ import annotations

import asyncio
import threading

from perdure.engine import order
from tests.bed.lanes import play


def killed_at_its_last_step(body):
    whole = play(body)
    return play(body, crash_after=len(whole.events) - 1)


def test_a_thread_of_the_code_that_takes_longer_on_replay_is_waited_for_and_is_no_drift():
    opened = threading.Event()
    opened.set()

    async def body(ctx, world):
        await ctx.tool(world.act, "a", 0.0)
        await asyncio.to_thread(opened.wait, 5)
        await ctx.tool(world.act, "b", 0.0)
        return "done"

    killed = killed_at_its_last_step(body)
    opened.clear()
    threading.Timer(0.02, opened.set).start()
    second = play(body, events=killed.events)
    assert (second.output, second.world.executed) == ("done", [])


def test_when_patience_ends_what_was_not_asked_for_is_drift_and_nothing_was_executed(monkeypatch):
    monkeypatch.setattr(order, "PATIENCE_S", 0.02)
    opened = threading.Event()

    def program(changed):
        async def body(ctx, world):
            await ctx.tool(world.act, "a", 0.0)
            if changed:
                await asyncio.to_thread(opened.wait, 5)
            else:
                await ctx.tool(world.act, "b", 0.0)
            return "done"

        return body

    killed = killed_at_its_last_step(program(False))
    threading.Timer(0.2, opened.set).start()
    ending = play(program(True), events=killed.events)
    assert (ending.ending.status, ending.ending.code) == ("blocked", "replay_mismatch")
    assert "tool act in lane /" in ending.ending.reason
    assert ending.world.executed == []


def test_a_recorded_timer_that_the_code_no_longer_sets_is_skipped():
    def program(with_timer):
        async def body(ctx, world):
            await ctx.tool(world.act, "a", 0.0)
            if with_timer:
                await asyncio.sleep(5)
            await ctx.tool(world.act, "b", 0.0)
            return "done"

        return body

    killed = killed_at_its_last_step(program(True))
    second = play(program(False), events=killed.events)
    assert (second.output, second.world.executed) == ("done", [])


def test_a_call_that_is_awaited_after_its_outcome_was_passed_over_still_gets_it():
    """In a rerun the recorded order may be left; what was recorded is not lost."""

    def program(swapped):
        async def body(ctx, world):
            if swapped:
                first, second = ctx.tool(world.act, "a", 0.0), ctx.tool(world.act, "b", 0.0)
                return [await second, await first]
            return [await ctx.tool(world.act, "a", 0.0), await ctx.tool(world.act, "b", 0.0)]

        return body

    killed = killed_at_its_last_step(program(False))
    second = play(program(True), events=killed.events, on_drift="rerun")
    assert (second.output, second.world.executed) == (["b", "a"], [])
