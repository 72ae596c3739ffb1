"""What `ctx` tells about the run, `ctx.patched`, and what becomes of records that the code no longer asks for."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import CallOutsideLane, NotAvailable, UsageError
from perdure.events import NodeStarted, Patched
from tests.bed.engines import House, definition_of
from tests.bed.lanes import ROOT, crash_everywhere, play


def test_a_run_knows_itself():
    async def body(ctx, world):
        inputs = ctx.inputs
        inputs["more"] = 1  # a copy
        return [ctx.run_id, ctx.workflow_name, dict(ctx.inputs), str(ctx.cwd), ctx.attempt, ctx.log.extra["run_id"]]

    assert play(body).output == [ROOT, "program", {}, "/", 1, ROOT]


def test_the_attempt_counts_the_executions():
    async def body(ctx, world):
        await ctx.tool(world.act, "a", 1.0)
        return ctx.attempt

    assert play(body, events=play(body, crash_after=3).events).output == 2


def test_messages_between_stages_are_not_there_yet_and_say_so():
    async def body(ctx, world):
        with pytest.raises(NotAvailable):
            ctx.send("review", "hello")

    assert play(body).ending.status == "completed"


def test_a_body_that_makes_no_step_completes():
    async def body(ctx, world):
        return 7

    result = play(body)
    assert (result.ending.status, result.output, len(result.events)) == ("completed", 7, 3)


def test_its_place_is_taken_at_the_call_not_at_the_await():
    async def body(ctx, world):
        second, first = ctx.tool(world.act, "called first"), ctx.tool(world.act, "called second")
        return [await first, await second]

    result = play(body)
    assert result.output == ["called second", "called first"]
    crash_everywhere(body)


def test_a_call_that_is_never_awaited_leaves_no_trace():
    async def body(ctx, world):
        ctx.tool(world.act, "forgotten").close()
        await ctx.tool(world.act, "a")

    result = play(body)
    assert result.world.executed == ["a"]
    assert all(getattr(s.event, "position", "/:1") == "/:1" for s in result.events)


# --- patched


def patches(result):
    return [(s.event.name, s.event.new) for s in result.events if isinstance(s.event, Patched)]


def test_patched_needs_a_name_and_a_lane():
    async def body(ctx, world):
        with pytest.raises(UsageError):
            await ctx.patched("")
        refused = []

        def callback():
            with pytest.raises(CallOutsideLane):
                ctx.patched("x").send(None)
            refused.append(1)

        asyncio.get_running_loop().call_soon(callback)
        await asyncio.sleep(0)
        return refused

    assert play(body).output == [1]


def test_asked_twice_it_says_the_same_and_is_recorded_once():
    async def body(ctx, world):
        sides = [await ctx.patched("x")]
        await ctx.tool(world.act, "a")
        return [*sides, await ctx.patched("x")]

    result = play(body)
    assert (result.output, patches(result)) == ([True, True], [("x", True)])


def test_behind_everything_that_is_recorded_the_new_side_is_taken_though_a_timer_fired_before():
    def program(patched):
        async def body(ctx, world):
            await asyncio.sleep(1)
            with_timeout = ctx.tool(world.act, "a", 0.0)
            await asyncio.wait_for(with_timeout, 50)
            if patched and await ctx.patched("x"):
                return await ctx.tool(world.act, "new")
            return await ctx.tool(world.act, "old")

        return body

    whole = play(program(False))
    killed = play(program(False), crash_after=len(whole.events) - 2)
    assert killed.world.executed == ["a", "old"]
    second = play(program(True), events=killed.events)
    assert (second.ending.status, second.output) == ("completed", "new")


# --- records that nobody asks for


def program_with(*, slow):
    async def body(ctx, world):
        await ctx.tool(world.act, "a", 0.0)
        if slow:
            await ctx.tool(world.act, "slow", 10.0)
        return "done"

    return body


def test_a_recorded_start_that_no_call_asks_for_is_a_warning_that_names_the_step():
    killed = play(program_with(slow=True), crash_after=4)
    assert isinstance(killed.events[-1].event, NodeStarted)
    second = play(program_with(slow=False), events=killed.events)
    assert second.output == "done"
    (warning,) = second.warnings
    assert "tool act in lane /" in warning
    assert "test_context.py:" in warning


def test_a_recorded_outcome_that_no_call_asks_for_is_drift_even_at_the_very_end():
    whole = play(program_with(slow=True))
    killed = play(program_with(slow=True), crash_after=len(whole.events) - 1)
    second = play(program_with(slow=False), events=killed.events)
    assert (second.ending.status, second.world.executed) == ("blocked", [])


def test_an_exit_that_comes_earlier_than_it_did_warns_of_what_it_leaves_behind():
    def program(early):
        async def body(ctx, world):
            await ctx.tool(world.act, "a", 0.0)
            if early:
                ctx.exit("skipped")
            await ctx.tool(world.act, "b", 0.0)

        return body

    whole = play(program(False))
    killed = play(program(False), crash_after=len(whole.events) - 1)
    second = play(program(True), events=killed.events)
    assert second.ending.status == "skipped"
    assert ["(1): tool act" in warning for warning in second.warnings] == [True]


def test_a_resume_of_unchanged_code_warns_of_nothing():
    for body in (program_with(slow=True), program_with(slow=False)):
        crash_everywhere(body)


# --- through the whole engine


def test_the_options_of_a_run_are_kept_for_its_resume(tmp_path):
    async def body(ctx) -> str:
        return str(ctx.cwd)

    async def scenario(house):
        process = await house.process()
        run_id = await process.engine.create(definition_of(body), {}, house.options(stages_max=2, seed=5))
        execution = await process.reopen(run_id, body)
        ending = await execution.wait()
        return ending.value, execution.tree.options.stages_max, execution.tree.options.seed

    assert House(tmp_path).play(scenario) == (str(tmp_path), 2, 5)
