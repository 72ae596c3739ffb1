"""What every store's journal does: append, read, children, delete (spec/journal.md 2 and 10)."""

import asyncio

import pytest
from msgspec import Raw

from perdure import events as ev
from perdure.errors import (
    AppendRefused,
    CounterOverflow,
    PayloadInvalid,
    SequenceConflict,
    StaleLease,
)
from perdure.store import append as append_module
from perdure.store.journal import Appended, Exists
from tests.bed import stores
from tests.bed.stores import ROOT, done, item, kinds, owned, seqs, status, taken_over


@pytest.fixture(params=stores.KINDS)
def run(request, tmp_path):
    return stores.runner(request.param, tmp_path)


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
