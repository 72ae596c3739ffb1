"""The catalog, creating and deleting runs, and the chain of digests (spec/journal.md 2.6, 2.7)."""

import asyncio

import apsw
import pytest

from perdure import events as ev
from perdure.errors import (
    AppendRefused,
    JournalCorrupt,
    RunDeleted,
    StaleLease,
    TargetNotFound,
)
from perdure.store.chain import verify_chain
from perdure.store.journal import Rejected, Terms
from tests.bed import stores
from tests.bed.stores import CHILD, GRANDCHILD, ROOT, begun, done, family, item, kinds, new_run, owned, seqs, status


@pytest.fixture(params=stores.KINDS)
def run(request, tmp_path):
    return stores.runner(request.param, tmp_path)


# --- the catalog


def test_the_catalog_follows_the_events_without_folding(run):
    async def scenario(journal):
        lease = await family(journal)
        failure = ev.Failure(code="tool_failed", message="it broke")
        await journal.append_many(
            lease,
            [
                item(begun()),
                item(status("running")),
                item(ev.UsageRecorded(position="/:1", number=1, epoch=1, tokens_in=5, tokens_out=2, cost_nanos=10)),
                item(ev.UsageRecorded(position="/:1", number=2, epoch=1, tokens_in=9, tokens_out=2, cost_nanos=30)),
                item(ev.UsageRecorded(position="/:0", number=1, epoch=1, tokens_in=1, cost_nanos=None), GRANDCHILD),
                item(done(1)),
                item(status("failed", 2, code="tool_failed", failure=failure, resumable=False)),
            ],
        )
        row = await journal.row(ROOT)
        assert (row.status, row.code, row.resumable, row.status_epoch) == ("failed", "tool_failed", False, 1)
        assert (row.error_code, row.error_message) == ("tool_failed", "it broke")
        assert (row.events_count, row.nodes_done, row.last_seq) == (6, 1, 7)
        assert (row.tokens_in, row.tokens_out, row.cost_nanos) == (10, 2, 30)
        assert row.created_at <= row.started_at <= row.ended_at == row.updated_at
        child = await journal.row(CHILD)
        assert (child.tokens_in, child.status, child.parent_run_id, child.depth) == (1, "pending", ROOT, 2)
        await journal.append(lease, item(status("running", 3)))
        row = await journal.row(ROOT)
        assert (row.status, row.ended_at, row.error_code) == ("running", None, "")

    run(scenario)


def test_a_run_that_starts_and_ends_in_one_batch_has_both_times(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append_many(lease, [item(status("running")), item(status("completed", 2))])
        row = await journal.row(ROOT)
        assert row.status == "completed"
        assert row.started_at is not None
        assert row.ended_at is not None

    run(scenario)


def test_a_catalog_of_a_thousand_runs_is_one_query(run):
    async def scenario(journal):
        await asyncio.gather(*(owned(journal, f"run-{n:04}") for n in range(1000)))
        before = journal.database.statistics.statements
        rows = await journal.catalog()
        assert [row.run_id for row in rows] == [f"run-{n:04}" for n in reversed(range(1000))]
        assert journal.database.statistics.statements - before == 1
        page = await journal.catalog(before="run-0500", count=2)
        assert [row.run_id for row in page] == ["run-0499", "run-0498"]
        assert await journal.find("run-099") == [f"run-099{n}" for n in range(10)]

    run(scenario)


def test_a_missing_run_is_named(run):
    async def scenario(journal):
        for call in (journal.row("x"), journal.load("x"), journal.acquire("x", "one"), journal.verify("x")):
            with pytest.raises(TargetNotFound):
                await call

    run(scenario)


# --- creating and deleting


def test_a_run_its_lease_and_its_first_events_are_one_unit(run):
    async def scenario(journal):
        before = journal.database.statistics.commits
        items = [item(begun()), item(status("running"))]
        lease = await journal.create(new_run(), Terms("one"), items)
        assert journal.database.statistics.commits == before + 1
        assert len(await journal.load(ROOT)) == 2
        again = await journal.create(new_run(), Terms("one"), items)
        assert (again, len(await journal.load(ROOT))) == (lease, 2)

    run(scenario)


def test_creating_a_run_of_another_holder_is_refused_and_others_are_created(run):
    async def scenario(journal):
        await owned(journal)
        results = await asyncio.gather(
            owned(journal, "a"), owned(journal, ROOT, "two"), owned(journal, "b"), return_exceptions=True
        )
        assert kinds(results) == ["Lease", "LeaseHeld", "Lease"]

    run(scenario)


def test_an_owned_run_is_not_deleted_and_a_parked_one_leaves_a_tombstone(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append(lease, item(status("running")))
        assert await journal.delete_if_inactive(ROOT) == "running"
        await journal.append(lease, item(status("paused", 2)))
        await journal.release(lease)
        assert await journal.delete_if_inactive(ROOT) == "ok"
        assert await journal.delete_if_inactive(ROOT) == "not_found"
        assert await journal.delete_if_inactive("nobody") == "not_found"
        assert await journal.catalog() == []
        assert [row.last_seq for row in await journal.catalog(deleted=True)] == [2]
        with pytest.raises(RunDeleted):
            await journal.load(ROOT)

    run(scenario)


def test_a_deleted_run_that_starts_anew_goes_on_in_sequence_epoch_and_chain(run):
    async def scenario(journal):
        lease = await family(journal)
        await journal.append_many(lease, [item(begun()), item(done(1)), item(done(1), CHILD)])
        await journal.delete(lease)
        with pytest.raises(StaleLease):
            await journal.append(lease, item(done(2)))
        new = await journal.acquire(ROOT, "two")
        assert new.epoch == 2
        with pytest.raises(RunDeleted):
            await journal.append(new, item(done(2)))
        assert seqs(await journal.append_many(new, [item(begun()), item(done(1))])) == [4, 5]
        assert await journal.verify(ROOT) == 2
        row = await journal.row(ROOT)
        assert (row.deleted_at, row.nodes_done, row.status) == (None, 1, "pending")

    run(scenario)


def test_reading_a_run_that_is_deleted_meanwhile_fails(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append_many(lease, [item(done(n)) for n in range(300)])
        with pytest.raises(RunDeleted):
            async for stored in journal.read(ROOT):
                if stored.seq == 1:
                    await journal.delete(lease)

    run(scenario)


# --- the chain


def test_the_chain_notices_what_was_edited_removed_or_reordered(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append_many(lease, [item(done(n)) for n in range(4)])
        rows = await journal.database.read(lambda tx: tx.all("events.chain", root=lease.root))
        assert verify_chain(rows) == 4
        edited = [rows[0], (*rows[1][:5], rows[1][5].replace("completed", "failed"), *rows[1][6:]), *rows[2:]]
        for broken in (edited, [rows[0], *rows[2:]], [rows[1], rows[0], *rows[2:]]):
            with pytest.raises(JournalCorrupt):
                verify_chain(broken)
        with pytest.raises(JournalCorrupt):
            verify_chain(rows[:3], last_seq=4)
        with pytest.raises(JournalCorrupt):
            verify_chain(rows, last=b"x")

    run(scenario)


@pytest.mark.parametrize("missing", [2, 4])
def test_a_journal_with_a_missing_event_is_not_loaded(run, missing):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append_many(lease, [item(done(n)) for n in range(4)])
        with apsw.Connection(str(journal.database.path)) as vandal:
            vandal.execute("DELETE FROM events WHERE seq = ?", (missing,))
        with pytest.raises(JournalCorrupt, match="holds 3"):
            await journal.load(ROOT)

    run(scenario)


def test_a_rejection_inside_a_creation_is_raised(run):
    async def scenario(journal):
        def refuse(tx):
            raise AppendRefused("no")

        with pytest.raises(AppendRefused):
            await journal.create(new_run(), Terms("one"), [item(done(1), guard=refuse)])

    run(scenario)


def test_an_append_after_the_release_of_its_lease_is_refused(run):
    async def scenario(journal):
        lease = await owned(journal)
        results = await asyncio.gather(
            journal.append(lease, item(done(1))),
            journal.release(lease),
            journal.append(lease, item(done(2))),
            return_exceptions=True,
        )
        assert kinds(results) == ["Appended", "NoneType", "StaleLease"]

    run(scenario)


def test_rejected_carries_its_error():
    assert Rejected(AppendRefused("no")).error.code == "append_refused"
