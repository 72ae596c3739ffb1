"""Git worktrees: making, finding and removing working trees of a repository (spec/authoring.md 6).

The author's checkout, its branch and its index are never touched. What goes on with a worktree's content is in
snapshots.py and furnishing.py, who may make one and when in operations/worktrees.py.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.errors import GitFailed, UsageError
from perdure.host.git import ask_git, complaint, git


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working tree, found from a folder in it. All paths are real ones, free of symlinks."""

    top: Path
    repository: Path  # the git folder that all its worktrees share
    within: Path  # where in the tree the folder lies, relative


async def checkout_around(folder: Path) -> Checkout:
    """The checkout a folder lies in. Raises UsageError when it lies in none."""
    real = folder.resolve()
    found = await ask_git(real, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
    if found.exit_code != 0:
        raise UsageError(
            f"A worktree needs a git repository with files, and {folder} is in none ({complaint(found)}). Start in "
            "one, make one (git init), or leave worktree= out.",
            cwd=str(folder),
        )
    top, repository = (Path(line).resolve() for line in found.stdout.splitlines())
    return Checkout(top, repository, real.relative_to(top))


async def commit_of(folder: Path, name: str) -> str:
    """The id of the commit that a name means here. Raises UsageError when there is none."""
    found = await ask_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.exit_code != 0:
        has_none = name == "HEAD"
        why = "has no commit yet. Commit something first" if has_none else f"has no commit {name}. Name one that exists"
        raise UsageError(f"The repository around {folder} {why}: a worktree begins at a commit.", base=name)
    return found.stdout.strip()


async def check_clean(checkout: Checkout) -> None:
    """Raise UsageError when tracked files have changes that no commit holds: a worktree would not have them."""
    changed = await git(checkout.top, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=untracked")
    if changed:
        names = [line[3:] for line in changed.splitlines()]
        shown = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        raise UsageError(
            f"A temporary worktree begins at HEAD, and {checkout.top} has changes that are not committed: {shown}. "
            "Commit or stash them, or say base= to begin at a commit without them.",
            changed=names[:50],
        )


async def has_branch(repository: Path, branch: str) -> bool:
    """Whether there is such a branch."""
    found = await ask_git(repository, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
    return found.exit_code == 0


async def add_worktree(repository: Path, place: Path, at: str, branch: str | None = None) -> None:
    """A new worktree at a commit: detached, or on a branch that is made for it. Raises GitFailed."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = ["--detach"] if branch is None else ["--no-track", "-b", branch]
    await git(repository, "worktree", "add", "--quiet", *words, str(place), at)


async def add_again(repository: Path, place: Path, branch: str) -> None:
    """A worktree for a branch whose folder went away. Raises GitFailed."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    await git(repository, "worktree", "prune")
    await git(repository, "worktree", "add", "--quiet", str(place), branch)


async def is_worktree(place: Path) -> bool:
    """Whether a folder still is the root of a worktree. Never takes a repository further up for it."""
    if not place.is_dir():
        return False
    found = await ask_git(place, "rev-parse", "--show-toplevel")
    return found.exit_code == 0 and Path(found.stdout.rstrip("\n")) == place.resolve()


def ceiling(place: Path) -> dict[str, str]:
    """What keeps git from looking for a repository above a worktree whose own link to it was broken."""
    return {"GIT_CEILING_DIRECTORIES": str(place.resolve().parent)}


async def existing_worktree(checkout: Checkout, path: Path, forbidden: Iterable[Path]) -> Path:
    """The real path of an existing worktree of the same repository; UsageError for anything else.

    `forbidden` are checkouts that a person works in; those, the main one, and what lies in them are refused.
    """
    place = path.resolve()
    listed = await git(checkout.repository, "worktree", "list", "--porcelain", "-z")
    roots = [Path(word.removeprefix("worktree ")).resolve() for word in listed.split("\0") if word[:9] == "worktree "]
    for own in (*roots[:1], *forbidden):
        if place.is_relative_to(own):
            raise UsageError(
                f"{path} is the checkout {own} itself or lies in it, so it isolates nothing. Name a worktree beside "
                'it (git worktree add ../other), or give a name: worktree="other".',
                worktree=str(path),
            )
    if place not in roots or not await is_worktree(place):
        known = ", ".join(str(root) for root in roots[1:]) or "none"
        raise UsageError(
            f"{path} is not the root of a worktree of {checkout.repository}. Its worktrees: {known}.",
            worktree=str(path),
        )
    return place


async def remove_worktree(repository: Path, place: Path) -> None:
    """Remove a worktree with everything in it, known to git or not. Nothing happens if it is gone.

    Raises GitFailed when the folder cannot be removed.
    """
    if place.exists():
        if repository.is_dir():
            await ask_git(repository, "worktree", "remove", "--force", "--force", str(place))
        if place.exists():  # git does not know it, or it holds what git will not remove
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    if place.exists():
        raise GitFailed(f"The worktree {place} cannot be removed. Remove it by hand.", cwd=str(place))
    if repository.is_dir():
        await ask_git(repository, "worktree", "prune")


def drop_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that worktrees lay in, innermost first, up to one that still holds something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


async def drop_branch(repository: Path, branch: str) -> bool:
    """Delete a branch unless it has commits that no other branch, tag or checkout has; whether it is gone."""
    if not repository.is_dir() or not await has_branch(repository, branch):
        return True
    own = await git(
        repository, "rev-list", "--max-count=1", f"refs/heads/{branch}", "--not", f"--exclude={branch}", "--branches",
        "--tags", "--remotes", "HEAD",
    )  # fmt: skip
    if own.strip():
        return False
    return (await ask_git(repository, "branch", "--quiet", "-D", branch)).exit_code == 0
