"""Stages in git worktrees, through the real engine, store, git and a command as agent (spec/authoring.md 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.definitions import workflow
from perdure.errors import StageFailed
from tests.bed.repositories import Repository, git_in
from tests.bed.worktrees import COMMIT, Ground, write


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


# --- named


async def two_stages(ctx) -> list[str]:
    first = await ctx.task("first", write("new.txt"), worktree="fix")
    second = await ctx.task("second", "assert open('new.txt').read() == 'new\\n'", worktree="fix")
    return [first.text.strip(), second.text.strip()]


def test_stages_that_name_a_worktree_share_it_and_the_checkout_stays_as_it_is(ground):
    run_id, ending = ground.run(two_stages)
    assert ending.status == "completed", ending
    place = ground.data / "worktrees" / run_id / "named" / "fix"
    assert ending.value == [str(place), str(place)]
    assert ground.repository.git("status", "--porcelain") == ""
    assert ground.repository.git("rev-parse", f"perdure/{run_id[:8]}/fix") == ground.head
    assert ground.snapshot(run_id, "/:1", "new.txt") == "new"
    assert git_in(place, "status", "--porcelain") == "?? new.txt"


def test_two_stages_that_ask_at_once_get_one_worktree(ground):
    async def body(ctx) -> list[str]:
        pair = await ctx.parallel([ctx.task(n, write(f"{n}.txt"), worktree="fix") for n in "ab"])
        return [one.text for one in pair]

    _, ending = ground.run(body)
    assert ending.status == "completed", ending
    assert len(set(ending.value)) == 1
    assert len(ground.trees()) == 2


def test_a_run_with_the_same_short_id_takes_a_longer_branch(ground):
    async def body(ctx) -> str:
        ground.repository.git("branch", f"perdure/{ctx.run_id[:8]}/fix")
        return (await ctx.task("first", "pass", worktree="fix")).text

    run_id, ending = ground.run(body)
    assert ending.status == "completed", ending
    assert f"refs/heads/perdure/{run_id[:13]}/fix" in ground.refs()


def test_a_worktree_begins_at_its_base_and_keeps_it(ground):
    ground.repository.commit("second", {"a.txt": "changed\n"})

    async def body(ctx) -> str:
        await ctx.task("old", "assert open('a.txt').read() == 'one\\n'", worktree="old", base="HEAD~1")
        try:
            await ctx.task("other", "pass", worktree="old", base="HEAD")
        except StageFailed as failed:
            return failed.failure.message
        return ""

    _, ending = ground.run(body)
    assert ending.status == "completed", ending
    assert "began at" in ending.value
    assert "another name" in ending.value


def test_the_folder_keeps_its_place_in_the_repository(ground):
    async def body(ctx) -> list[str]:
        return [(await ctx.task("deep", "open('b.txt')", worktree="fix", cwd="sub")).text.strip()]

    run_id, ending = ground.run(body)
    assert ending.value == [str(ground.data / "worktrees" / run_id / "named" / "fix" / "sub")], ending


# --- the workflow's own


@workflow(worktree="fix")
async def in_a_worktree(ctx) -> list[str]:
    first = await ctx.task("first", write("new.txt"))
    return [str(ctx.cwd), first.text.strip()]


def test_a_workflows_worktree_is_the_place_of_every_stage_and_of_ctx_cwd(ground):
    run_id, ending = ground.run(in_a_worktree)
    place = ground.data / "worktrees" / run_id / "named" / "fix"
    assert ending.value == [str(place), str(place)], ending
    assert ground.snapshot(run_id, "/:0", "new.txt") == "new"


def test_a_child_works_in_its_parents_worktree(ground):
    async def child(ctx) -> str:
        return (await ctx.task("inner", "pass")).text.strip()

    definition = workflow(name="child")(child)

    @workflow(name="parent", worktree="fix")
    async def parent(ctx) -> list[str]:
        return [str(ctx.cwd), (await ctx.workflow(definition)).output]

    _, ending = ground.run(parent)
    assert ending.status == "completed", ending
    assert ending.value[0] == ending.value[1]


def test_a_workflow_that_wants_a_worktree_outside_a_repository_fails_with_what_to_do(ground, tmp_path):
    ground.cwd = tmp_path / "plain"
    ground.cwd.mkdir()
    _, ending = ground.run(in_a_worktree)
    assert ending.status == "failed"
    assert "git init" in ending.failure.message


def test_a_worktree_is_taken_up_again_by_a_resume(ground):
    flag = ground.data / "flag"

    @workflow(worktree="fix")
    async def body(ctx) -> str:
        await ctx.task("first", write("new.txt"))
        await ctx.task("second", f"assert os.path.exists({str(flag)!r}) and os.path.exists('new.txt')")
        return str(ctx.cwd)

    run_id, ending = ground.run(body)
    assert ending.status == "failed"
    flag.write_text("")
    ending = ground.resume(run_id, body)
    assert ending.status == "completed", ending
    assert len(ground.trees()) == 2


def test_a_worktree_whose_folder_was_removed_comes_back_from_its_branch(ground):
    async def body(ctx) -> str:
        await ctx.task("first", write("new.txt") + "; " + COMMIT, worktree="fix")
        await ctx.task("gone", f"import shutil; shutil.rmtree({str(ground.data / 'worktrees' / ctx.run_id)!r})")
        return (await ctx.task("second", "open('new.txt')", worktree="fix")).text

    _, ending = ground.run(body)
    assert ending.status == "completed", ending


# --- given


def test_a_given_worktree_is_used_and_never_removed(ground, tmp_path):
    ground.repository.git("worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))

    async def body(ctx) -> str:
        return (await ctx.task("first", write("new.txt"), worktree=Path("../mine"))).text.strip()

    run_id, ending = ground.run(body)
    assert ending.value == str(tmp_path / "mine"), ending
    assert ground.snapshot(run_id, "/:0", "new.txt") == "new"
    ground.delete(run_id)
    assert (tmp_path / "mine" / "new.txt").exists()
    assert ground.refs() == ["refs/heads/main", "refs/heads/mine"]


@pytest.mark.parametrize("where", [".", "sub", "../elsewhere", "../link", "../nothing", "nested"])
def test_only_a_worktree_root_beside_the_checkout_can_be_given(ground, tmp_path, where):
    Repository(tmp_path / "elsewhere").commit("first")
    (tmp_path / "link").symlink_to(ground.cwd / "sub")
    ground.repository.git("worktree", "add", "-q", "--detach", "nested")

    async def body(ctx) -> None:
        await ctx.task("first", "pass", worktree=Path(where))

    _, ending = ground.run(body)
    assert ending.status == "failed"
    assert "isolates nothing" in ending.failure.message or "not the root" in ending.failure.message


# --- agents that break things


def test_a_worktree_whose_link_the_agent_broke_is_a_warning_and_no_repository_above_is_touched(ground):
    Repository(ground.data).commit("a repository around the data folder")

    async def body(ctx) -> str:
        return (await ctx.task("first", "os.remove('.git')", worktree="fix")).text

    _, ending = ground.run(body)
    assert ending.status == "completed", ending
    assert any("could not be kept" in warning for warning in ground.warnings)
    assert git_in(ground.data, "for-each-ref", "refs/perdure") == ""


# --- deleting


def test_delete_removes_worktrees_snapshots_and_branches_without_commits_of_their_own(ground):
    run_id, _ = ground.run(two_stages)
    assert len(ground.trees()) == 2
    outcome = ground.delete(run_id)
    assert outcome.message == f"Deleted {run_id}."
    assert ground.trees() == [str(ground.cwd)]
    assert ground.refs() == ["refs/heads/main"]
    assert ground.rows(run_id) == []
    assert list((ground.data / "worktrees").iterdir()) == []


def test_delete_keeps_a_branch_whose_commits_are_nowhere_else(ground):
    async def body(ctx) -> str:
        return (await ctx.task("work", write("new.txt") + "; " + COMMIT, worktree="fix")).text

    run_id, _ = ground.run(body)
    outcome = ground.delete(run_id)
    assert f"perdure/{run_id[:8]}/fix stays" in outcome.message
    assert ground.trees() == [str(ground.cwd)]


def test_delete_works_when_the_repository_is_gone(ground):
    run_id, _ = ground.run(two_stages)
    ground.cwd.rename(ground.cwd.with_name("moved"))
    ground.cwd.mkdir()
    ground.delete(run_id)
    assert not (ground.data / "worktrees" / run_id / "named" / "fix").exists()


# --- furnishing


def test_a_new_worktree_is_furnished_and_a_setup_that_fails_fails_the_stage(ground):
    (ground.cwd / ".worktreeinclude").write_text("*.log\n")
    (ground.cwd / "kept.log").write_text("log\n")

    async def body(ctx) -> str:
        return (await ctx.task("first", "print(open('kept.log').read(), os.path.exists('made'))", worktree="fix")).text

    _, ending = ground.run(body, worktree_setup=["touch", "made"])
    assert ending.status == "completed", ending
    assert ending.value.startswith("log\n")
    assert "True" in ending.value
    run_id, ending = ground.run(body, worktree_setup=["sh", "-c", "echo broken >&2; exit 3"])
    assert "exit code 3: broken" in ending.failure.message
    ending = ground.resume(run_id, body)
    assert ending.status == "completed", ending
