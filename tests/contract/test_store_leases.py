"""Who may append: leases in every store (spec/journal.md 2.5)."""

import asyncio
import time

import pytest

from perdure.errors import LeaseHeld, StaleLease
from tests.bed import stores
from tests.bed.stores import MINUTE_MS, ROOT, done, item, kinds, owned

TIMEOUT_MS = 1000


class Process:
    """A process that thinks certain others are gone."""

    def __init__(self, name, gone=()):
        self.name, self.gone = name, gone

    def to_text(self):
        return self.name

    def proves_gone(self, stored, *, one_machine):
        return stored in self.gone


@pytest.fixture(params=stores.KINDS)
def run(request, tmp_path):
    return stores.runner(request.param, tmp_path)


@pytest.fixture
def clock():
    return stores.MovedClock()


def test_two_racers_for_an_expired_lease_one_gets_the_next_epoch(run, clock):
    async def scenario(journal):
        await owned(journal, timeout_ms=TIMEOUT_MS)
        clock.moved_ms = TIMEOUT_MS + 100
        results = await asyncio.gather(
            journal.acquire(ROOT, "two"), journal.acquire(ROOT, "three"), return_exceptions=True
        )
        assert kinds(results) == ["Lease", "LeaseHeld"]
        assert results[0].epoch == 2
        assert results[1].details["holder"] == "two"

    run(scenario, clock)


def test_a_lease_in_force_is_held_and_says_until_when(run, clock):
    async def scenario(journal):
        await owned(journal, timeout_ms=TIMEOUT_MS)
        row = await journal.row(ROOT)
        with pytest.raises(LeaseHeld) as refused:
            await journal.acquire(ROOT, "two")
        assert refused.value.details["expires_at"] == row.lease_until == row.created_at + TIMEOUT_MS

    run(scenario, clock)


def test_the_epoch_grows_over_a_release(run):
    async def scenario(journal):
        first = await owned(journal)
        await journal.release(first)
        assert (await journal.row(ROOT)).holder is None
        second = await journal.acquire(ROOT, "one")
        assert (first.epoch, second.epoch) == (1, 2)

    run(scenario)


def test_the_same_holder_gets_the_same_epoch_even_when_late(run, clock):
    async def scenario(journal):
        first = await owned(journal, timeout_ms=TIMEOUT_MS)
        clock.moved_ms = 10 * TIMEOUT_MS
        assert await journal.acquire(ROOT, "one", TIMEOUT_MS) == first
        with pytest.raises(LeaseHeld):
            await journal.acquire(ROOT, "two", TIMEOUT_MS)

    run(scenario, clock)


def test_a_child_s_lease_is_its_root_s(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.create_child(lease, stores.new_run("child", ROOT, ROOT, "/:1", 2))
        assert await journal.acquire("child", "one") == lease

    run(scenario)


def test_renewal_works_when_late_and_fails_when_lost(run, clock):
    async def scenario(journal):
        mine = await owned(journal, timeout_ms=TIMEOUT_MS)
        other = await owned(journal, "other", timeout_ms=TIMEOUT_MS)
        clock.moved_ms = 5 * TIMEOUT_MS
        await journal.renew(mine)
        await journal.acquire("other", "two", TIMEOUT_MS)
        with pytest.raises(StaleLease):
            await journal.renew(other)
        assert kinds(await journal.renew_many([mine, other, mine])) == ["NoneType", "StaleLease", "NoneType"]
        with pytest.raises(LeaseHeld):
            await journal.acquire(ROOT, "two")

    run(scenario, clock)


def test_many_renewals_are_one_transaction(run):
    async def scenario(journal):
        held = [await owned(journal, f"run-{n}") for n in range(20)]
        before = journal.database.statistics.commits
        assert await journal.renew_many(held) == [None] * 20
        assert journal.database.statistics.commits == before + 1

    run(scenario)


def test_a_lost_lease_releases_nothing(run, clock):
    async def scenario(journal):
        old = await owned(journal, timeout_ms=TIMEOUT_MS)
        clock.moved_ms = 2 * TIMEOUT_MS
        new = await journal.acquire(ROOT, "two")
        await journal.release(old)
        await journal.append(new, item(done(1)))

    run(scenario, clock)


def test_a_jump_of_the_store_s_clock_lets_another_take_over_and_fences_the_first(run, clock):
    async def scenario(journal):
        first = await owned(journal)
        clock.moved_ms = 10 * MINUTE_MS
        await journal.acquire(ROOT, "two")
        with pytest.raises(StaleLease):
            await journal.append(first, item(done(1)))
        clock.moved_ms = 0
        with pytest.raises(LeaseHeld):
            await journal.acquire(ROOT, "three")

    run(scenario, clock)


def test_a_process_clock_a_day_off_changes_nothing(run, monkeypatch):
    async def scenario(journal):
        lease = await owned(journal)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        await journal.renew(lease)
        with pytest.raises(LeaseHeld):
            await journal.acquire(ROOT, "two")

    run(scenario)


def test_an_unexpired_lease_of_a_process_proven_gone_is_taken_at_once(run):
    async def scenario(journal):
        await owned(journal, process=Process("dead"))
        with pytest.raises(LeaseHeld):
            await journal.acquire(ROOT, "two", process=Process("new", gone=("somebody else",)))
        with pytest.raises(LeaseHeld):
            await journal.acquire(ROOT, "two")
        taken = await journal.acquire(ROOT, "two", process=Process("new", gone=("dead",)))
        assert taken.epoch == 2
        assert (await journal.row(ROOT)).process == "new"

    run(scenario)


def test_a_run_of_a_process_proven_gone_may_be_deleted(run):
    async def scenario(journal):
        await owned(journal, process=Process("dead"))
        assert await journal.delete_if_inactive(ROOT, Process("new")) == "running"
        assert await journal.delete_if_inactive(ROOT, Process("new", gone=("dead",))) == "ok"

    run(scenario)
