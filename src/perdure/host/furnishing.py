"""What a new worktree gets that its commit does not hold, so that work can begin in it at once.

    .worktreeinclude   git-ignored files of the checkout whose paths match its patterns are copied (.env and the like)
    link_dirs          git-ignored folders of the checkout are linked (node_modules and the like)
    worktree_setup     a command that runs in the worktree

The law: only what git ignores is copied or linked, and nothing that is there is overwritten.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.errors import UsageError
from perdure.host.git import ask_git, git
from perdure.host.processes import environment, shell
from perdure.host.worktrees import Checkout
from perdure.values import bounded

INCLUDE: Final = ".worktreeinclude"
SETUP_SECONDS: Final = 30.0
COPIED_FILES_MAX: Final = 10_000
COPIED_BYTES_MAX: Final = 256 * 1024 * 1024
COMPLAINT_BYTES_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Furnishing:
    """What new worktrees get beside their commit."""

    link_dirs: tuple[str, ...] = ()  # relative to the checkout's top
    setup: tuple[str, ...] = ()  # a command, as a list of words


async def furnish(checkout: Checkout, place: Path, wanted: Furnishing) -> None:
    """Copy, link, set up. Raises UsageError when a bound or a name does not fit or the command fails."""
    if (checkout.top / INCLUDE).is_file():
        names = await _included(checkout.top)
        await asyncio.to_thread(_copy, checkout.top, place, names)
    for name in wanted.link_dirs:
        await _link(checkout, place, name)
    if wanted.setup:
        await _set_up(place, wanted.setup)


async def _included(top: Path) -> list[str]:
    """Files that .worktreeinclude matches and git ignores."""
    matched = await git(top, "ls-files", "-z", "--others", "--ignored", f"--exclude-from={INCLUDE}")
    return await _ignored(top, [name for name in matched.split("\0") if name])


async def _ignored(top: Path, names: list[str]) -> list[str]:
    """Those of `names` that git ignores."""
    if not names:
        return []
    found = await ask_git(top, "check-ignore", "-z", "--stdin", text="\0".join(names))
    return [name for name in found.stdout.split("\0") if name]


def _copy(top: Path, place: Path, names: list[str]) -> None:
    size = sum((top / name).lstat().st_size for name in names if os.path.lexists(top / name))
    if len(names) > COPIED_FILES_MAX or size > COPIED_BYTES_MAX:
        raise UsageError(
            f"{INCLUDE} matches {len(names)} files of {size // 1024**2} MiB; at most {COPIED_FILES_MAX} files of "
            f"{COPIED_BYTES_MAX // 1024**2} MiB are copied. Match less, or link folders: link_dirs in perdure.toml.",
            files=len(names), bytes=size,
        )  # fmt: skip
    for name in names:
        source, target = top / name, place / name
        if (source.is_file() or source.is_symlink()) and not os.path.lexists(target) and _is_inside(target, place):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _is_inside(target: Path, place: Path) -> bool:
    """Whether a new entry would lie in the worktree, whatever links and files lead there."""
    above = next(folder for folder in target.parents if os.path.lexists(folder))
    return above.is_dir() and above.resolve().is_relative_to(place.resolve())


async def _link(checkout: Checkout, place: Path, name: str) -> None:
    source, target = checkout.top / name, place / name
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts or not parts or parts[0] == ".git":
        raise UsageError(f"link_dirs names {name!r}, which is no folder inside the checkout.", link_dirs=name)
    if not source.is_dir() or os.path.lexists(target) or not _is_inside(target, place):
        return
    if not await _ignored(checkout.top, [name]):
        return
    await asyncio.to_thread(_make_link, source, target)
    if not await _ignored(place, [name]):  # the pattern ends in "/", and a link is no folder
        await asyncio.to_thread(_exclude, checkout.repository, name)


def _make_link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source, target_is_directory=True)


def _exclude(repository: Path, name: str) -> None:
    """Have git ignore a link, in the repository's own list, which no commit holds."""
    (repository / "info").mkdir(exist_ok=True)
    with (repository / "info" / "exclude").open("a", encoding="utf-8") as file:
        file.write(f"\n# a folder that perdure links into worktrees\n/{name.strip('/')}\n")


async def _set_up(place: Path, words: tuple[str, ...]) -> None:
    what = f"The command of worktree_setup, {' '.join(words)},"
    try:
        done = await shell(words, cwd=place, timeout=SETUP_SECONDS, env=environment())
    except FileNotFoundError as error:
        raise UsageError(f"{what} cannot start: {error}", command=list(words)) from error
    except TimeoutError as error:
        raise UsageError(f"{what} took longer than {SETUP_SECONDS:g} s in {place}.", command=list(words)) from error
    if done.exit_code != 0:
        said = bounded((done.stderr or done.stdout).strip(), COMPLAINT_BYTES_MAX)
        raise UsageError(
            f"{what} failed in {place} with exit code {done.exit_code}: {said}",
            command=list(words), exit_code=done.exit_code,
        )  # fmt: skip
