"""Stages in temporary git worktrees: what they did is kept, and then they go (spec/authoring.md 6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.errors import StageFailed
from perdure.store.journal import Journal
from tests.bed.engines import finish_of
from tests.bed.worktrees import COMMIT, Ground, definition_of, write


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


async def temporary(ctx) -> dict:
    result = await ctx.task("try", write("a.txt", "two\\n") + "; " + write("new.txt"), worktree=True)
    return {"where": result.text.strip(), "artifacts": list(result.artifacts)}


def test_a_temporary_worktree_goes_and_its_diff_stays(ground):
    run_id, ending = ground.run(temporary)
    assert ending.status == "completed", ending
    assert not Path(ending.value["where"]).exists()
    assert len(ground.trees()) == 1
    (artifact,) = ending.value["artifacts"]
    assert (artifact["kind"], artifact["files"]) == ("diff", ["a.txt", "new.txt"])
    assert (artifact["added"], artifact["removed"]) == (2, 1)
    ground.repository.git("apply", artifact["path"])
    assert (ground.cwd / "a.txt").read_text() == "two\n"
    assert (ground.cwd / "new.txt").read_text() == "new\n"
    assert ground.snapshot(run_id, "/:0", "a.txt") == "two"


def test_a_temporary_worktree_of_a_failed_stage_goes_and_its_diff_stays(ground):
    async def body(ctx) -> list:
        try:
            await ctx.task("try", write("new.txt") + "; sys.exit(3)", worktree=True)
        except StageFailed as failed:
            return list(failed.details["artifacts"])
        return []

    _, ending = ground.run(body)
    assert ending.status == "completed", ending
    assert Path(ending.value[0]["path"]).read_text().count("new.txt") >= 2
    assert len(ground.trees()) == 1


def test_a_temporary_worktree_of_a_dirty_tree_is_refused_unless_a_base_is_named(ground):
    (ground.cwd / "a.txt").write_text("dirty\n")

    async def body(ctx) -> str:
        try:
            await ctx.task("try", "pass", worktree=True)
        except StageFailed as failed:
            await ctx.task("again", "assert open('a.txt').read() == 'one\\n'", worktree=True, base="HEAD")
            return failed.failure.message
        return ""

    _, ending = ground.run(body)
    assert ending.status == "completed", ending
    assert "not committed: a.txt" in ending.value
    assert (ground.cwd / "a.txt").read_text() == "dirty\n"


def test_files_that_are_not_tracked_do_not_make_a_tree_dirty(ground):
    (ground.cwd / "notes.txt").write_text("mine\n")
    _, ending = ground.run(temporary)
    assert ending.status == "completed", ending


def test_what_an_interrupted_stage_had_done_in_its_temporary_worktree_is_still_there(ground):
    """A sibling's failure ends the stage, so its worktree goes; the resume gives it back from the snapshot."""
    flag, begun = ground.data / "flag", ground.data / "begun"
    slow = write("new.txt") + f"; open({str(begun)!r}, 'w'); import time; time.sleep(600)"
    waits = f"import time; [time.sleep(0.01) for _ in iter(lambda: os.path.exists({str(begun)!r}), True)]; "
    quick = waits + f"os.stat({str(flag)!r})"

    async def body(ctx) -> str:
        prompt = f"exec('pass' if os.path.exists('new.txt') else {slow!r})"
        both = await ctx.parallel([ctx.task("slow", prompt, worktree=True), ctx.task("quick", quick)])
        return both[0].artifacts[0]["files"][0]

    run_id, ending = ground.run(body)
    assert ending.status == "failed", ending
    assert len(ground.trees()) == 1
    assert ground.snapshot(run_id, node_position(ground, run_id, "slow"), "new.txt") == "new"
    flag.write_text("")
    ending = ground.resume(run_id, body)
    assert ending.status == "completed", ending
    assert ending.value == "new.txt"


def node_position(ground, run_id, name):
    async def scenario(engine, database):
        events = await Journal(database).load(run_id)
        return next(s.event.position for s in events if getattr(s.event, "name", "") == name)

    return ground.play(scenario)


def test_a_stage_that_was_quit_goes_on_in_its_temporary_worktree(ground):
    begun = ground.data / "begun"
    slow = write("new.txt") + f"; open({str(begun)!r}, 'w'); import time; time.sleep(600)"

    async def body(ctx) -> str:
        prompt = f"exec('pass' if os.path.exists('new.txt') else {slow!r})"
        return (await ctx.task("slow", prompt, worktree=True)).text.strip()

    async def scenario(engine, database):
        execution = await engine.start(definition_of(body), {}, ground.options())
        while not begun.exists():
            await asyncio.sleep(0.01)
        execution.quit()
        return execution.run_id, await execution.wait()

    run_id, ending = ground.play(scenario)
    assert ending.status == "paused"
    left = ground.trees()[1]
    ending = ground.resume(run_id, body)
    assert ending.status == "completed", ending
    assert ending.value == left
    assert len(ground.trees()) == 1


def test_a_stage_that_is_talked_with_keeps_its_diff_when_its_block_is_left(ground):
    async def body(ctx) -> list:
        async with ctx.stage("talk", worktree=True) as stage:
            await stage.prompt(write("new.txt"))
        return []

    run_id, ending = ground.run(body)
    assert ending.status == "completed", ending
    assert len(ground.trees()) == 1
    assert ground.snapshot(run_id, "/:0", "new.txt") == "new"
    assert ground.outcome(run_id, "/:0")["artifacts"][0]["files"] == ["new.txt"]


async def talk(ctx) -> int:
    async with ctx.stage("talk", worktree=True) as stage:
        await stage.prompt(write("new.txt"))
    return ctx.attempt


async def ask(ctx) -> int:
    await ctx.task("ask", write("new.txt"), worktree=True)
    return ctx.attempt


@pytest.mark.parametrize("body", [talk, ask])
def test_killed_between_removal_and_record_the_stage_still_has_its_diff(ground, body):
    run_id = ground.killed(body, finish_of("/:0", "before"))
    assert len(ground.trees()) == 1
    ending = ground.resume(run_id, body)
    assert (ending.status, ending.value) == ("completed", 2), ending
    assert len(ground.trees()) == 1
    (artifact,) = ground.outcome(run_id, "/:0")["artifacts"]
    assert artifact["files"] == ["new.txt"]


def test_a_temporary_worktree_with_what_a_commit_cannot_hold_stays_and_the_run_says_so(ground):
    async def body(ctx) -> str:
        await ctx.task(
            "try",
            "os.mkdir('inner'); os.chdir('inner'); os.system('git init -q'); " + write("work.txt") + "; " + COMMIT,
            worktree=True,
        )
        return ""

    _, ending = ground.run(body)
    assert ending.status == "completed", ending
    place = Path(ground.trees()[1])
    assert (place / "inner" / "work.txt").read_text() == "new\n"
    assert any(str(place) in warning and "inner" in warning for warning in ground.warnings)


def test_hooks_of_the_repository_do_not_run(ground):
    hook = ground.cwd / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    _, ending = ground.run(temporary)
    assert ending.status == "completed", ending
    assert not list(ground.data.rglob("hooked")) and not (ground.cwd / "hooked").exists()
