"""The git worktrees that runs use: written down before they are made, until they are removed with their run.

    planned --(made)--> made --(a temporary one's stage ended)--> removed

A given worktree has a row too, because its repository holds snapshots of the run; the worktree itself is never touched.
Plain functions of a transaction; those that write check the lease of the run's root.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from perdure.store import leases
from perdure.store.database import Tx
from perdure.store.leases import Lease
from perdure.store.runs import place_of

WorktreeKind = Literal["named", "given", "temporary"]
WorktreeState = Literal["planned", "made", "removed"]


class WorktreeRow(Struct, frozen=True):
    """One worktree of a run. `base` is the commit it began at; only a named one has a branch."""

    path: str
    kind: WorktreeKind
    repository: str  # the git folder that all worktrees of the repository share
    branch: str | None
    base: str
    state: WorktreeState = "planned"


def plan(tx: Tx, lease: Lease, run_id: str, row: WorktreeRow) -> None:
    """Write down that a worktree is about to be made. Raises StaleLease."""
    leases.check(tx, lease)
    tx.run(
        "worktrees.plan", run=place_of(tx, run_id).run, path=row.path, kind=row.kind, repository=row.repository,
        branch=row.branch, base=row.base, now=tx.now_ms,
    )  # fmt: skip


def set_state(tx: Tx, lease: Lease, run_id: str, path: str, state: WorktreeState) -> None:
    """A worktree was made or removed. Raises StaleLease."""
    leases.check(tx, lease)
    tx.run("worktrees.set_state", run=place_of(tx, run_id).run, path=path, state=state, now=tx.now_ms)


def get(tx: Tx, run_id: str, path: str) -> WorktreeRow | None:
    """What is known of a worktree of a run."""
    row = tx.one("worktrees.one", run=place_of(tx, run_id).run, path=path)
    return None if row is None else WorktreeRow(*row)


def of_tree(tx: Tx, root_run_id: str) -> list[tuple[str, WorktreeRow]]:
    """(run id, worktree) of every run of a tree, deleted ones too."""
    rows = tx.all("worktrees.of_tree", root=place_of(tx, root_run_id).root)
    return [(run_id, WorktreeRow(*columns)) for run_id, *columns in rows]


def forget(tx: Tx, run_id: str, path: str) -> None:
    """Nothing of a worktree is left."""
    tx.run("worktrees.forget", run=place_of(tx, run_id).run, path=path)
