import asyncio
import os

import pytest

from perdure.host.snapshots import (
    _copy_if_there,
    forget_snapshots,
    head_of,
    restore_snapshot,
    snapshot_at,
    snapshot_ref,
    take_snapshot,
    write_diff,
)
from tests.bed.repositories import Repository

REF = snapshot_ref("run", "node")


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "repo")
    made.commit("first", {"a.txt": "one\n", ".gitignore": "*.log\n"})
    return made


def snapshot(repository):
    return asyncio.run(take_snapshot(repository.folder, REF, "kept"))


def write(repository, name, content):
    (repository.folder / name).write_text(content)


def test_a_snapshot_has_changed_staged_and_untracked_files_but_no_ignored_ones(repository):
    write(repository, "a.txt", "two\n")
    write(repository, "staged.txt", "s\n")
    repository.git("add", "staged.txt")
    write(repository, "new.txt", "n\n")
    write(repository, "x.log", "l\n")
    kept = snapshot(repository)
    assert kept.missing == ""
    assert repository.git("ls-tree", "-r", "--name-only", REF).split() == [
        ".gitignore", "a.txt", "new.txt", "staged.txt",
    ]  # fmt: skip
    assert repository.git("show", f"{REF}:a.txt") == "two"
    assert repository.git("log", "-1", "--format=%an %s", REF) == "perdure kept"


def test_the_worktree_its_branch_and_its_index_stay_as_they_are(repository):
    write(repository, "staged.txt", "s\n")
    repository.git("add", "staged.txt")
    write(repository, "new.txt", "n\n")
    before = repository.git("status", "--porcelain"), repository.git("rev-parse", "HEAD")
    index = (repository.folder / ".git" / "index").read_bytes()
    snapshot(repository)
    assert (repository.folder / ".git" / "index").read_bytes() == index
    assert (repository.git("status", "--porcelain"), repository.git("rev-parse", "HEAD")) == before


def test_a_snapshot_stands_on_the_commit_that_was_checked_out(repository):
    head = repository.git("rev-parse", "HEAD")
    kept = snapshot(repository)
    assert asyncio.run(head_of(repository.folder, kept.commit)) == head
    assert asyncio.run(snapshot_at(repository.folder, REF)) == kept.commit


def test_a_repository_without_a_commit_can_be_kept_too(tmp_path):
    repository = Repository(tmp_path)
    write(repository, "a", "1")
    assert asyncio.run(head_of(tmp_path, snapshot(repository).commit)) is None


def test_what_cannot_be_taken_in_is_said_and_the_rest_is_kept(repository):
    Repository(repository.folder / "inner")
    write(repository, "new.txt", "n\n")
    kept = snapshot(repository)
    assert "inner" in kept.missing
    assert repository.git("show", f"{REF}:new.txt") == "n"


def test_a_repository_inside_is_said_to_be_missing_because_a_commit_holds_only_its_id(repository):
    Repository(repository.folder / "inner").commit("work", {"work.txt": "hours\n"})
    assert "inner" in snapshot(repository).missing


def test_a_repository_inside_a_repository_without_a_commit_is_missing_too(tmp_path):
    outer = Repository(tmp_path)
    Repository(tmp_path / "inner").commit("work", {"work.txt": "hours\n"})
    assert "inner" in snapshot(outer).missing


def test_a_submodule_is_missing_only_if_it_has_what_its_recorded_commit_has_not(repository):
    inner = Repository(repository.folder / "inner")
    inner.commit("work", {"work.txt": "hours\n"})
    repository.git("add", "inner")
    repository.git("commit", "-qm", "a submodule")
    assert snapshot(repository).missing == ""
    (inner.folder / "new.txt").write_text("more\n")
    assert "inner" in snapshot(repository).missing


def test_the_copy_of_the_index_keeps_its_time_so_that_git_mistrusts_files_of_the_same_tick(tmp_path):
    index, copy = tmp_path / "index", tmp_path / "copy"
    index.write_bytes(b"DIRC")
    os.utime(index, ns=(1_000, 1_000))
    _copy_if_there(index, copy)
    assert copy.stat().st_mtime_ns == 1_000


def test_a_restored_snapshot_has_the_same_files_as_changes_nobody_has_staged(repository):
    write(repository, "a.txt", "two\n")
    write(repository, "new.txt", "n\n")
    kept = snapshot(repository)
    repository.git("reset", "-q", "--hard")
    (repository.folder / "new.txt").unlink()
    asyncio.run(restore_snapshot(repository.folder, kept.commit))
    assert repository.git("status", "--porcelain").splitlines() == ["M a.txt", "?? new.txt"]


def test_a_diff_says_how_much_it_changes_and_can_be_applied(repository, tmp_path):
    base = repository.git("rev-parse", "HEAD")
    write(repository, "a.txt", "two\n")
    (repository.folder / "ü b.bin").write_bytes(b"\0\1")
    kept, file = snapshot(repository), tmp_path / "out" / "changes.diff"
    size = asyncio.run(write_diff(repository.folder, base, kept.commit, file))
    assert (size.files, size.files_count, size.added, size.removed) == (("a.txt", "ü b.bin"), 2, 1, 1)
    repository.git("stash", "-q", "-u")
    repository.git("apply", str(file))
    assert (repository.folder / "ü b.bin").read_bytes() == b"\0\1"


def test_no_change_makes_no_file(repository, tmp_path):
    kept, file = snapshot(repository), tmp_path / "changes.diff"
    size = asyncio.run(write_diff(repository.folder, f"{kept.commit}^", kept.commit, file))
    assert size.files_count == 0
    assert not file.exists()


def test_the_snapshots_of_one_run_are_forgotten_and_no_others(repository):
    snapshot(repository)
    other = snapshot_ref("run2", "node")
    asyncio.run(take_snapshot(repository.folder, other, "kept"))
    asyncio.run(forget_snapshots(repository.folder, "run"))
    asyncio.run(forget_snapshots(repository.folder, "run"))
    assert repository.git("for-each-ref", "--format=%(refname)", "refs/perdure") == other
