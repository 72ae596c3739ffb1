"""What every store's journal does: append, read, children, delete (spec/journal.md 2 and 10)."""

import asyncio

import pytest
from msgspec import Raw

from perdure import events as ev
from perdure.errors import (
    AppendRefused,
    CounterOverflow,
    JournalCorrupt,
    PayloadInvalid,
    RunDeleted,
    SequenceConflict,
    StaleLease,
    TargetNotFound,
)
from perdure.store import append as append_module
from perdure.store.chain import verify_chain
from perdure.store.journal import Appended, Exists, Rejected, Terms
from perdure.store.runs import create_child
from tests.bed import stores
from tests.bed.stores import ROOT, begun, done, item, kinds, new_run, owned, seqs, status

CHILD = "child-1"
GRANDCHILD = "child-2"


@pytest.fixture(params=stores.KINDS)
def run(request, tmp_path):
    return stores.runner(request.param, tmp_path)


async def taken_over(journal):
    """A stale lease and the current one."""
    old = await owned(journal)
    await journal.append(old, item(done(1)))
    await journal.release(old)
    return old, await journal.acquire(ROOT, "two")


def test_three_appends_get_the_sequences_one_to_three(run):
    async def scenario(journal):
        lease = await owned(journal)
        outcomes = [await journal.append(lease, item(done(n))) for n in range(3)]
        assert seqs(outcomes) == [1, 2, 3]

    run(scenario)


def test_a_fenced_writer_cannot_append(run):
    async def scenario(journal):
        old, _ = await taken_over(journal)
        with pytest.raises(StaleLease) as refused:
            await journal.append(old, item(done(2)))
        assert refused.value.details["ours"] == 1
        assert refused.value.details["current"] == 2
        assert len(await journal.load(ROOT)) == 1

    run(scenario)


def test_a_fenced_writer_never_hears_that_its_event_exists(run):
    async def scenario(journal):
        old, _ = await taken_over(journal)
        with pytest.raises(StaleLease):
            await journal.append(old, item(done(1)))

    run(scenario)


def test_the_first_event_with_a_key_wins(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append(lease, item(done(1, b'"first"')))
        again = await journal.append(lease, item(done(1, b'"second"')))
        assert isinstance(again, Exists)
        assert bytes(again.stored.event.value) == b'"first"'
        assert [bytes(stored.event.value) for stored in await journal.load(ROOT)] == [b'"first"']

    run(scenario)


def test_a_retry_does_not_conflict_with_itself(run):
    async def scenario(journal):
        lease = await owned(journal)
        for n in range(5):
            await journal.append(lease, item(done(n), expect_seq=n))
        again = await journal.append(lease, item(done(4), expect_seq=4))
        assert (type(again), again.stored.seq) == (Exists, 5)

    run(scenario)


def test_a_decision_on_an_older_sequence_conflicts(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append_many(lease, [item(done(n)) for n in range(7)])
        with pytest.raises(SequenceConflict) as refused:
            await journal.append(lease, item(done(8), expect_seq=6))
        assert (refused.value.details["expected"], refused.value.details["actual"]) == (6, 7)

    run(scenario)


def test_a_late_lease_that_nobody_took_still_appends(run):
    clock = stores.MovedClock()

    async def scenario(journal):
        lease = await owned(journal, timeout_ms=1000)
        clock.moved_ms = 10 * stores.MINUTE_MS
        assert isinstance(await journal.append(lease, item(done(1))), Appended)

    run(scenario, clock)


def test_what_cannot_be_json_is_refused_before_any_transaction(run):
    async def scenario(journal):
        lease = await owned(journal)
        commits = journal.database.statistics.commits
        with pytest.raises(PayloadInvalid):
            await journal.append(lease, item(ev.RunStarted(name="x", inputs=Raw(b"1"), options={"a": float("nan")})))
        with pytest.raises(PayloadInvalid):
            await journal.append(lease, item(done(1), key="\0"))
        with pytest.raises(PayloadInvalid):
            await journal.append(lease, item(ev.Patched(name="\ud800", new=True)))
        assert journal.database.statistics.commits == commits

    run(scenario)


def test_changing_an_event_after_the_call_has_no_effect(run):
    async def scenario(journal):
        lease = await owned(journal)
        options = {"agent": "house"}
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        journal.submit_many(
            lease,
            [item(ev.RunStarted(name="x", inputs=Raw(b"1"), options=options))],
            lambda outcomes, error: arrived.set_result(outcomes),
            loop,
        )
        options["agent"] = "other"
        [outcome] = await arrived
        assert outcome.stored.event.options == {"agent": "house"}
        [stored] = await journal.load(ROOT)
        assert stored.event.options == {"agent": "house"}

    run(scenario)


@pytest.mark.parametrize("together", [True, False])
def test_a_status_the_schema_refuses_leaves_nothing(run, together):
    async def scenario(journal):
        lease = await owned(journal)
        extra = [item(done(1)), item(done(2))] if together else []
        outcomes = await journal.append_many(lease, [*extra, item(status("nonsense"))])
        assert kinds(outcomes) == ["Appended"] * len(extra) + ["Rejected"]
        row = await journal.row(ROOT)
        assert (row.status, row.last_seq, row.events_count) == ("pending", len(extra), len(extra))
        assert await journal.verify(ROOT) == len(extra)

    run(scenario)


def test_a_run_that_used_up_its_sequences_appends_no_more(run, monkeypatch):
    monkeypatch.setattr(append_module, "SEQ_MAX", 2)

    async def scenario(journal):
        lease = await owned(journal)
        outcomes = await journal.append_many(lease, [item(done(n)) for n in range(3)])
        assert kinds(outcomes) == ["Appended", "Appended", "Rejected"]
        assert isinstance(outcomes[2].error, CounterOverflow)

    assert 2**53 - 1 == 9007199254740991
    run(scenario)


def test_a_long_key_is_known_again(run):
    async def scenario(journal):
        lease = await owned(journal)
        key = "k" * 5120
        assert isinstance(await journal.append(lease, item(done(1), key=key)), Appended)
        assert isinstance(await journal.append(lease, item(done(2), key=key)), Exists)

    run(scenario)


def test_a_guard_that_fails_only_after_the_insert_leaves_no_row(run):
    calls = []

    def guard(tx):
        calls.append(1)
        if len(calls) == 2:
            raise AppendRefused("the attempt was fenced")

    async def scenario(journal):
        lease = await owned(journal)
        with pytest.raises(AppendRefused):
            await journal.append(lease, item(done(1), guard=guard))
        assert len(calls) == 2
        assert await journal.load(ROOT) == []
        assert seqs([await journal.append(lease, item(done(2)))]) == [1]

    run(scenario)


def test_an_item_that_fails_in_sql_costs_only_itself(run):
    def guard(tx):
        tx.run("meta.set_version", version=-1)  # breaks a CHECK

    async def scenario(journal):
        lease = await owned(journal)
        items = [item(done(n), guard=guard if n == 2 else None) for n in range(5)]
        outcomes = await journal.append_many(lease, items)
        assert kinds(outcomes) == ["Appended", "Appended", "Rejected", "Appended", "Appended"]
        assert isinstance(outcomes[2].error, AppendRefused)
        assert seqs(outcomes) == [1, 2, 3, 4]
        assert await journal.verify(ROOT) == 4

    run(scenario)


def test_an_item_that_cannot_be_prepared_costs_only_itself(run):
    async def scenario(journal):
        lease = await owned(journal)
        bad = ev.RunStarted(name="x", inputs=Raw(b"1"), options={"a": float("inf")})
        outcomes = await journal.append_many(lease, [item(done(1)), item(bad), item(done(2))])
        assert kinds(outcomes) == ["Appended", "Rejected", "Appended"]
        assert isinstance(outcomes[1].error, PayloadInvalid)

    run(scenario)


def test_a_stale_lease_refuses_every_call_that_waits(run):
    async def scenario(journal):
        old, _ = await taken_over(journal)
        calls = [journal.append_many(old, [item(done(n))]) for n in range(256)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} == {StaleLease}

    run(scenario)


@pytest.mark.parametrize("apart", [True, False])
def test_a_key_twice_in_a_batch_is_appended_once(run, apart):
    async def scenario(journal):
        lease = await owned(journal)
        twice = [item(done(1, b"1")), item(done(1, b"2")), item(done(2))]
        if apart:
            outcomes = [o for os in await asyncio.gather(*(journal.append_many(lease, [i]) for i in twice)) for o in os]
        else:
            outcomes = await journal.append_many(lease, twice)
        assert kinds(outcomes) == ["Appended", "Exists", "Appended"]
        assert [outcome.stored.seq for outcome in outcomes] == [1, 1, 2]
        assert await journal.verify(ROOT) == 2

    run(scenario)


def test_a_retry_of_a_whole_batch_finds_all_of_it(run):
    async def scenario(journal):
        lease = await owned(journal)
        items = [item(done(n)) for n in range(10)]
        first = await journal.append_many(lease, items)
        again = await journal.append_many(lease, items)
        assert kinds(again) == ["Exists"] * 10
        assert [o.stored.seq for o in again] == [o.stored.seq for o in first]

    run(scenario)


def test_a_runs_calls_keep_their_order(run):
    async def scenario(journal):
        lease = await owned(journal)
        await asyncio.gather(
            journal.append(lease, item(done(1))),
            journal.append(lease, item(status("running"))),
            journal.append(lease, item(done(2))),
        )
        assert [stored.event.key for stored in await journal.load(ROOT)] == ["f:/:1", "st:1", "f:/:2"]

    run(scenario)


def test_each_guard_is_used_for_its_own_item(run):
    async def scenario(journal):
        lease = await owned(journal)

        def refuse(tx):
            raise AppendRefused("no")

        results = await asyncio.gather(
            journal.append(lease, item(done(1), guard=refuse)),
            journal.append(lease, item(done(2), guard=lambda tx: None)),
            return_exceptions=True,
        )
        assert kinds(results) == ["AppendRefused", "Appended"]

    run(scenario)


def test_one_runs_lost_lease_does_not_cost_another_run(run):
    async def scenario(journal):
        old, _ = await taken_over(journal)
        other = await owned(journal, "other")
        results = await asyncio.gather(
            journal.append(old, item(done(5))),
            journal.append(other, item(done(5), "other")),
            return_exceptions=True,
        )
        assert kinds(results) == ["StaleLease", "Appended"]

    run(scenario)


def test_a_failure_does_not_block_what_was_queued_behind_it(run):
    async def scenario(journal):
        lease = await owned(journal)

        def fail(tx):
            tx.run("leases.fence", root=lease.root)
            raise ValueError("a bug of the caller")

        results = await asyncio.gather(
            journal.append(lease, item(done(1))),
            journal.database.write(fail),
            journal.append(lease, item(done(2))),
            return_exceptions=True,
        )
        assert kinds(results) == ["Appended", "ValueError", "Appended"]

    run(scenario)


def test_a_cancelled_waiters_event_is_written(run):
    async def scenario(journal):
        lease = await owned(journal)
        waiter = asyncio.ensure_future(journal.append(lease, item(done(1))))
        await asyncio.sleep(0)
        waiter.cancel()
        await journal.append(lease, item(done(2)))
        assert waiter.cancelled()
        assert len(await journal.load(ROOT)) == 2

    run(scenario)


def test_null_and_empty_values_are_values(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append_many(lease, [item(done(1, b"null")), item(done(2, b'""'))])
        assert [bytes(stored.event.value) for stored in await journal.load(ROOT)] == [b"null", b'""']

    run(scenario)


def test_payloads_come_back_to_the_byte(run):
    async def scenario(journal):
        lease = await owned(journal)
        texts = [
            b'"\\u0000"',
            b'"\\ud83d\\ude00 \xc3\xa9"',
            b"123456789012345678901234567890",
            b"1e+300",
            b'{"b": 1, "a": [ ]}',
        ]
        await journal.append_many(lease, [item(done(n, text)) for n, text in enumerate(texts)])
        assert [bytes(stored.event.value) for stored in await journal.load(ROOT)] == texts
        assert [bytes(stored.event.value) async for stored in journal.read(ROOT)] == texts

    run(scenario)


# --- children


async def family(journal):
    lease = await owned(journal)
    await journal.create_child(lease, new_run(CHILD, ROOT, ROOT, "/:1", 1))
    await journal.create_child(lease, new_run(GRANDCHILD, ROOT, CHILD, "/:1", 2))
    return lease


def test_each_run_has_its_own_keys_and_reads_its_own_events(run):
    async def scenario(journal):
        lease = await family(journal)
        names = (ROOT, CHILD, GRANDCHILD)
        outcomes = await journal.append_many(lease, [item(done(1), name) for name in names])
        assert seqs(outcomes) == [1, 2, 3]
        assert [stored.run_id async for stored in journal.read(GRANDCHILD)] == [GRANDCHILD]
        assert [stored.run_id for stored in await journal.load(ROOT)] == list(names)
        rows = {row.run_id: row for row in await journal.tree(ROOT)}
        assert [rows[name].nodes_done for name in names] == [1, 1, 1]
        assert rows[ROOT].last_seq == 3
        assert await journal.verify(ROOT) == 3

    run(scenario)


def test_creating_a_child_again_changes_nothing_and_elsewhere_is_refused(run):
    async def scenario(journal):
        lease = await family(journal)
        await journal.create_child(lease, new_run(CHILD, ROOT, ROOT, "/:1", 1))
        with pytest.raises(JournalCorrupt):
            await journal.create_child(lease, new_run(CHILD, ROOT, ROOT, "/:2", 1))
        assert len(await journal.tree(ROOT)) == 3

    run(scenario)


def test_two_children_at_one_position_are_refused_by_the_schema(run):
    async def scenario(journal):
        lease = await family(journal)
        with pytest.raises(Exception, match="refused a row"):
            await journal.create_child(lease, new_run("child-3", ROOT, ROOT, "/:1", 1))

    run(scenario)


def test_two_starts_at_one_position_are_refused_by_the_schema(run):
    async def scenario(journal):
        lease = await owned(journal)
        start = ev.NodeStarted(position="/:1", kind="tool", name="a", digest="h")
        other = ev.NodeStarted(position="/:1", kind="tool", name="b", digest="h2")
        assert kinds(await journal.append_many(lease, [item(start), item(other)])) == ["Appended", "Exists"]

    run(scenario)


def test_an_event_of_another_tree_is_refused(run):
    async def scenario(journal):
        lease = await owned(journal)
        await owned(journal, "other")
        outcomes = await journal.append_many(lease, [item(done(1)), item(done(1), "other"), item(done(2), "nobody")])
        assert kinds(outcomes) == ["Appended", "Rejected", "Rejected"]
        assert all(isinstance(outcome.error, TargetNotFound) for outcome in outcomes[1:])

    run(scenario)


def test_a_fenced_writer_cannot_create_a_child(run):
    async def scenario(journal):
        old, _ = await taken_over(journal)
        with pytest.raises(StaleLease):
            await journal.create_child(old, new_run(CHILD, ROOT, ROOT, "/:1", 1))

    run(scenario)


def test_other_writes_may_share_an_appends_transaction(run):
    async def scenario(journal):
        lease = await owned(journal)
        entry = append_module.prepare(lease, [item(done(1), CHILD)])

        def unit(tx):
            create_child(tx, lease.root, new_run(CHILD, ROOT, ROOT, "/:1", 1))
            return append_module.append_in(tx, entry)

        assert kinds(await journal.database.write(unit)) == ["Appended"]

    run(scenario)


# --- reading


def test_reading_pages_through_everything_in_order(run):
    async def scenario(journal):
        lease = await owned(journal)
        await journal.append_many(lease, [item(done(n)) for n in range(600)])
        assert [stored.seq async for stored in journal.read(ROOT)] == list(range(1, 601))
        assert [stored.seq async for stored in journal.read(ROOT, 599)] == [599, 600]
        assert [stored.seq for stored in await journal.load(ROOT)] == list(range(1, 601))

    run(scenario)


def test_loading_a_journal_is_a_handful_of_statements_however_long_it_is(run):
    async def scenario(journal):
        lease = await owned(journal)
        counts = []
        for n in (100, 3000):
            await journal.append_many(lease, [item(done(f"{n}-{k}")) for k in range(n)])
            before = journal.database.statistics.statements
            assert len(await journal.load(ROOT)) >= n
            counts.append(journal.database.statistics.statements - before)
        assert counts[0] == counts[1] <= 4

    run(scenario)


def test_an_event_nobody_can_read_makes_only_its_run_malformed(run):
    async def scenario(journal):
        lease = await owned(journal)
        await owned(journal, "other")
        await journal.append(lease, item(done(1, b"{not json")))
        assert {row.run_id for row in await journal.catalog()} == {ROOT, "other"}
        with pytest.raises(JournalCorrupt):
            await journal.load(ROOT)
        assert await journal.load("other") == []

    run(scenario)


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
        assert (child.tokens_in, child.status, child.parent_run_id, child.depth) == (1, "pending", ROOT, 1)
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
