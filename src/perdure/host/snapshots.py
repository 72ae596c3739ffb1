"""Snapshots: the state of a worktree, untracked files too, kept as a commit under a reference of perdure's own.

The law: a snapshot is made with an index of its own, so the worktree, its branch and its index stay as they are. Its
parent is the commit that was checked out. The reference keeps git from collecting it, and no push takes it along.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from perdure.host.git import ask_git, complaint, git
from perdure.host.worktrees import ceiling

FILES_LISTED_MAX: Final = 200  # of a diff, by name
_WHO: Final = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "perdure"), ("EMAIL", "perdure@localhost"))
}
_PLAIN: Final = ("--no-color", "--no-ext-diff", "--no-textconv")  # nothing of the repository's own runs


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit that holds a worktree. `missing` says what it could not take in; empty: it is whole."""

    commit: str
    missing: str = ""


@dataclass(frozen=True, slots=True)
class DiffSize:
    """What a diff changes. `files` are the first names of `files_count`; lines of binary files are not counted."""

    files: tuple[str, ...]
    files_count: int
    added: int
    removed: int


def snapshot_ref(run_id: str, node_id: str) -> str:
    """Where the snapshot of a stage is kept."""
    return f"refs/perdure/{run_id}/{node_id}"


async def take_snapshot(place: Path, ref: str, subject: str) -> Snapshot:
    """Keep the state of a worktree under a reference. Raises GitFailed."""
    above = ceiling(place)
    index = await git(place, "rev-parse", "--path-format=absolute", "--git-path", "index", env=above)
    with TemporaryDirectory(prefix="perdure-index-") as folder:
        env = {**above, "GIT_INDEX_FILE": os.path.join(folder, "index")}  # noqa: PTH118  a text for the environment
        await asyncio.to_thread(_copy_if_there, Path(index.rstrip("\n")), Path(env["GIT_INDEX_FILE"]))
        added = await ask_git(place, "add", "--all", "--ignore-errors", env=env)
        tree = (await git(place, "write-tree", env=env)).strip()
        head = await ask_git(place, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", env=above)
        inner = await _repositories_inside(place, head.stdout.strip(), env)
    parents = ("-p", head.stdout.strip()) if head.exit_code == 0 else ()
    commit = (await git(place, "commit-tree", tree, *parents, "-m", subject, env={**above, **_WHO})).strip()
    await git(place, "update-ref", ref, commit, env=above)
    missing = [complaint(added)] if added.exit_code != 0 else []
    if inner:
        named = ", ".join(inner[:5]) + ", ..." * (len(inner) > 5)
        missing.append(f"of repositories inside it only the ids of their commits are kept: {named}")
    return Snapshot(commit, "; ".join(missing))


async def _repositories_inside(place: Path, head: str, env: dict[str, str]) -> list[str]:
    """Repositories in the worktree with more than the commit that `head` records of them: git keeps only their ids."""
    since = head or (await git(place, "hash-object", "-t", "tree", "--stdin", env=env)).strip()
    changed = await git(place, "diff-index", "--raw", "-z", "--ignore-submodules=none", since, "--", env=env)
    fields = changed.split("\0")
    return [name for told, name in zip(fields[::2], fields[1::2], strict=False) if told.split(" ")[1] == "160000"]


def _copy_if_there(source: Path, target: Path) -> None:
    """The index knows which files are unchanged, so that they need not be read again.

    Its time comes along: by it git tells which files may have changed in the very tick in which they were recorded.
    """
    if source.is_file():
        shutil.copy2(source, target)


async def snapshot_at(repository: Path, ref: str) -> str | None:
    """The commit kept under a reference."""
    found = await ask_git(repository, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    return found.stdout.strip() if found.exit_code == 0 else None


async def head_of(repository: Path, commit: str) -> str | None:
    """The commit that was checked out when a snapshot was taken; None if there was none."""
    return await snapshot_at(repository, f"{commit}^")


async def restore_snapshot(place: Path, commit: str) -> None:
    """Give a fresh worktree the files of a snapshot, as changes that nobody has staged. Raises GitFailed."""
    above = ceiling(place)
    await git(place, "read-tree", "--reset", "-u", commit, env=above)
    await git(place, "reset", "--quiet", env=above)


async def write_diff(repository: Path, base: str, commit: str, file: Path) -> DiffSize:
    """Write what changed between two commits as a patch that `git apply` takes; how much it is. Raises GitFailed."""
    counted = await git(repository, "diff", *_PLAIN, "--numstat", "-z", "--no-renames", base, commit)
    lines = [entry.split("\t", 2) for entry in counted.split("\0") if entry]
    if lines:
        file.parent.mkdir(parents=True, exist_ok=True)
        await git(repository, "diff", *_PLAIN, "--binary", "--full-index", f"--output={file}", base, commit)
    return DiffSize(
        files=tuple(name for _, _, name in lines[:FILES_LISTED_MAX]),
        files_count=len(lines),
        added=sum(int(added) for added, _, _ in lines if added != "-"),
        removed=sum(int(removed) for _, removed, _ in lines if removed != "-"),
    )


async def forget_snapshots(repository: Path, run_id: str) -> None:
    """Drop every snapshot of a run from a repository that is still there. Raises GitFailed."""
    if not repository.is_dir():
        return
    refs = await git(repository, "for-each-ref", "--format=delete %(refname)", f"refs/perdure/{run_id}/")
    if refs:
        await git(repository, "update-ref", "--stdin", text=refs)
