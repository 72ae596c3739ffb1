"""Replay: what runs again after a crash or a failure, and how changed code is noticed before anything runs."""

from __future__ import annotations

import asyncio

from perdure.definitions import tool
from perdure.errors import ToolFailed
from perdure.events import NodeStarted
from tests.bed.lanes import crash_everywhere, play
from tests.bed.programs import executed_after, nodes, refuse, world_of


def test_a_loop_of_1000_tools_killed_at_700_runs_300_and_replays_700():
    async def body(ctx, world):
        for n in range(1000):
            await ctx.tool(world.act, n, 0.0)

    whole = play(body)
    first = play(body, crash_after=702)
    second = play(body, seed=5, events=first.events)
    assert second.world.executed == list(range(700, 1000))
    assert second.ending.replayed == 700
    assert nodes(second).keys() == nodes(whole).keys()


def test_a_renamed_finished_step_is_drift_with_both_names_and_lines_and_nothing_executed():
    def program(name):
        async def act(n: int) -> int:
            log.append((name, n))
            return n

        async def body(ctx, world):
            for n in range(10):
                await ctx.tool(tool(act, name=name if n == 7 else "step"), n)

        return body

    log: list = []
    first = play(program("fetch"), crash_after=12)
    del log[:]
    second = play(program("build"), events=first.events)
    assert second.ending.status == "blocked"
    assert second.ending.code == "replay_mismatch"
    assert "tool fetch" in second.ending.reason
    assert "tool build" in second.ending.reason
    assert second.ending.reason.count("test_changes.py:") == 2
    assert "--on-drift rerun" in second.ending.reason
    assert log == []


def test_patched_takes_the_old_side_in_an_old_run_and_the_new_side_in_a_new_one():
    def program(patched):
        async def body(ctx, world):
            await ctx.tool(world.act, "a")
            if patched and await ctx.patched("x"):
                await ctx.tool(world.act, "new")
            else:
                await ctx.tool(world.act, "old")
            await ctx.tool(world.act, "z")

        return body

    whole = play(program(False))
    for cut in (4, 5):
        first = play(program(False), crash_after=cut)
        assert executed_after(program(True), first).ending.status == "completed"
        assert "new" not in executed_after(program(True), first).world.executed
    assert play(program(True)).world.executed == ["a", "new", "z"]
    assert whole.world.executed == ["a", "old", "z"]
    crash_everywhere(program(True))


def test_patched_before_a_step_whose_start_only_is_recorded_takes_the_old_side():
    def program(patched):
        async def body(ctx, world):
            if patched and await ctx.patched("x"):
                await ctx.tool(world.act, "new")
            else:
                await ctx.tool(world.act, "slow", 10.0)

        return body

    first = play(program(False), crash_after=3)  # run started, running, and the slow step's start
    assert isinstance(first.events[-1].event, NodeStarted)
    assert executed_after(program(True), first).world.executed == ["slow"]


def test_a_failure_that_ended_the_run_runs_again_and_one_that_was_caught_replays():
    async def ends(ctx, world):
        await ctx.tool(world.act, "a")
        await ctx.tool(refuse, world_of(world), "deploy")

    async def caught(ctx, world):
        try:
            await ctx.tool(refuse, world_of(world), "deploy")
        except ToolFailed:
            await ctx.tool(world.act, "rollback")
        await ctx.tool(world.act, "next")

    first = play(ends)
    assert first.ending.status == "failed"
    again = executed_after(ends, first)
    assert again.world.executed == ["deploy"]
    killed = play(caught, crash_after=4)
    assert killed.world.executed[:2] == ["deploy", "rollback"]
    assert executed_after(caught, killed).world.executed == ["next"]


def test_a_failed_deploy_with_cleanup_in_finally_runs_both_again():
    async def body(ctx, world):
        try:
            await ctx.tool(refuse, world_of(world), "deploy")
        finally:
            await ctx.tool(world.act, "cleanup")

    first = play(body)
    assert first.ending.status == "failed"
    second = executed_after(body, first)
    assert second.world.executed == ["deploy", "cleanup"]
    third = executed_after(body, second)
    assert third.world.executed == ["deploy", "cleanup"]


def test_a_failure_in_one_gathered_branch_leaves_the_other_branch_recorded():
    async def good(ctx, world):
        for n in range(4):
            await ctx.tool(world.act, f"b{n}", 0.01)

    async def bad(ctx, world):
        await ctx.tool(world.act, "a0", 0.0)
        await ctx.tool(refuse, world_of(world), "a1")

    async def body(ctx, world):
        results = await asyncio.gather(bad(ctx, world), good(ctx, world), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    first = play(body)
    assert first.ending.status == "failed"
    assert len(first.ending.failed) == 1
    assert executed_after(body, first).world.executed == ["a1"]


def test_a_crashed_run_that_ends_only_by_recorded_failures_sets_them_aside_and_goes_on_once():
    attempts = []

    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 2:
            raise ValueError("first time")
        return "done"

    async def body(ctx, world):
        return await ctx.tool(flaky)

    whole = play(body)
    assert whole.ending.status == "failed"
    del attempts[:]
    killed = play(body, crash_after=len(whole.events) - 1)  # the failure is recorded, the run's end is not
    assert killed.ending is None
    second = executed_after(body, killed)
    assert second.ending.status == "completed"
    assert second.output == "done"
    assert len(attempts) == 2


def test_a_renamed_helper_blocks_and_names_the_recorded_tool_and_lane():
    def program(renamed):
        async def review(ctx, world):
            await ctx.tool(world.act, "build", 0.0)

        async def inspect(ctx, world):
            await ctx.tool(world.act, "build", 0.0)

        async def body(ctx, world):
            await asyncio.gather((inspect if renamed else review)(ctx, world))
            await ctx.tool(world.act, "end")

        return body

    first = play(program(False), crash_after=3)
    second = executed_after(program(True), first)
    assert second.ending.status == "blocked"
    assert "tool act" in second.ending.reason
    assert "review" in second.ending.reason
    assert second.world.executed == []


def test_a_removed_step_blocks_and_rerun_matches_the_rest_by_position_and_digest():
    def program(removed):
        async def body(ctx, world):
            await ctx.tool(world.act, "a")
            if not removed:
                await ctx.tool(world.act, "b")
            await ctx.tool(world.act, "c")
            await ctx.tool(world.act, "d")

        return body

    first = play(program(False), crash_after=6)
    blocked = executed_after(program(True), first)
    assert blocked.ending.status == "blocked"
    assert blocked.world.executed == []
    second = executed_after(program(True), first, on_drift="rerun")
    assert second.ending.status == "completed"
    assert second.world.executed == ["c", "d"]


def test_a_branch_added_in_front_of_named_lanes_swaps_nothing():
    def program(more):
        async def branch(ctx, world, name):
            world.notes.append((name, await ctx.tool(pick)))

        async def pick() -> int:
            picks.append(1)
            return len(picks)

        async def body(ctx, world):
            names = (["new"] if more else []) + ["x", "y"]
            await ctx.parallel({n: branch(ctx, world, n) for n in names})
            await ctx.tool(world.act, "end", 5.0)

        return body

    picks: list = []
    first = play(program(False), crash_after=4)
    second = executed_after(program(True), first)
    assert set(first.world.notes) <= set(second.world.notes)
