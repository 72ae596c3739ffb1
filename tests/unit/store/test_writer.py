"""Group commit: batches, outcomes, failures of the disk (DESIGN 5)."""

import asyncio
import threading

import apsw
import pytest

from perdure.errors import JournalClosed, StorageUnavailable
from perdure.store import open_database
from perdure.store.database import ConstraintViolated
from perdure.store.journal import Journal
from tests.bed.stores import ROOT, done, item, kinds, new_run, owned, runner


@pytest.fixture
def run(tmp_path):
    return runner("sqlite", tmp_path)


async def held(database):
    """Keep the writer busy until the returned event is set, so that what follows waits for one batch."""
    started, go = threading.Event(), threading.Event()
    busy = asyncio.ensure_future(database.write(lambda tx: (started.set(), go.wait())))
    await asyncio.to_thread(started.wait)
    return busy, go


async def waiting(database, units):
    busy, go = await held(database)
    tasks = [asyncio.ensure_future(database.write(unit)) for unit in units]
    await asyncio.sleep(0)
    before = database.statistics.commits
    go.set()
    await busy
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return results, database.statistics.commits - before - 1


def mark(name):
    return lambda tx: tx.run("meta.set_version", version=name)


def test_three_hundred_waiting_units_are_two_transactions(run):
    async def scenario(journal):
        results, commits = await waiting(journal.database, [lambda tx, n=n: n for n in range(300)])
        assert results == list(range(300))
        assert commits == 2

    run(scenario)


def test_a_unit_that_raises_rolls_back_only_itself(run):
    async def scenario(journal):
        def fail(tx):
            tx.run("meta.set_version", version=99)
            raise KeyError("mine")

        results, commits = await waiting(journal.database, [mark(7), fail, lambda tx: tx.one("meta.version")[0]])
        assert [type(result) for result in results] == [int, KeyError, int]
        assert results[2] == 7
        assert commits == 1

    run(scenario)


def test_a_lone_unit_that_raises_leaves_nothing(run):
    async def scenario(journal):
        def fail(tx):
            tx.run("meta.set_version", version=99)
            raise KeyError("mine")

        with pytest.raises(KeyError):
            await journal.database.write(fail)
        assert await journal.database.read(lambda tx: tx.one("meta.version")[0]) == 1

    run(scenario)


def test_a_savepoint_undoes_only_what_is_inside_it(run):
    async def scenario(journal):
        def unit(tx):
            tx.run("meta.set_version", version=5)
            with pytest.raises(ConstraintViolated), tx.savepoint():
                tx.run("meta.set_version", version=6)
                tx.run("meta.set_version", version=-1)
            return tx.one("meta.version")[0]

        assert await journal.database.write(unit) == 5

    run(scenario)


def test_a_failed_commit_refuses_the_whole_batch_and_the_next_one_succeeds(run):
    async def scenario(journal):
        lease = await owned(journal)
        connection = journal.database._writer._connection
        connection.set_commit_hook(lambda: True)
        results = await asyncio.gather(
            *(journal.append(lease, item(done(n))) for n in range(5)), return_exceptions=True
        )
        assert {type(result) for result in results} == {StorageUnavailable}
        assert "ConstraintError" in results[0].details["detail"]
        connection.set_commit_hook(None)
        assert await journal.load(ROOT) == []
        assert (await journal.append(lease, item(done(1)))).stored.seq == 1

    run(scenario)


@pytest.mark.parametrize("count", [1, 3])
def test_a_full_disk_is_storage_unavailable_with_class_and_code_and_no_text_of_the_value(run, count):
    async def scenario(journal):
        lease = await owned(journal)
        connection = journal.database._writer._connection
        connection.pragma("max_page_count", connection.pragma("page_count"))
        big = b'"' + b"secret" * 50_000 + b'"'
        results = await asyncio.gather(
            *(journal.append(lease, item(done(n, big))) for n in range(count)), return_exceptions=True
        )
        assert kinds(results) == ["StorageUnavailable"] * count
        assert results[0].details["detail"] == "FullError SQLITE_FULL"
        assert "secret" not in str(results[0])
        assert results[0].retryable
        connection.pragma("max_page_count", 1_000_000)
        assert (await journal.append(lease, item(done(1, big)))).stored.seq == 1
        assert await journal.verify(ROOT) == 1

    run(scenario)


def test_an_error_of_the_operating_system_is_told_by_name(run):
    async def scenario(journal):
        def fail(tx):
            raise OSError(28, "No space left on /private/path")

        with pytest.raises(StorageUnavailable) as refused:
            await journal.database.write(fail)
        assert refused.value.details["detail"] == "OSError ENOSPC"
        assert "/private" not in str(refused.value)

    run(scenario)


def test_results_of_a_batch_cross_to_their_loop_in_one_call_and_in_order(run):
    class Loop:
        def __init__(self):
            self.calls = []
            self.arrived = threading.Event()

        def call_soon_threadsafe(self, callback, *args):
            self.calls.append((callback, args))
            self.arrived.set()

    async def scenario(journal):
        database, loop, seen = journal.database, Loop(), []
        busy, go = await held(database)
        for n in range(50):
            database.submit(lambda tx, n=n: n, lambda result, error: seen.append(result), loop)
        go.set()
        await busy
        await asyncio.to_thread(loop.arrived.wait)
        [(callback, args)] = loop.calls
        callback(*args)
        assert seen == list(range(50))

    run(scenario)


def test_a_callback_that_raises_does_not_cost_the_others_theirs(run):
    async def scenario(journal):
        loop = asyncio.get_running_loop()
        told, seen, last = [], [], loop.create_future()
        loop.set_exception_handler(lambda _, context: told.append(type(context["exception"])))
        busy, go = await held(journal.database)
        journal.database.submit(lambda tx: 1, lambda result, error: 1 / 0, loop)
        journal.database.submit(lambda tx: 2, lambda result, error: last.set_result(result), loop)
        go.set()
        await busy
        assert await last == 2
        assert told == [ZeroDivisionError]
        assert seen == []

    run(scenario)


def test_close_finishes_what_is_queued_and_then_refuses(tmp_path):
    async def scenario():
        database = open_database(tmp_path / "perdure.db")
        journal = Journal(database)
        lease = await owned(journal)
        busy, go = await held(database)
        appends = [asyncio.ensure_future(journal.append(lease, item(done(n)))) for n in range(10)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(database.close())
        go.set()
        await asyncio.gather(busy, closing)
        assert kinds(await asyncio.gather(*appends)) == ["Appended"] * 10
        for call in (database.write(lambda tx: 1), database.read(lambda tx: 1)):
            with pytest.raises(JournalClosed):
                await call
        with pytest.raises(JournalClosed):
            database.changes()
        await database.close()

    asyncio.run(scenario())


def test_anybody_s_commit_changes_the_number_of_changes(run):
    async def scenario(journal):
        first = journal.database.changes()
        assert journal.database.changes() == first
        lease = await owned(journal)
        second = journal.database.changes()
        assert second != first
        other = run.opened()
        await other.write(lambda tx: tx.run("runs.add_spend", run=lease.root, tokens_in=1, tokens_out=0, cost_nanos=0))
        await other.close()
        assert journal.database.changes() != second

    run(scenario)


def test_a_reader_cannot_write(run):
    async def scenario(journal):
        with pytest.raises(StorageUnavailable):
            await journal.database.read(lambda tx: tx.run("meta.set_version", version=3))

    run(scenario)


def test_the_clock_is_read_once_a_transaction(run):
    async def scenario(journal):
        def unit(tx):
            first = tx.now_ms
            tx.observe_now(5)
            return first == tx.now_ms

        assert await journal.database.write(unit)

    run(scenario)


def test_appends_of_many_runs_cost_a_fixed_number_of_statements(run):
    async def scenario(journal):
        leases = [await owned(journal, f"run-{n}") for n in range(128)]
        database, costs = journal.database, []
        for count in (2, 32, 128):
            busy, go = await held(database)
            calls = [
                asyncio.ensure_future(journal.append(lease, item(done(count), lease.root_run_id)))
                for lease in leases[:count]
            ]
            await asyncio.sleep(0)
            before = database.statistics.statements
            go.set()
            await busy
            assert kinds(await asyncio.gather(*calls)) == ["Appended"] * count
            costs.append(database.statistics.statements - before)
        assert costs[0] == costs[1] == costs[2] <= 5

    run(scenario)


def test_an_append_costs_the_same_after_many_events(run):
    async def scenario(journal):
        lease = await owned(journal)
        costs = []
        for size in (500, 2000):
            await journal.append_many(lease, [item(done(f"{size}-{n}")) for n in range(size)])
            before = journal.database.statistics.statements
            await journal.append(lease, item(done(f"{size}")))
            costs.append(journal.database.statistics.statements - before)
        assert costs == [3, 3]

    run(scenario)


def test_other_runs_creations_share_the_batch(run):
    async def scenario(journal):
        busy, go = await held(journal.database)
        calls = [asyncio.ensure_future(owned(journal, f"run-{n}")) for n in range(100)]
        await asyncio.sleep(0)
        before = journal.database.statistics.commits
        go.set()
        await busy
        leases = await asyncio.gather(*calls)
        assert sorted(lease.root for lease in leases) == list(range(1, 101))
        assert journal.database.statistics.commits - before == 2
        assert new_run().depth == 1

    run(scenario)


def test_the_library_brings_its_own_sqlite_without_the_write_ahead_bug():
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)
