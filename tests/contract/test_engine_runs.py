"""Starting, resuming and ending runs through the whole engine: refusals, many at once, odd endings."""

from __future__ import annotations

import asyncio
import logging

import pytest
from pydantic import BaseModel

from perdure.definitions import workflow
from perdure.errors import ControlRefused, InputInvalid, OutputInvalid, TargetNotFound, ToolFailed
from perdure.events import NodeFinished, RunStarted, StatusChanged, UsageRecorded
from perdure.store.journal import Item
from tests.bed.engines import House, at, definition_of, finish_of, until

DID: list = []


@pytest.fixture
def house(tmp_path):
    del DID[:]
    return House(tmp_path)


async def act(what: str) -> str:
    DID.append(what)
    return what


async def one_step(ctx) -> str:
    return await ctx.tool(act, "a")


def ending_of(house, body):
    async def scenario(house):
        run_id, ending = await (await house.process()).run(body)
        return ending, await house.events(run_id)

    return house.play(scenario)


# --- refusals


@pytest.mark.parametrize("status", ["completed", "skipped", "cancelled", "blocked", "failed"])
def test_a_run_that_ended_for_good_cannot_be_resumed_and_nothing_is_written(house, status):
    async def body(ctx) -> None:
        ctx.exit(status)

    async def scenario(house):
        process = await house.process()
        run_id, _ = await process.run(body)
        before = await house.events(run_id)
        with pytest.raises(ControlRefused) as refused:
            await process.reopen(run_id, body)
        return refused.value.reason, before == await house.events(run_id)

    assert house.play(scenario) == ("not_resumable", True)


def test_what_cannot_be_resumed_is_refused_and_leaves_the_lease_free(house):
    @workflow
    async def child(ctx) -> str:
        return await ctx.tool(act, "child")

    async def parent(ctx) -> str:
        await ctx.workflow(child)
        return await ctx.tool(act, "parent")

    async def scenario(house):
        run_id = await house.killed(parent, finish_of("/:1", "before"))
        heir = await house.heir()
        below = (await house.journal.tree(run_id))[1].run_id
        with pytest.raises(ControlRefused) as part:
            await heir.reopen(below, parent)
        with pytest.raises(InputInvalid, match="program"):
            await heir.engine.resume(run_id, workflow(name="another")(parent), house.options())
        with pytest.raises(TargetNotFound):
            await heir.reopen("0193e8a0-0000-7000-8000-000000000001", parent)
        return part.value, run_id, await (await house.process()).resume(run_id, parent)

    refusal, run_id, ending = house.play(scenario)
    assert (refusal.reason, run_id in refusal.message) == ("invalid_target", True)
    assert ending.value == "parent"


def test_a_run_that_ended_between_the_look_and_the_lease_is_refused_as_changed(house):
    async def scenario(house):
        process = await house.process()
        run_id = await house.killed(one_step, at(StatusChanged, "before", status="completed"))
        heir = await house.heir()
        ended = await heir.resume(run_id, one_step)
        look = process.engine._journal.row

        async def as_it_was(run_id):
            await look(run_id)
            return type("Row", (), {"parent_run_id": None, "status": "running", "resumable": True, "process": None})

        process.engine._journal.row = as_it_was
        with pytest.raises(ControlRefused) as refused:
            await process.reopen(run_id, one_step)
        return ended.status, refused.value.reason

    assert house.play(scenario) == ("completed", "changed")


def test_five_levels_are_refused_naming_the_chain(house):
    @workflow(max_depth=9)
    async def deep(ctx, n: int) -> str:
        return (await ctx.workflow(wide, n=n)).output

    @workflow
    async def wide(ctx, n: int) -> str:
        return (await ctx.workflow(wide, n=n + 1)).output

    async def body(ctx) -> str:
        return (await ctx.workflow(deep, n=1)).output

    async def scenario(house):
        run_id, ending = await (await house.process()).run(body)
        return ending, await house.journal.tree(run_id)

    ending, rows = house.play(scenario)
    assert ending.status == "failed"
    assert "program > deep > wide > wide > wide" in ending.failure.message
    assert "max_depth" in ending.failure.message
    assert len(rows) == 4


# --- what a run keeps


class Plan(BaseModel):
    steps: list[str]


def test_typed_inputs_come_back_typed_in_the_resumed_run(house):
    seen = []

    @workflow
    async def planned(ctx, plan: Plan, limit: int = 2) -> list:
        seen.append((type(plan).__name__, limit))
        return [await ctx.tool(act, step) for step in plan.steps[:limit]]

    async def scenario(house):
        process = await house.process()
        process.plug.cut = finish_of("/:1", "before")
        inputs = planned.validate_inputs({"plan": Plan(steps=["a", "b", "c"])})
        execution = await process.engine.start(planned, inputs, house.options())
        await process.plug.out.wait()
        return await (await house.heir()).resume(execution.run_id, planned)

    assert house.play(scenario).value == ["a", "b"]
    assert seen == [("Plan", 2), ("Plan", 2)]


def test_events_that_another_part_of_the_process_appends_under_the_same_lease_disturb_nothing(house):
    opened = asyncio.Event()

    async def waits(ctx) -> str:
        await ctx.tool(act, "a")
        await opened.wait()
        return await ctx.tool(act, "b")

    async def scenario(house):
        execution = await (await house.process()).start(waits)
        await until(lambda: DID == ["a"])
        usage = UsageRecorded(position="/:0", number=1, epoch=1, tokens_in=5)
        await house.journal.append(execution.tree.lease, Item(execution.run_id, usage))
        opened.set()
        return await execution.wait(), await house.events(execution.run_id)

    ending, events = house.play(scenario)
    assert ending.value == "b"
    assert [s.seq for s in events] == list(range(1, len(events) + 1))


def test_a_late_refusal_for_a_lease_that_was_replaced_does_not_touch_the_new_execution(house):
    async def scenario(house):
        process = await house.process()
        held = asyncio.Event()

        async def waits(ctx) -> str:
            await held.wait()
            return await ctx.tool(act, "a")

        old = await process.start(waits)
        await asyncio.sleep(0)
        old.quit()
        await old.wait()
        new = await process.reopen(old.run_id, waits)
        await process.engine._renew([old.tree])  # the answer to a renewal that was under way
        held.set()
        return old.tree.log.lost, await new.wait()

    lost, ending = house.play(scenario)
    assert lost.code == "stale_lease"
    assert ending.status == "completed"


def test_200_runs_at_once_in_one_process_all_end_and_share_their_commits(house):
    async def three(ctx) -> int:
        for n in range(3):
            await ctx.tool(act, str(n))
        return 3

    async def scenario(house):
        process = await house.process()
        executions = await asyncio.gather(*(process.start(three) for _ in range(200)))
        endings = await asyncio.gather(*(execution.wait() for execution in executions))
        rows = await house.journal.catalog()
        return endings, rows, house.database.statistics

    endings, rows, statistics = house.play(scenario)
    assert {ending.value for ending in endings} == {3}
    assert {row.status for row in rows} == {"completed"}
    assert (len(rows), len(DID)) == (200, 600)
    assert statistics.commits < 200


def test_quitting_before_the_body_began_runs_nothing_and_a_resume_runs_it(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(one_step)
        execution.quit()
        ending = await execution.wait()
        done = list(DID)
        return ending, done, await process.resume(execution.run_id, one_step)

    ending, done, resumed = house.play(scenario)
    assert (ending.status, done, resumed.value) == ("paused", [], "a")


# --- odd endings


def test_code_that_awaits_something_cancelled_fails_the_run_and_may_be_resumed(house):
    async def body(ctx) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    ending, _ = ending_of(house, body)
    assert (ending.status, ending.code, ending.resumable) == ("failed", "cancelled", True)


def test_the_failures_in_a_group_of_exceptions_are_all_set_aside(house):
    async def fails_at_first(what: str) -> str:
        DID.append(what)
        if DID.count(what) == 1:
            raise ValueError(what)
        return what

    async def body(ctx) -> list:
        got = await asyncio.gather(*(wrapped(ctx, what) for what in ("x", "y")), return_exceptions=True)
        if errors := [one for one in got if isinstance(one, Exception)]:
            raise ExceptionGroup("both", errors)
        return got

    async def wrapped(ctx, what):
        try:
            return await ctx.tool(fails_at_first, what)
        except ToolFailed as error:
            raise RuntimeError("wrapped") from error

    async def scenario(house):
        process = await house.process()
        run_id, failed = await process.run(body)
        return failed, await process.resume(run_id, body)

    failed, resumed = house.play(scenario)
    assert failed.status == "failed"
    assert (resumed.status, resumed.value) == ("completed", ["x", "y"])


def test_a_lane_that_is_left_behind_is_cancelled_when_the_body_ends(house):
    async def body(ctx) -> str:
        async def behind():
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                DID.append("cancelled")

        task = asyncio.create_task(behind())
        await ctx.tool(act, "a")
        DID.append(task.done())
        return "done"

    ending, _ = ending_of(house, body)
    assert (ending.value, DID) == ("done", ["a", False, "cancelled"])


def test_a_failing_assertion_of_the_author_is_a_failure_like_any_other(house):
    async def body(ctx) -> None:
        assert await ctx.tool(act, "a") == "b", "not b"

    ending, _ = ending_of(house, body)
    assert (ending.status, ending.code, ending.resumable) == ("failed", "unknown", True)
    assert "not b" in ending.failure.message


def test_a_failing_assertion_of_the_engine_ends_the_run_as_corrupt_and_for_good(house, caplog):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(one_step)

        async def broken():
            raise AssertionError("impossible")

        execution.tree.root.spawn(broken(), "broken")
        return await execution.wait()

    with caplog.at_level(logging.CRITICAL, "perdure.engine"):
        ending = house.play(scenario)
    assert (ending.status, ending.code, ending.resumable) == ("failed", "corrupt", False)


def test_a_result_that_does_not_fit_the_tools_annotation_is_not_recorded_as_success(house):
    async def lies(what: str) -> Plan:
        return {"steps": what}

    async def body(ctx) -> str:
        try:
            return str(await ctx.tool(lies, "text"))
        except (ToolFailed, OutputInvalid) as error:
            return type(error).__name__

    ending, events = ending_of(house, body)
    assert ending.status == "completed"
    assert (ending.value, [s.event.status for s in events if isinstance(s.event, NodeFinished)]) == (
        "ToolFailed", ["failed"],
    )  # fmt: skip


def test_the_beginning_of_a_run_names_its_definition_inputs_and_options(house):
    ending, events = ending_of(house, definition_of(one_step))
    started = events[0].event
    assert ending.status == "completed"
    assert isinstance(started, RunStarted)
    assert (started.name, bytes(started.inputs), started.cwd) == ("program", b"{}", str(house.folder))
    assert started.definition.endswith("test_engine_runs.py")
    assert started.options["stages_max"] == 4
