"""A process dies at a given event, another one takes the run over: what runs again, what does not, what it is called.

Through the whole engine and the real store. The lease of the dead process is waited out by moving the store's clock.
"""

from __future__ import annotations

import asyncio

import pytest

from perdure.definitions import tool, workflow
from perdure.errors import ToolFailed
from perdure.events import NodeFinished, NodeStarted, RunStarted, StatusChanged
from perdure.operations.results import Failed
from tests.bed.engines import House, at, finish_of

DID: list = []


@pytest.fixture
def house(tmp_path):
    del DID[:]
    return House(tmp_path)


async def act(what: str) -> str:
    DID.append(what)
    return what


async def refuse(what: str) -> None:
    DID.append(what)
    raise ValueError(f"{what} refused")


def crashed(house, body, cut, **options):
    """How the run ends that died at `cut` and was resumed by another process: (ending, its whole journal)."""

    async def scenario(house):
        run_id = await house.killed(body, cut, **options)
        heir = await house.heir()
        ending = await heir.resume(run_id, body)
        return ending, await house.events(run_id)

    return house.play(scenario)


def positions(events, kind=NodeFinished):
    return [s.event.position for s in events if isinstance(s.event, kind)]


async def two_steps(ctx) -> list:
    return [await ctx.tool(act, "a"), await ctx.tool(act, "b")]


def test_killed_before_its_outcome_is_committed_a_tool_runs_again_at_its_position(house):
    ending, events = crashed(house, two_steps, finish_of("/:1", "before"))
    assert ending.value == ["a", "b"]
    assert DID == ["a", "b", "b"]
    assert positions(events) == ["/:0", "/:1"]
    assert ending.replayed == 1


def test_killed_after_the_commit_but_before_anybody_saw_it_a_tool_does_not_run_again(house):
    ending, events = crashed(house, two_steps, finish_of("/:1", "after"))
    assert ending.value == ["a", "b"]
    assert DID == ["a", "b"]
    assert positions(events) == ["/:0", "/:1"]


def test_killed_right_after_its_creation_a_run_begins_from_the_start(house):
    async def scenario(house):
        first = await house.process()
        run_id = await first.engine.create(workflow(name="program")(two_steps), {}, house.options())
        assert (await house.journal.row(run_id)).status == "pending"
        return await (await house.process()).resume(run_id, two_steps)

    assert house.play(scenario).value == ["a", "b"]
    assert DID == ["a", "b"]


def test_killed_before_its_end_is_recorded_a_run_replays_everything_and_ends(house):
    ending, events = crashed(house, two_steps, at(StatusChanged, "before", status="completed"))
    assert (ending.status, ending.replayed, DID) == ("completed", 2, ["a", "b"])
    assert [s.event.epoch for s in events if isinstance(s.event, StatusChanged)] == [1, 2, 2]


def test_killed_after_its_end_is_recorded_a_run_has_ended(house):
    async def scenario(house):
        run_id = await house.killed(two_steps, at(StatusChanged, "after", status="completed"))
        return await house.journal.row(run_id)

    assert house.play(scenario).status == "completed"


def test_a_tool_of_which_only_the_start_is_recorded_runs(house):
    async def slow_at_first(what: str) -> str:
        if not DID:
            DID.append("began")
            await asyncio.get_running_loop().create_future()
        return await act(what)

    async def body(ctx) -> str:
        return await ctx.tool(slow_at_first, "a")

    ending, events = crashed(house, body, at(NodeStarted, "after"))
    assert (ending.value, DID) == ("a", ["began", "a"])
    assert positions(events, NodeStarted) == ["/:0"]


def test_a_failure_that_was_caught_replays_after_a_crash(house):
    async def body(ctx) -> str:
        try:
            await ctx.tool(refuse, "deploy")
        except ToolFailed:
            await ctx.tool(act, "rollback")
        return await ctx.tool(act, "next")

    ending, _ = crashed(house, body, finish_of("/:2", "before"))
    assert ending.value == "next"
    assert DID == ["deploy", "rollback", "next", "next"]


def test_a_failure_that_ended_the_run_runs_again_with_what_followed_it_and_the_rest_stays(house):
    async def body(ctx) -> str:
        await ctx.tool(act, "build")
        try:
            await ctx.tool(refuse, "deploy")
        finally:
            await ctx.tool(act, "cleanup")

    async def scenario(house):
        first = await house.process()
        run_id, ending = await first.run(body)
        again = await first.resume(run_id, body)
        return ending, again, await house.events(run_id)

    ending, again, events = house.play(scenario)
    assert (ending.status, ending.failed, again.status) == ("failed", ("/:1",), "failed")
    assert DID == ["build", "deploy", "cleanup", "deploy", "cleanup"]
    takes = [(s.event.position, s.event.take) for s in events if isinstance(s.event, NodeFinished)]
    assert takes == [("/:0", 0), ("/:1", 0), ("/:2", 0), ("/:1", 1), ("/:2", 1)]


def test_a_crashed_run_that_goes_on_after_a_recorded_failure_mixes_up_no_step_of_its_two_courses(house):
    """The first course after the crash records a cleanup where the second one, once the tool works, notifies."""

    async def deploy() -> str:
        DID.append("deploy")
        if DID.count("deploy") < 2:
            raise ValueError("not yet")
        return "deployed"

    async def body(ctx) -> list:
        try:
            deployed = await ctx.tool(deploy)
        except ToolFailed:
            await ctx.tool(act, "cleanup")
            raise
        return [deployed, await ctx.tool(act, "notify")]

    ending, events = crashed(house, body, finish_of("/:0", "after"))
    assert ending.value == ["deployed", "notify"]
    assert DID == ["deploy", "cleanup", "deploy", "notify"]
    assert positions(events) == ["/:0", "/:1", "/:0", "/:1"]


def test_outputs_of_null_and_nothing_replay_as_they_were(house):
    async def nothing(what: str) -> str | None:
        DID.append(what)
        return None if what == "null" else ""

    async def body(ctx) -> list:
        return [await ctx.tool(nothing, "null"), await ctx.tool(nothing, "empty"), await ctx.tool(act, "end")]

    ending, _ = crashed(house, body, finish_of("/:2", "before"))
    assert ending.value == [None, "", "end"]
    assert DID == ["null", "empty", "end", "end"]


@pytest.mark.parametrize("output", [None, "", 0, []])
def test_a_runs_own_empty_output_is_kept(house, output):
    async def body(ctx):
        await ctx.tool(act, "a")
        return output

    async def scenario(house):
        run_id, ending = await (await house.process()).run(body)
        last = (await house.of(run_id, StatusChanged))[-1]
        return ending.value, bytes(last.output)

    value, stored = house.play(scenario)
    assert value == output
    assert stored in {b"null", b'""', b"0", b"[]"}


def test_a_failure_returned_as_a_value_replays_as_one_and_its_node_stays_failed(house):
    @tool(on_error="return")
    async def give_up() -> str:
        DID.append("give up")
        raise ValueError("no")

    seen = []

    async def body(ctx) -> str:
        got = await ctx.tool(give_up)
        assert isinstance(got, Failed)
        seen.append(got.replayed)
        return await ctx.tool(act, got.error)

    ending, events = crashed(house, body, finish_of("/:1", "before"))
    assert (ending.status, ending.value, seen) == ("completed", "no", [False, True])
    assert [s.event.status for s in events if isinstance(s.event, NodeFinished)] == ["failed", "completed"]
    assert DID.count("give up") == 1


def test_of_two_equal_calls_only_the_one_without_an_outcome_runs(house):
    async def body(ctx) -> list:
        return [await ctx.tool(act, "a"), await ctx.tool(act, "a")]

    ending, _ = crashed(house, body, finish_of("/:1", "before"))
    assert ending.value == ["a", "a"]
    assert DID == ["a", "a", "a"]  # once recorded, once lost with the process, once again


def test_a_background_step_keeps_its_recorded_parents_whatever_the_timing_of_the_resume(house):
    pace = [0.03, 0.0]

    async def slowly(what: str) -> str:
        await asyncio.sleep(pace[0] if what == "background" else pace[1])
        return await act(what)

    async def body(ctx) -> list:
        behind = asyncio.create_task(ctx.tool(slowly, "background"))
        front = [await ctx.tool(slowly, f"front {n}") for n in range(3)]
        last = await ctx.tool(act, "last")
        return [*front, await behind, last, await ctx.tool(act, "end")]

    async def scenario(house):
        run_id = await house.killed(body, finish_of("/:5", "before"))
        before = parents_of(await house.events(run_id))
        pace.reverse()
        ending = await (await house.heir()).resume(run_id, body)
        return ending, before, parents_of(await house.events(run_id))

    ending, before, after = house.play(scenario)
    assert ending.status == "completed", ending
    assert before.items() <= after.items()


def parents_of(events):
    starts = [s.event if isinstance(s.event, NodeStarted) else getattr(s.event, "start", None) for s in events]
    return {start.position: start.parents for start in starts if start is not None}


def test_a_durable_timer_waits_only_what_is_left_and_nothing_when_its_time_has_passed(house):
    async def body(ctx) -> float:
        await ctx.sleep(500)  # the heir comes ten minutes later
        return await ctx.now()

    async def scenario(house):
        run_id = await house.killed(body, at(NodeStarted, "after"))
        began = asyncio.get_running_loop().real_time()
        ending = await (await house.heir()).resume(run_id, body)
        return ending, asyncio.get_running_loop().real_time() - began

    ending, took_s = house.play(scenario)
    assert ending.status == "completed"
    assert took_s < 5


def test_changed_code_is_found_before_anything_runs_and_can_be_told_to_go_on(house):
    def program(name):
        async def renamed(what: str) -> str:
            DID.append(f"{name} {what}")
            return what

        async def body(ctx) -> str:
            await ctx.tool(act, "a")
            await ctx.tool(tool(renamed, name=name), "b")
            return await ctx.tool(act, "c")

        return body

    async def scenario(house):
        run_id = await house.killed(program("fetch"), finish_of("/:2", "before"))
        heir = await house.heir()
        del DID[:]
        stopped = await heir.resume(run_id, program("build"))
        done_when_stopped = list(DID)
        row = await house.journal.row(run_id)
        went_on = await heir.resume(run_id, program("build"), on_drift="rerun")
        return stopped, done_when_stopped, row, went_on

    stopped, done, row, went_on = house.play(scenario)
    assert (stopped.status, stopped.code, done) == ("blocked", "replay_mismatch", [])
    assert "tool fetch" in stopped.reason
    assert "tool build" in stopped.reason
    assert (row.status, row.resumable) == ("blocked", True)
    assert (went_on.status, DID) == ("completed", ["build b", "c"])


def test_an_output_that_does_not_fit_its_annotation_fails_the_run_and_keeps_its_steps(house):
    @workflow
    async def wrong(ctx) -> dict[str, int]:
        return {"a": await ctx.tool(act, "text")}

    async def scenario(house):
        run_id, ending = await (await house.process()).run(wrong)
        return ending, await house.events(run_id)

    ending, events = house.play(scenario)
    assert (ending.status, ending.code) == ("failed", "output_invalid")
    assert "output.a" in ending.failure.message
    assert positions(events) == ["/:0"]
    assert isinstance(events[0].event, RunStarted)
