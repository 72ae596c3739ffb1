"""Children in their root's journal, and reading (spec/journal.md 2.6, Overrides 2 and 3)."""

import pytest

from perdure import events as ev
from perdure.errors import (
    JournalCorrupt,
    StaleLease,
    TargetNotFound,
)
from perdure.store import append as append_module
from perdure.store.runs import create_child
from tests.bed import stores
from tests.bed.stores import CHILD, GRANDCHILD, ROOT, done, family, item, kinds, new_run, owned, seqs, taken_over


@pytest.fixture(params=stores.KINDS)
def run(request, tmp_path):
    return stores.runner(request.param, tmp_path)


# --- children


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
        await journal.create_child(lease, new_run(CHILD, ROOT, ROOT, "/:1", 2))
        with pytest.raises(JournalCorrupt):
            await journal.create_child(lease, new_run(CHILD, ROOT, ROOT, "/:2", 2))
        assert len(await journal.tree(ROOT)) == 3

    run(scenario)


def test_two_children_at_one_position_are_refused_by_the_schema(run):
    async def scenario(journal):
        lease = await family(journal)
        with pytest.raises(Exception, match="refused a row"):
            await journal.create_child(lease, new_run("child-3", ROOT, ROOT, "/:1", 2))

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
            await journal.create_child(old, new_run(CHILD, ROOT, ROOT, "/:1", 2))

    run(scenario)


def test_other_writes_may_share_an_appends_transaction(run):
    async def scenario(journal):
        lease = await owned(journal)
        entry = append_module.prepare(lease, [item(done(1), CHILD)])

        def unit(tx):
            create_child(tx, lease.root, new_run(CHILD, ROOT, ROOT, "/:1", 2))
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
