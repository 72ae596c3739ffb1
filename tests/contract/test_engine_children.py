"""Child runs through the whole engine and the real store: their ids, their records, their ends."""

from __future__ import annotations

import asyncio

import pytest

from perdure.definitions import tool, workflow
from perdure.errors import ChildFailed, StorageUnavailable
from perdure.events import NodeAbandoned, NodeFinished, NodeStarted, RunStarted, StatusChanged
from tests.bed.engines import House, at

DID: list = []


@pytest.fixture
def house(tmp_path):
    del DID[:]
    return House(tmp_path)


async def act(what: str) -> str:
    DID.append(what)
    return what


async def slowly(what: str) -> str:
    await asyncio.sleep(0.02)
    return await act(what)


async def fails_at_first(what: str) -> str:
    DID.append(f"{what} tried")
    if DID.count(f"{what} tried") == 1:
        raise ValueError(f"{what} refused")
    return what


@workflow
async def leaf(ctx, name: str) -> str:
    await ctx.tool(act, f"{name} one")
    return await ctx.tool(act, f"{name} two")


@workflow
async def middle(ctx, name: str) -> list:
    await ctx.tool(act, f"{name} before")
    return [(await ctx.workflow(leaf, name=f"{name}/leaf")).output, await ctx.tool(act, f"{name} after")]


async def two_levels(ctx) -> list:
    return [(await ctx.workflow(middle, name="m")).output, await ctx.tool(act, "root")]


def finish_in(name, position, when):
    """A cut at the outcome of a position of a child, told by the name of its tool's value."""
    return lambda event: (
        when
        if isinstance(event, NodeFinished) and event.key == f"f:{position}" and name in bytes(event.value)
        else None
    )


def ids(rows):
    return [(row.run_id, row.parent_run_id, row.parent_position) for row in rows]


def test_each_run_writes_under_its_own_id_and_reads_only_its_own_records(house):
    async def scenario(house):
        run_id, ending = await (await house.process()).run(two_levels)
        rows = await house.journal.tree(run_id)
        own = {row.name: [s.event async for s in house.journal.read(row.run_id)] for row in rows[1:]}
        return ending, rows, own

    ending, rows, own = house.play(scenario)
    assert ending.value == [["m/leaf two", "m after"], "root"]
    root, second, third = rows
    assert (second.parent_run_id, third.parent_run_id) == (root.run_id, second.run_id)
    assert [row.status for row in rows] == ["completed"] * 3
    assert [bytes(e.value) for e in own["leaf"] if isinstance(e, NodeFinished)] == [b'"m/leaf one"', b'"m/leaf two"']
    assert {e.position for e in own["middle"] if isinstance(e, NodeFinished)} == {"/:0", "/:1", "/:2"}


@pytest.mark.parametrize(
    ("cut", "again"),
    [
        (at(NodeStarted, "after", kind="boundary"), ["m before"]),
        (finish_in(b"leaf one", "/:0", "before"), ["m/leaf one"]),
        (finish_in(b"leaf one", "/:0", "after"), []),
        (finish_in(b"leaf two", "/:1", "after"), []),
        (at(StatusChanged, "before", status="completed"), []),
        (at(StatusChanged, "after", status="completed"), []),
        (finish_in(b'"workflow":"leaf"', "/:1", "before"), []),
        (finish_in(b'"workflow":"leaf"', "/:1", "after"), []),
    ],
)
def test_killed_anywhere_two_levels_go_on_under_the_same_ids_and_finish_once(house, cut, again):
    async def scenario(house):
        run_id = await house.killed(two_levels, cut)
        before = ids(await house.journal.tree(run_id))
        ending = await (await house.heir()).resume(run_id, two_levels)
        return ending, before, await house.journal.tree(run_id), await house.events(run_id)

    ending, before, rows, events = house.play(scenario)
    assert ending.value == [["m/leaf two", "m after"], "root"]
    assert ids(rows)[: len(before)] == before
    assert [row.status for row in rows] == ["completed"] * 3
    outcomes = [(s.run_id, s.event.position) for s in events if isinstance(s.event, NodeFinished)]
    assert len(outcomes) == len(set(outcomes)) == 7
    assert len([s for s in events if isinstance(s.event, RunStarted)]) == 3
    twice = [what for what in dict.fromkeys(DID) if DID.count(what) > 1]
    assert [what for what in twice if what not in again] == []


def test_children_that_started_in_reverse_get_their_own_results_again(house):
    pace = {"x": 0.03, "y": 0.0}

    async def paced(ctx, name):
        await ctx.tool(waits, name)
        return (await ctx.workflow(leaf, name=name)).output

    async def waits(name: str) -> None:
        await asyncio.sleep(pace[name])

    async def body(ctx) -> dict:
        got = await ctx.parallel({name: paced(ctx, name) for name in ("x", "y")})
        await ctx.tool(act, "end")
        return got

    async def scenario(house):
        run_id = await house.killed(body, finish_in(b"end", "/:0", "before"))
        pace.update(x=0.0, y=0.03)
        return await (await house.heir()).resume(run_id, body)

    assert house.play(scenario).value == {"x": "x two", "y": "y two"}
    assert [DID.count(f"{name} {n}") for name in "xy" for n in ("one", "two")] == [1, 1, 1, 1]


# --- how a child ends


@pytest.mark.parametrize("status", ["completed", "skipped", "cancelled", "blocked", "failed"])
def test_a_child_that_exits_gives_its_parent_the_status_and_the_partial_output(house, status):
    @workflow
    async def leaves(ctx) -> int:
        ctx.exit(status, reason="enough", output={"partial": 1})

    async def body(ctx) -> list:
        got = await ctx.workflow(leaves)
        return [got.exited, got.status, got.output, got.exit_reason, got.workflow]

    async def scenario(house):
        return (await (await house.process()).run(body))[1]

    assert house.play(scenario).value == [True, status, {"partial": 1}, "enough", "leaves"]


def test_a_child_that_fails_raises_with_its_failure_as_the_cause_and_may_be_caught(house):
    @workflow
    async def breaks(ctx) -> None:
        await ctx.tool(fails_at_first, "deploy")

    async def body(ctx) -> list:
        try:
            await ctx.workflow(breaks)
        except ChildFailed as error:
            return [error.failure.code, error.failure.message, error.details["workflow"]]

    async def scenario(house):
        return (await (await house.process()).run(body))[1]

    code, message, name = house.play(scenario).value
    assert (code, name) == ("unknown", "breaks")
    assert "deploy refused" in message


def test_a_failure_inside_a_child_that_ended_the_run_re_enters_it_under_the_same_ids(house):
    @workflow
    async def breaks(ctx) -> str:
        await ctx.tool(act, "child before")
        return await ctx.tool(fails_at_first, "deploy")

    @workflow
    async def between(ctx) -> str:
        await ctx.tool(act, "between before")
        return (await ctx.workflow(breaks)).output

    async def body(ctx) -> str:
        await ctx.tool(act, "root before")
        return (await ctx.workflow(between)).output

    async def scenario(house):
        process = await house.process()
        run_id, failed = await process.run(body)
        before = ids(await house.journal.tree(run_id))
        resumed = await process.resume(run_id, body)
        return failed, before, resumed, await house.journal.tree(run_id)

    failed, before, resumed, rows = house.play(scenario)
    assert (failed.status, failed.failed) == ("failed", ("/:1",))
    assert (resumed.status, resumed.value) == ("completed", "deploy")
    assert ids(rows) == before
    assert [row.status for row in rows] == ["completed"] * 3
    assert DID == ["root before", "between before", "child before", "deploy tried", "deploy tried"]


def test_a_failed_child_that_the_parent_caught_replays_as_failed(house):
    @workflow
    async def breaks(ctx) -> None:
        await ctx.tool(fails_at_first, "deploy")

    async def body(ctx) -> str:
        try:
            await ctx.workflow(breaks)
        except ChildFailed:
            await ctx.tool(act, "rollback")
        return await ctx.tool(act, "next")

    async def scenario(house):
        run_id = await house.killed(body, lambda e: "before" if e.key == "f:/:2" else None)
        return await (await house.heir()).resume(run_id, body)

    assert house.play(scenario).value == "next"
    assert DID == ["deploy tried", "rollback", "next", "next"]


# --- a parent that no longer waits


BEGUN = []  # the event that the child below sets


async def begins(what: str) -> str:
    BEGUN[-1].set()
    return await slowly(what)


@workflow
async def long(ctx) -> int:
    for n in range(100):
        await ctx.tool(begins, f"step {n}")
    return 100


def test_a_child_that_the_code_stops_waiting_for_is_stopped_and_does_nothing_more(house):
    async def body(ctx) -> int:
        BEGUN.append(asyncio.Event())
        child = asyncio.create_task(ctx.workflow(long))
        await BEGUN[-1].wait()
        child.cancel()
        await asyncio.wait([child])
        seen = len(DID)
        await ctx.sleep(0.1)
        return len(DID) - seen

    async def scenario(house):
        run_id, ending = await (await house.process()).run(body)
        return ending, await house.journal.tree(run_id), await house.of(run_id, NodeAbandoned)

    ending, rows, abandoned = house.play(scenario)
    assert ending.value == 0
    assert [row.status for row in rows] == ["completed", "cancelled"]
    assert "skipped" in {e.status for e in abandoned}


def test_an_exit_of_the_parent_records_its_running_children_as_cancelled_before_its_own_end(house):
    @workflow
    async def outer(ctx) -> int:
        return (await ctx.workflow(long)).output

    async def body(ctx) -> None:
        BEGUN.append(asyncio.Event())
        behind = asyncio.create_task(ctx.workflow(outer))
        await BEGUN[-1].wait()
        ctx.exit("skipped")
        await behind

    async def scenario(house):
        run_id, ending = await (await house.process()).run(body)
        ends = [s for s in await house.events(run_id) if isinstance(s.event, StatusChanged)]
        return ending, [(s.run_id == run_id, s.event.status, s.event.reason) for s in ends[3:]]

    ending, ends = house.play(scenario)
    assert ending.status == "skipped"
    assert ends == [(False, "cancelled", "parent_exited"), (False, "cancelled", "parent_exited"), (True, "skipped", "")]


def test_a_child_cancelled_by_a_failed_sibling_goes_on_where_it_was_when_the_run_is_resumed(house):
    @workflow
    async def three(ctx) -> str:
        for n in range(3):
            await ctx.tool(slowly, f"step {n}")
        return "three"

    async def fails_later(ctx):
        await ctx.tool(slowly, "sibling")
        await ctx.tool(fails_at_first, "deploy")

    async def body(ctx) -> list:
        got = await ctx.parallel([ctx.workflow(three), fails_later(ctx)])
        return [got[0].output, got[1]]

    async def scenario(house):
        process = await house.process()
        run_id, failed = await process.run(body)
        before = [(row.run_id, row.status) for row in await house.journal.tree(run_id)]
        resumed = await process.resume(run_id, body)
        return failed, before, resumed, [(row.run_id, row.status) for row in await house.journal.tree(run_id)]

    failed, before, resumed, after = house.play(scenario)
    assert [status for _, status in before] == ["failed", "cancelled"]
    assert (failed.status, resumed.status, resumed.value) == ("failed", "completed", ["three", None])
    assert [run_id for run_id, _ in before] == [run_id for run_id, _ in after]
    assert [status for _, status in after] == ["completed", "completed"]
    assert DID.count("step 0") == 1


# --- refusals


def test_drift_inside_a_child_blocks_the_whole_run_and_executes_nothing(house):
    def program(name):
        @workflow
        async def child(ctx) -> str:
            await ctx.tool(act, "child a")
            await ctx.tool(tool(act, name=name), "child b")
            return await ctx.tool(act, "child c")

        async def body(ctx) -> str:
            return (await ctx.workflow(child)).output

        return body

    async def scenario(house):
        run_id = await house.killed(program("fetch"), finish_in(b"child c", "/:2", "before"))
        heir = await house.heir()
        del DID[:]
        ending = await heir.resume(run_id, program("build"))
        done = list(DID)
        return ending, done, await heir.resume(run_id, program("fetch"))

    ending, done, resumed = house.play(scenario)
    assert (ending.status, ending.code, done) == ("blocked", "replay_mismatch", [])
    assert "tool fetch" in ending.reason
    assert "tool build" in ending.reason
    assert (resumed.status, DID) == ("completed", ["child c"])


def test_another_child_or_other_inputs_at_its_place_are_drift_before_any_child_code_runs(house):
    def program(name):
        async def body(ctx) -> str:
            await ctx.workflow(leaf, name=name)
            return await ctx.tool(act, "end")

        return body

    async def scenario(house):
        run_id = await house.killed(program("x"), finish_in(b"end", "/:1", "before"))
        del DID[:]
        return await (await house.heir()).resume(run_id, program("y")), len(await house.journal.tree(run_id))

    ending, runs = house.play(scenario)
    assert (ending.code, DID, runs) == ("replay_mismatch", [], 2)


def test_the_store_failing_in_a_child_stops_the_whole_run_and_a_resume_goes_on(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(two_levels)
        process.plug.break_on = lambda e: (
            StorageUnavailable("away") if finish_in(b"leaf two", "/:1", "before")(e) else None
        )
        ending = await execution.wait()
        process.plug.break_on = None
        statuses = [row.status for row in await house.journal.tree(execution.run_id)]
        return ending, statuses, await process.resume(execution.run_id, two_levels)

    ending, statuses, resumed = house.play(scenario)
    assert (ending.recorded, ending.code, statuses) == (False, "storage_unavailable", ["running"] * 3)
    assert resumed.value == [["m/leaf two", "m after"], "root"]
