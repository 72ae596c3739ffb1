"""An idle loop commits a lone unit itself when the disk is quick; everything else goes to the writer's thread."""

import asyncio

import pytest

from perdure.errors import StaleLease
from perdure.store.leases import Lease
from perdure.store.writer import QUICK_SECONDS
from tests.bed.stores import done, item, kinds, owned, runner
from tests.unit.store.test_writer import held


@pytest.fixture
def run(tmp_path):
    return runner("sqlite", tmp_path)


def submit(journal, lease, number):
    """What an idle loop submits; gives the list that its outcome lands in."""
    landed = []
    journal.submit_many(
        lease, [item(done(number))], lambda *outcome: landed.append(outcome), asyncio.get_running_loop(), is_idle=True
    )
    return landed


async def settled(landed):
    while not landed:
        await asyncio.sleep(0)
    return landed[0]


def pretend_commits_take(journal, seconds):
    journal.database._writer._usual_seconds = seconds


def test_on_a_quick_disk_the_outcome_is_durable_before_submit_returns(run):
    async def scenario(journal):
        lease = await owned(journal)
        pretend_commits_take(journal, 0.0)
        landed = submit(journal, lease, 1)
        assert kinds(landed[0][0]) == ["Appended"]
        assert [stored.seq for stored in await journal.load(lease.root_run_id)] == [1]
        assert await journal.verify(lease.root_run_id) == 1

    run(scenario)


def test_on_a_slow_disk_the_loop_is_never_blocked(run):
    async def scenario(journal):
        lease = await owned(journal)
        pretend_commits_take(journal, QUICK_SECONDS)
        landed = submit(journal, lease, 1)
        assert landed == []
        assert kinds((await settled(landed))[0]) == ["Appended"]

    run(scenario)


def test_while_the_writer_is_busy_the_unit_waits_its_turn_in_order(run):
    async def scenario(journal):
        lease = await owned(journal)
        busy, go = await held(journal.database)
        pretend_commits_take(journal, 0.0)
        first, second = submit(journal, lease, 1), submit(journal, lease, 2)
        assert first == second == []
        go.set()
        await busy
        outcomes = [await settled(first), await settled(second)]
        assert [outcome[0][0].stored.seq for outcome in outcomes] == [1, 2]

    run(scenario)


def test_a_refusal_is_told_and_leaves_nothing(run):
    async def scenario(journal):
        lease = await owned(journal)
        pretend_commits_take(journal, 0.0)
        stale = Lease(lease.root_run_id, "somebody else", lease.epoch, lease.root, lease.timeout_ms)
        landed = submit(journal, stale, 1)
        assert isinstance(landed[0][1], StaleLease)
        assert await journal.load(lease.root_run_id) == []

    run(scenario)
