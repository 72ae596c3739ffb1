"""Quit: durable, idempotent, nothing the author catches undoes it, and a resume goes on from there."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.control import Control
from perdure.definitions import workflow
from perdure.errors import ControlRefused, Suspend
from perdure.events import NodeAbandoned, NodeFinished, StatusChanged
from perdure.store import open_database, requests
from tests.bed.engines import House, until

DID: list = []


@pytest.fixture
def house(tmp_path):
    del DID[:]
    return House(tmp_path)


async def act(what: str) -> str:
    DID.append(what)
    return what


async def waits_at_first(what: str) -> str:
    """A tool that in its first life waits for ever."""
    DID.append(f"{what} began")
    if DID.count(f"{what} began") == 1:
        await asyncio.get_running_loop().create_future()
    return await act(what)


async def body(ctx) -> list:
    return [await ctx.tool(act, "a"), await ctx.tool(waits_at_first, "b")]


async def quit_in(process, program, when):
    execution = await process.start(program)
    await until(when)
    execution.quit()
    return execution, await execution.wait()


def is_waiting():
    return "b began" in DID


def test_a_quit_is_durable_and_a_resume_runs_only_what_was_not_finished(house):
    async def scenario(house):
        process = await house.process()
        execution, ending = await quit_in(process, body, is_waiting)
        row = await house.journal.row(execution.run_id)
        events = await house.events(execution.run_id)
        return ending, row, events, await process.resume(execution.run_id, body)

    ending, row, events, resumed = house.play(scenario)
    assert (ending.status, ending.reason, ending.recorded) == ("paused", "quit", True)
    assert (row.status, row.resumable) == ("paused", True)
    assert [s.event.position for s in events if isinstance(s.event, NodeFinished)] == ["/:0"]
    assert not [s for s in events if isinstance(s.event, NodeAbandoned)]
    assert (resumed.value, DID) == (["a", "b"], ["a", "b began", "b began", "b"])


def test_quitting_twice_is_quitting_once(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(body)
        await until(is_waiting)
        execution.quit()
        execution.quit()
        ending = await execution.wait()
        execution.quit()
        return ending, await house.of(execution.run_id, StatusChanged)

    ending, changes = house.play(scenario)
    assert [e.status for e in changes] == ["running", "paused"]
    assert ending.status == "paused"


def test_leaving_the_engine_quits_what_still_runs(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(body)
        await until(is_waiting)
        await process.end()
        house.processes.clear()
        return (await execution.wait()).status, (await house.journal.row(execution.run_id)).status

    assert house.play(scenario) == ("paused", "paused")


@pytest.mark.parametrize("catch", [Suspend, BaseException])
def test_code_that_catches_the_signal_and_returns_cannot_complete_the_run(house, catch):
    async def catches(ctx) -> str:
        try:
            await ctx.tool(waits_at_first, "b")
        except (catch, asyncio.CancelledError):
            try:
                await ctx.tool(act, "after the signal")
            except BaseException:
                return "completed after all"
        return "done"

    async def scenario(house):
        process = await house.process()
        execution, ending = await quit_in(process, catches, is_waiting)
        return ending, await process.resume(execution.run_id, catches)

    ending, resumed = house.play(scenario)
    assert (ending.status, ending.value) == ("paused", None)
    assert (resumed.status, resumed.value) == ("completed", "done")
    assert "after the signal" not in DID


def test_cleaning_up_in_finally_is_waited_for_but_starts_no_step(house):
    async def cleans(ctx) -> str:
        try:
            return await ctx.tool(waits_at_first, "b")
        finally:
            await asyncio.to_thread(DID.append, "cleaned")
            await ctx.tool(act, "a step in finally")

    async def scenario(house):
        return (await quit_in(await house.process(), cleans, is_waiting))[1]

    assert house.play(scenario).status == "paused"
    assert DID == ["b began", "cleaned"]


def test_a_tool_that_ignores_its_cancellation_is_abandoned_after_half_a_second_and_its_value_never_stored(house):
    async def stubborn() -> str:
        DID.append("b began")
        life = DID.count("b began")
        if life == 1:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                await late.wait()
                DID.append("late")
        return f"value {life}"

    async def program(ctx) -> str:
        return await ctx.tool(stubborn)

    async def scenario(house):
        loop = asyncio.get_running_loop()
        process = await house.process()
        execution = await process.start(program)
        await until(is_waiting)
        began = loop.real_time()
        execution.quit()
        ending = await execution.wait()
        took_s = loop.real_time() - began
        again = await process.reopen(execution.run_id, program)
        late.set()  # the first life returns while the second one runs
        await until(lambda: "late" in DID)
        resumed = await again.wait()
        return ending, took_s, execution.tree.warnings, resumed, await house.of(execution.run_id, NodeFinished)

    late = asyncio.Event()
    ending, took_s, warnings, resumed, finished = house.play(scenario)
    assert ending.status == "paused"
    assert 0.4 < took_s < 2.5
    assert "stubborn" in warnings[0]
    assert resumed.value == "value 2"
    assert [bytes(e.value) for e in finished] == [b'"value 2"']


def test_a_plain_tool_in_its_thread_does_not_hold_up_the_quit_and_its_value_is_dropped(house):
    released = threading.Event()

    def blocks() -> str:
        DID.append("b began")
        if DID.count("b began") == 1:
            released.wait(20)
            DID.append("late")
            return "late"
        return "again"

    async def program(ctx) -> str:
        return await ctx.tool(blocks)

    async def scenario(house):
        process = await house.process()
        execution, ending = await quit_in(process, program, is_waiting)
        released.set()
        await until(lambda: "late" in DID)
        events = await house.events(execution.run_id)
        return ending, events, await process.resume(execution.run_id, program)

    ending, events, resumed = house.play(scenario)
    assert ending.status == "paused"
    assert not [s for s in events if isinstance(s.event, NodeFinished)]
    assert resumed.value == "again"


def test_a_tool_that_was_called_and_not_yet_begun_never_starts(house):
    async def program(ctx) -> None:
        await ctx.parallel([ctx.tool(waits_at_first, "b"), ctx.tool(waits_at_first, "c")], limit=1)

    async def scenario(house):
        return (await quit_in(await house.process(), program, is_waiting))[1]

    assert house.play(scenario).status == "paused"
    assert DID == ["b began"]


@workflow
async def child(ctx) -> str:
    await ctx.tool(act, "child a")
    return await ctx.tool(waits_at_first, "b")


async def parent(ctx) -> str:
    await ctx.tool(act, "parent a")
    return (await ctx.workflow(child)).output


def test_a_parent_and_its_running_child_are_both_paused_and_both_go_on(house):
    async def scenario(house):
        process = await house.process()
        execution, ending = await quit_in(process, parent, is_waiting)
        paused = [(row.run_id, row.status) for row in await house.journal.tree(execution.run_id)]
        resumed = await process.resume(execution.run_id, parent)
        return ending, paused, resumed, [(r.run_id, r.status) for r in await house.journal.tree(execution.run_id)]

    ending, paused, resumed, after = house.play(scenario)
    assert ending.status == "paused"
    assert [status for _, status in paused] == ["paused", "paused"]
    assert resumed.value == "b"
    assert [run_id for run_id, _ in paused] == [run_id for run_id, _ in after]
    assert [status for _, status in after] == ["completed", "completed"]
    assert DID == ["parent a", "child a", "b began", "b began", "b"]


# --- by the mailbox


def test_a_quit_from_another_handle_of_the_database_is_settled_with_its_outcome(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(body)
        await until(is_waiting)
        elsewhere = open_database(house.path, clock=house.clock)
        try:
            outcome = await Control(elsewhere).quit(execution.run_id, actor="ann", request_id="r1")
            again = await Control(elsewhere).quit(execution.run_id, actor="ann", request_id="r1")
            request = await elsewhere.read(lambda tx: requests.get(tx, "r1"))
        finally:
            await elsewhere.close()
        return execution.run_id, outcome, again, request, await execution.wait()

    run_id, outcome, again, request, ending = house.play(scenario)
    assert (outcome.status, outcome.changed) == ("paused", True)
    assert f"perdure resume {run_id}" in outcome.message
    assert again == outcome
    assert (request.state, request.actor) == ("settled", "ann")
    assert ending.status == "paused"


def test_two_requests_at_once_get_the_same_outcome(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(body)
        await until(is_waiting)
        control = Control(house.database)
        both = [control.quit(execution.run_id, actor=who, request_id=who) for who in ("ann", "bob")]
        return await asyncio.gather(*both)

    first, second = house.play(scenario)
    assert (first.status, second.status) == ("paused", "paused")


def test_a_request_that_this_version_does_not_know_is_refused_and_the_run_goes_on(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(body)
        await until(is_waiting)
        await house.database.write(lambda tx: requests.post(tx, "r1", execution.run_id, "levitate", {}, "ann"))
        request = None
        while request is None or request.state == "pending":
            await asyncio.sleep(0.01)
            request = await house.database.read(lambda tx: requests.get(tx, "r1"))
        return request.outcome, execution.tree.root.verdict

    outcome, verdict = house.play(scenario)
    assert outcome["error"]["code"] == "control_failed"
    assert "levitate" in outcome["error"]["message"]
    assert verdict is None


def test_a_request_that_was_given_up_while_the_owner_hung_is_never_applied(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(body)
        await until(is_waiting)
        process.engine._chores[1].cancel()  # the owner lives and does not look into its mailbox
        with pytest.raises(ControlRefused) as refused:
            await Control(house.database, patience_s=0.05).quit(execution.run_id, actor="ann", request_id="r1")
        await process.engine._attention.look([execution.run_id], process.engine._apply)
        return refused.value.reason, execution.tree.root.verdict

    assert house.play(scenario) == ("owned_elsewhere", None)


def test_a_quit_that_comes_as_the_run_ends_says_that_it_ended(house):
    opened = asyncio.Event()

    async def waits(ctx) -> str:
        await opened.wait()
        return await ctx.tool(act, "a")

    async def scenario(house):
        process = await house.process()
        execution = await process.start(waits)
        process.engine._chores[1].cancel()  # the owner took the request in a moment before, and the body was quicker
        await house.database.write(lambda tx: requests.post(tx, "r1", execution.run_id, "quit", {}, "ann"))
        execution.quit_requests.append(await house.database.read(lambda tx: requests.get(tx, "r1")))
        opened.set()
        ending = await execution.wait()
        return ending, (await house.database.read(lambda tx: requests.get(tx, "r1"))).outcome

    ending, outcome = house.play(scenario)
    assert ending.status == "completed"
    assert (outcome["status"], outcome["changed"]) == ("noop", False)
