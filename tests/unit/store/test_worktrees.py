import asyncio

import pytest

from perdure.errors import StaleLease
from perdure.ids import new_run_id
from perdure.store import open_database, worktrees
from perdure.store.database import ConstraintViolated
from perdure.store.journal import Journal, NewRun, Terms
from perdure.store.worktrees import WorktreeRow

NAMED = WorktreeRow(path="/w/fix", kind="named", repository="/r/.git", branch="perdure/x/fix", base="abc")


def play(tmp_path, scenario):
    async def main():
        database = open_database(tmp_path / "perdure.db")
        try:
            run_id = new_run_id()
            new = NewRun(run_id, run_id, None, None, 1, "w", "/", "w.py", "")
            lease = await Journal(database).create(new, Terms("me"))
            return await scenario(database, lease, run_id)
        finally:
            await database.close()

    return asyncio.run(main())


def test_a_worktree_is_known_from_before_it_is_made_until_it_is_forgotten(tmp_path):
    async def scenario(database, lease, run_id):
        seen = []

        async def look():
            seen.append(await database.read(lambda tx: [row.state for _, row in worktrees.of_tree(tx, run_id)]))

        await database.write(lambda tx: worktrees.plan(tx, lease, run_id, NAMED))
        await look()
        await database.write(lambda tx: worktrees.set_state(tx, lease, run_id, NAMED.path, "made"))
        await look()
        await database.write(lambda tx: worktrees.plan(tx, lease, run_id, NAMED))
        await look()
        assert await database.read(lambda tx: worktrees.get(tx, run_id, NAMED.path)) == NAMED
        await database.write(lambda tx: worktrees.forget(tx, run_id, NAMED.path))
        await look()
        return seen

    assert play(tmp_path, scenario) == [["planned"], ["made"], ["planned"], []]


def test_only_the_owner_of_the_run_writes(tmp_path):
    async def scenario(database, lease, run_id):
        await Journal(database).release(lease)
        for write in (
            lambda tx: worktrees.plan(tx, lease, run_id, NAMED),
            lambda tx: worktrees.set_state(tx, lease, run_id, NAMED.path, "made"),
        ):
            with pytest.raises(StaleLease):
                await database.write(write)

    play(tmp_path, scenario)


def test_a_named_worktree_has_a_branch_and_no_other_has(tmp_path):
    async def scenario(database, lease, run_id):
        wrong = WorktreeRow(path="/w/t", kind="temporary", repository="/r/.git", branch="b", base="abc")
        with pytest.raises(ConstraintViolated):
            await database.write(lambda tx: worktrees.plan(tx, lease, run_id, wrong))

    play(tmp_path, scenario)


def test_they_outlive_the_record_of_their_run(tmp_path):
    async def scenario(database, lease, run_id):
        await database.write(lambda tx: worktrees.plan(tx, lease, run_id, NAMED))
        await Journal(database).delete(lease)
        return await database.read(lambda tx: worktrees.of_tree(tx, run_id))

    ((_, row),) = play(tmp_path, scenario)
    assert row == NAMED
