"""Who may write: a lost lease, a late one, a store that breaks. Through the whole engine and the real store."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure.control import Control
from perdure.errors import ControlRefused, JournalClosed, StorageUnavailable
from perdure.events import NodeFinished, StatusChanged
from perdure.store import open_database, prompts
from tests.bed.engines import House, until

DID: list = []


@pytest.fixture
def house(tmp_path):
    del DID[:]
    return House(tmp_path)


async def act(what: str) -> str:
    DID.append(what)
    return what


class Gate:
    """A workflow that stops between two steps until the test opens it."""

    def __init__(self):
        self.opened = asyncio.Event()

    async def body(self, ctx) -> str:
        await ctx.tool(act, "before")
        await self.opened.wait()
        await ctx.tool(act, "after")
        return "done"

    async def at_the_gate(self, process):
        execution = await process.start(self.body)
        log = execution.tree.log
        await until(lambda: DID == ["before"] and log._decided == log._queued)
        return execution


# --- a lost lease


def test_an_owner_that_was_taken_over_stops_at_its_next_write_and_leaves_no_trace_of_it(house):
    async def scenario(house):
        gate = Gate()
        old = await house.process()
        execution = await gate.at_the_gate(old)
        await house.heir()
        await house.journal.acquire(execution.run_id, "somebody else")
        before = await house.events(execution.run_id)
        gate.opened.set()
        ending = await execution.wait()
        return ending, before, await house.events(execution.run_id), await house.journal.row(execution.run_id)

    ending, before, after, row = house.play(scenario)
    assert (ending.code, ending.recorded, ending.status) == ("stale_lease", False, "running")
    assert before == after
    assert row.status == "running"


def test_both_of_two_owners_never_write_and_the_new_one_finishes_the_run(house):
    async def scenario(house):
        gate = Gate()
        execution = await gate.at_the_gate(await house.process())
        heir = await house.heir()
        new = await heir.reopen(execution.run_id, gate.body)
        gate.opened.set()
        endings = await asyncio.gather(execution.wait(), new.wait())
        return endings, await house.events(execution.run_id)

    (old, new), events = house.play(scenario)
    assert (old.recorded, old.code) == (False, "stale_lease")
    assert (new.status, new.value) == ("completed", "done")
    assert [s.event.position for s in events if isinstance(s.event, NodeFinished)] == ["/:0", "/:1"]
    epochs = [s.event.epoch for s in events if isinstance(s.event, StatusChanged)]
    assert epochs == [1, 2, 2]


def test_a_renewal_that_is_refused_stops_the_run_though_it_writes_nothing(house):
    async def scenario(house):
        gate = Gate()
        old = await house.process()
        execution = await gate.at_the_gate(old)
        await house.heir()
        await house.journal.acquire(execution.run_id, "somebody else")
        await old.engine._renew([execution.tree])
        return await execution.wait()

    ending = house.play(scenario)
    assert (ending.code, ending.recorded) == ("stale_lease", False)
    assert DID == ["before"]


def test_a_process_that_slept_past_its_lease_renews_before_its_next_side_effect(house):
    async def scenario(house):
        gate = Gate()
        process = await house.process()
        execution = await gate.at_the_gate(process)
        renewed = execution.tree.renewed = execution.tree.renewed - 3600  # as its own clock sees it
        house.clock.moved_ms += 3_600_000
        gate.opened.set()
        return await execution.wait(), execution.tree.renewed > renewed

    ending, renewed = house.play(scenario)
    assert (ending.status, renewed) == ("completed", True)


def test_one_that_slept_and_was_taken_over_does_no_side_effect_when_it_wakes(house):
    async def scenario(house):
        gate = Gate()
        execution = await gate.at_the_gate(await house.process())
        await house.heir()
        await house.journal.acquire(execution.run_id, "somebody else")
        execution.tree.renewed -= 3600
        gate.opened.set()
        return await execution.wait()

    ending = house.play(scenario)
    assert (ending.code, ending.recorded) == ("stale_lease", False)
    assert DID == ["before"]


def test_one_that_cannot_renew_in_time_does_no_side_effect_either(house):
    async def scenario(house):
        gate = Gate()
        process = await house.process()
        execution = await gate.at_the_gate(process)
        execution.tree.renewed -= 3600
        process.plug.broken = StorageUnavailable("The disk is away.")
        gate.opened.set()
        ending = await execution.wait()
        process.plug.broken = None
        return ending, await (await house.heir()).resume(execution.run_id, gate.body)

    ending, resumed = house.play(scenario)
    assert (ending.code, ending.recorded) == ("storage_unavailable", False)
    assert (resumed.status, DID) == ("completed", ["before", "after"])


def test_trouble_in_a_renewal_is_tried_again_and_the_lease_kept(house, caplog):
    async def scenario(house):
        gate = Gate()
        process = await house.process()
        execution = await gate.at_the_gate(process)
        process.plug.broken = StorageUnavailable("The disk is away.")
        await process.engine._renew([execution.tree])
        process.plug.broken = None
        await process.engine._renew([execution.tree])
        gate.opened.set()
        return await execution.wait()

    with caplog.at_level(logging.WARNING, "perdure.engine"):
        assert house.play(scenario).status == "completed"
    assert "trying again" in caplog.text


def test_a_refusal_of_one_lease_costs_the_other_runs_of_the_process_nothing(house):
    async def scenario(house):
        process = await house.process()
        gates = [Gate(), Gate()]
        lost = await gates[0].at_the_gate(process)
        del DID[:]
        kept = await gates[1].at_the_gate(process)
        await house.heir()
        await house.journal.acquire(lost.run_id, "somebody else")
        for gate in gates:
            gate.opened.set()
        return await asyncio.gather(lost.wait(), kept.wait())

    lost, kept = house.play(scenario)
    assert (lost.recorded, lost.code, kept.status) == (False, "stale_lease", "completed")


def test_the_same_process_owns_its_run_again_under_a_new_epoch(house):
    async def scenario(house):
        process = await house.process()
        gate = Gate()
        execution = await gate.at_the_gate(process)
        execution.quit()
        await execution.wait()
        gate.opened.set()
        ending = await process.resume(execution.run_id, gate.body)
        return ending, [e.epoch for e in await house.of(execution.run_id, StatusChanged)]

    ending, epochs = house.play(scenario)
    assert (ending.status, epochs) == ("completed", [1, 1, 2, 2])


def test_a_run_that_somebody_alive_owns_cannot_be_resumed_elsewhere(house):
    async def scenario(house):
        gate = Gate()
        execution = await gate.at_the_gate(await house.process())
        other = await house.process()
        with pytest.raises(ControlRefused) as refused:
            await other.reopen(execution.run_id, gate.body)
        gate.opened.set()
        return refused.value, await execution.wait()

    refusal, ending = house.play(scenario)
    assert refusal.reason == "owned_elsewhere"
    assert "perdure quit" in refusal.message
    assert ending.status == "completed"


def test_of_two_heirs_that_resume_at_once_one_gets_the_run(house):
    async def scenario(house):
        gate = Gate()
        gate.opened.set()
        first = await house.process()
        execution = await first.start(gate.body)
        first.die()
        heirs = [await house.heir(), await house.process()]
        came = await asyncio.gather(
            *(heir.reopen(execution.run_id, gate.body) for heir in heirs), return_exceptions=True
        )
        refused = [one for one in came if isinstance(one, ControlRefused)]
        (won,) = [one for one in came if not isinstance(one, Exception)]
        return refused, await won.wait()

    refused, ending = house.play(scenario)
    assert [one.reason for one in refused] == ["owned_elsewhere"]
    assert ending.status == "completed"


def test_a_jump_of_the_stores_clock_back_or_forth_disturbs_no_owner(house):
    async def scenario(house):
        gate = Gate()
        execution = await gate.at_the_gate(await house.process())
        house.clock.moved_ms += 86_400_000
        await house.journal.renew(execution.tree.lease)
        house.clock.moved_ms -= 2 * 86_400_000
        gate.opened.set()
        return await execution.wait()

    assert house.play(scenario).status == "completed"


# --- a store that breaks


@pytest.mark.parametrize("broken_event", [NodeFinished, StatusChanged])
def test_when_the_store_fails_the_run_stops_and_says_so_and_a_resume_goes_on(house, broken_event):
    async def scenario(house):
        process = await house.process()
        seen = []

        def break_on(event):
            seen.extend([event] if isinstance(event, broken_event) else [])
            return StorageUnavailable("disk full: SQLITE_FULL") if seen else None

        execution = await process.start(steps)
        process.plug.break_on = break_on
        ending = await execution.wait()
        row = await house.journal.row(execution.run_id)
        process.plug.break_on = None
        resumed = await process.resume(execution.run_id, steps)
        return ending, row, resumed

    ending, row, resumed = house.play(scenario)
    assert (ending.code, ending.recorded, ending.failure.code) == ("storage_unavailable", False, "storage_unavailable")
    assert (row.status, row.resumable) == ("running", True)
    assert (resumed.status, resumed.value) == ("completed", "c")


async def steps(ctx) -> str:
    await ctx.tool(act, "a")
    await ctx.tool(act, "b")
    return await ctx.tool(act, "c")


def test_after_the_store_failed_nothing_more_is_done(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(steps)
        process.plug.break_on = lambda event: StorageUnavailable("away") if event.key == "f:/:1" else None
        return await execution.wait()

    house.play(scenario)
    assert DID == ["a", "b"]


def test_a_quit_that_cannot_be_recorded_is_mended_by_a_resume_and_a_second_quit(house):
    async def scenario(house):
        gate = Gate()
        process = await house.process()
        execution = await gate.at_the_gate(process)
        process.plug.broken = StorageUnavailable("away")
        execution.quit()
        ending = await execution.wait()
        process.plug.broken = None
        heir = await house.heir()
        again = await heir.reopen(execution.run_id, gate.body)
        again.quit()
        return ending, await again.wait(), await house.journal.row(execution.run_id)

    first, second, row = house.play(scenario)
    assert (first.recorded, second.recorded) == (False, True)
    assert (row.status, row.resumable) == ("paused", True)


def test_the_mailbox_is_read_again_after_the_store_failed_once(house, caplog):
    async def asks(ctx) -> bool:
        return await ctx.ask.confirm("Go on?")

    async def scenario(house):
        process = await house.process()
        execution = await process.start(asks)
        control = Control(house.database)
        while not await house.database.read(lambda tx: prompts.open_prompts(tx, execution.run_id)):
            await asyncio.sleep(0.002)
        process.plug.broken = StorageUnavailable("away")
        await until(lambda: "trying again" in caplog.text)
        process.plug.broken = None
        await control.answer(execution.run_id, None, "yes", actor="ann")
        return await execution.wait()

    with caplog.at_level(logging.WARNING, "perdure.engine"):
        assert house.play(scenario).value is True


def test_a_closed_database_refuses_and_leaves_the_run_resumable(house):
    async def scenario(house):
        process = await house.process()
        process.plug.database = other = open_database(house.path, clock=house.clock)
        gate = Gate()
        execution = await gate.at_the_gate(process)
        await other.close()
        gate.opened.set()
        ending = await execution.wait()
        process.plug.database = house.database
        return ending, await (await house.heir()).resume(execution.run_id, gate.body)

    ending, resumed = house.play(scenario)
    assert (ending.recorded, ending.code) == (False, JournalClosed.code)
    assert resumed.status == "completed"
