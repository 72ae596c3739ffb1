"""The worktrees of runs: which there are, where they lie, and that each is made once (spec/authoring.md 6).

    named      one a run and name, on a branch of its own; stays until its run is deleted
    given      one that the author made; only looked at
    temporary  one a stage, detached; removed once what it changed is kept

The law: a worktree is written down before git makes it and marked as made once it is complete. So one that a crash left
half made is known and made anew, and a complete one is taken up again as it is, with everything that was done in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from perdure.errors import GitFailed, UsageError
from perdure.host.furnishing import Furnishing, furnish
from perdure.host.snapshots import head_of, restore_snapshot, snapshot_at
from perdure.host.worktrees import (
    Checkout,
    add_again,
    add_worktree,
    check_clean,
    checkout_around,
    commit_of,
    drop_branch,
    existing_worktree,
    has_branch,
    is_worktree,
    remove_worktree,
)
from perdure.operations.base import Call
from perdure.store import worktrees as rows
from perdure.store.database import Database
from perdure.store.worktrees import WorktreeKind, WorktreeRow

_RUN_DIGITS: Final = (8, 13, 36)  # of a run's id in the name of a branch: more, if the short one is taken


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree that is ready to be worked in."""

    kind: WorktreeKind
    path: Path
    cwd: Path  # in it, where the folder lies in the checkout that was asked from
    repository: Path
    base: str  # the commit it began at


class Worktrees:
    """Every worktree that runs of this engine use."""

    def __init__(self, database: Database, folder: Path, furnishing: Furnishing) -> None:
        """New ones are made below `folder`."""
        self._database, self._folder, self._furnishing = database, folder, furnishing
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def named(self, run: Any, name: str, base: str | None, around: Path) -> Worktree:
        """The run's worktree of that name, made if it is not there. Raises UsageError, GitFailed."""
        checkout = await checkout_around(around)
        path = self._folder / run.run_id / "named" / name
        async with self._lock(path):
            row = await self._known(run, path)
            if row is None or row.state != "made":
                row = await self._make_named(run, checkout, row, WorktreeRow(
                    path=str(path), kind="named", repository=str(checkout.repository), branch=name,
                    base=await commit_of(checkout.top, base or "HEAD"),
                ))  # fmt: skip
            else:
                await _check_named(row, checkout, base)
        return _ready(row, checkout)

    async def given(self, run: Any, path: Path, base: str | None, around: Path) -> Worktree:
        """A worktree of the author's. Raises UsageError for what is none, or lies in a checkout that is in use."""
        if base is not None:
            raise UsageError("base= is for worktrees that perdure makes; one given by its path is as it is.", base=base)
        checkout = await checkout_around(around)
        home = await checkout_around(run.tree.options.cwd)
        place = await existing_worktree(checkout, run.cwd / path, [home.top])
        row = await self._known(run, place)
        if row is None:
            row = WorktreeRow(
                path=str(place), kind="given", repository=str(checkout.repository), branch=None,
                base=await commit_of(place, "HEAD"),
            )  # fmt: skip
            await self._plan(run, row)
            await self._set_state(run, row, "made")
        return _ready(row, checkout)

    async def temporary(self, call: Call, ref: str, base: str | None, around: Path) -> Worktree:
        """The worktree of one stage. One that was interrupted gets it as it was, from the snapshot at `ref` if need be.

        Raises UsageError, GitFailed.
        """
        run: Any = call.run
        checkout = await checkout_around(around)
        place = call.position.replace("/", "body").replace(":", "-") + (f"-{call.take}" if call.take else "")
        path = self._folder / run.run_id / "temporary" / place
        row = await self._known(run, path)
        if row is not None and row.state == "made" and await is_worktree(path):
            return _ready(row, checkout)
        goes_on = row is not None and call.position in run.record.sessions
        if row is None or not goes_on:
            if base is None:
                await check_clean(checkout)
            row = WorktreeRow(
                path=str(path), kind="temporary", repository=str(checkout.repository), branch=None,
                base=await commit_of(checkout.top, base or "HEAD"),
            )  # fmt: skip
        kept = await snapshot_at(checkout.repository, ref) if goes_on else None
        await self._plan(run, row)
        await remove_worktree(checkout.repository, path)
        await add_worktree(
            checkout.repository, path, (await head_of(checkout.repository, kept) if kept else "") or row.base
        )
        if kept is not None:
            await restore_snapshot(path, kept)
        await self._finish(run, row, checkout)
        return _ready(row, checkout)

    async def remove(self, run: Any, worktree: Worktree) -> None:
        """Remove a temporary worktree, with everything in it. Raises StaleLease, GitFailed."""
        assert worktree.kind == "temporary", worktree
        await remove_worktree(worktree.repository, worktree.path)
        path, lease = str(worktree.path), run.tree.lease
        await self._database.write(lambda tx: rows.set_state(tx, lease, run.run_id, path, "removed"))

    # --- making

    async def _make_named(
        self, run: Any, checkout: Checkout, left: WorktreeRow | None, wanted: WorktreeRow
    ) -> WorktreeRow:
        """Make a worktree on a new branch. What an earlier try left of it holds no work and goes."""
        path, name = Path(wanted.path), wanted.branch
        if left is not None:
            await remove_worktree(Path(left.repository), path)
            await drop_branch(Path(left.repository), left.branch or "")
        for digits in _RUN_DIGITS:
            branch = f"perdure/{run.run_id[:digits]}/{name}"
            if await has_branch(checkout.repository, branch):
                continue
            row = replace(wanted, branch=branch)
            await self._plan(run, row)
            try:
                await add_worktree(checkout.repository, path, row.base, branch)
            except GitFailed:
                if await has_branch(checkout.repository, branch) and not path.exists():
                    continue  # another process made the branch meanwhile
                raise
            await self._finish(run, row, checkout)
            return row
        raise UsageError(
            f"The branches for worktree {name} of run {run.run_id} exist already. Delete them: git branch -D "
            f"perdure/{run.run_id}/{name}",
            worktree=name,
        )

    async def _finish(self, run: Any, row: WorktreeRow, checkout: Checkout) -> None:
        await furnish(checkout, Path(row.path), self._furnishing)
        await self._set_state(run, row, "made")

    # --- what is written down

    def _lock(self, path: Path) -> asyncio.Lock:
        """Stages of a run may ask for the same worktree at once."""
        return self._locks.setdefault(path, asyncio.Lock())

    async def _known(self, run: Any, path: Path) -> WorktreeRow | None:
        return await self._database.read(lambda tx: rows.get(tx, run.run_id, str(path)))

    async def _plan(self, run: Any, row: WorktreeRow) -> None:
        await self._database.write(lambda tx: rows.plan(tx, run.tree.lease, run.run_id, row))

    async def _set_state(self, run: Any, row: WorktreeRow, state: Any) -> None:
        await self._database.write(lambda tx: rows.set_state(tx, run.tree.lease, run.run_id, row.path, state))


async def _check_named(row: WorktreeRow, checkout: Checkout, base: str | None) -> None:
    """Refuse a worktree that is not what the stage asks for; bring one back whose folder is gone."""
    path, branch = Path(row.path), row.branch or ""
    if row.repository != str(checkout.repository):
        raise UsageError(
            f"Worktree {path.name} of this run belongs to {row.repository}, not to {checkout.repository}. Take "
            "another name.",
            worktree=path.name,
        )
    if base is not None and await commit_of(checkout.top, base) != row.base:
        raise UsageError(
            f"Worktree {path.name} of this run began at {row.base[:10]}, not at {base}. Take another name, or leave "
            "base= out.",
            worktree=path.name, base=base,
        )  # fmt: skip
    if await is_worktree(path):
        return
    if path.exists() or not await has_branch(checkout.repository, branch):
        raise UsageError(
            f"Worktree {path} is broken or gone, and so may be its work. The run's snapshots have what its stages "
            f"left: git for-each-ref refs/perdure. To go on from one: git branch {branch} COMMIT, and remove the "
            "folder if it is there.",
            worktree=str(path), branch=branch,
        )  # fmt: skip
    await add_again(checkout.repository, path, branch)


def _ready(row: WorktreeRow, checkout: Checkout) -> Worktree:
    path = Path(row.path)
    cwd = path / checkout.within
    if not cwd.is_dir() or not cwd.resolve().is_relative_to(path.resolve()):
        raise UsageError(
            f"The worktree {path} has no folder {checkout.within} of its own: it holds what is committed at "
            f"{row.base[:10]}. Commit the folder, or let the stage work further up: cwd=...",
            cwd=str(cwd),
        )
    return Worktree(row.kind, path, cwd, Path(row.repository), row.base)


__all__ = ["Worktree", "Worktrees"]
