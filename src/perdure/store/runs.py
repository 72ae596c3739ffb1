"""Rows of `runs`: creating them, and the catalog that lists read instead of folding (spec/journal.md, Override 3)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, json

from perdure.errors import JournalCorrupt, TargetNotFound
from perdure.store.database import Row, Tx

PREFIX_MATCHES_MAX = 20


class NewRun(Struct, frozen=True):
    """A run to create. `parent_run_id` and `parent_position` are None for a root, whose `root_run_id` is its own id."""

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    parent_position: str | None
    depth: int
    name: str
    cwd: str
    definition: str
    file_digest: str


class RunRow(Struct, frozen=True):
    """A run as the catalog holds it. Times are store milliseconds; spend and open prompts include runs below it."""

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    parent_position: str | None
    depth: int
    name: str
    cwd: str
    definition: str
    file_digest: str
    status: str
    status_epoch: int
    resumable: bool
    code: str
    reason: str
    error_code: str
    error_message: str
    events_count: int
    nodes_done: int
    prompts_open: int
    tokens_in: int
    tokens_out: int
    cost_nanos: int
    last_seq: int  # of the root's journal; 0 in a child's row
    created_at: int
    started_at: int | None
    ended_at: int | None
    updated_at: int
    deleted_at: int | None
    holder: str | None  # of the root's lease; None once released
    epoch: int | None
    process: str | None
    lease_until: int | None  # store time at which a silent owner may be replaced


class Place(Struct, frozen=True):
    """Where a run lives: its row and its root's."""

    run: int
    root: int
    root_run_id: str


def place_of(tx: Tx, run_id: str) -> Place:
    """Where a run lives. Raises TargetNotFound."""
    row = tx.one("runs.place", run_id=run_id)
    if row is None:
        raise TargetNotFound(f"There is no run {run_id}. perdure status shows the runs.", run_id=run_id)
    return Place(row[0], row[1], row[2])


def places_of(tx: Tx, run_ids: list[str]) -> dict[str, tuple[int, int]]:
    """(row, root row) of each run that exists."""
    row = tx.one("runs.places", run_ids=json.encode(run_ids).decode())
    assert row is not None
    return {run_id: (run, root) for run_id, run, root in json.decode(row[0])}


def insert_root(tx: Tx, new: NewRun, row: int) -> Row:
    """The columns of a new root run's row."""
    now = tx.now_ms
    return (row, new.run_id, row, None, None, 1, new.name, new.cwd, new.definition, new.file_digest, now, now)


def create_child(tx: Tx, root: int, new: NewRun) -> None:
    """The row of a child run, once. Raises TargetNotFound without its parent, JournalCorrupt at another place."""
    existing = tx.one("runs.place", run_id=new.run_id)
    parent = place_of(tx, new.parent_run_id or "")
    if existing is not None:
        if existing[1] != root or existing[3:] != (parent.run, new.parent_position):
            raise JournalCorrupt(f"Child run {new.run_id} is recorded at another place.", run_id=new.run_id)
        return
    if parent.root != root:
        raise JournalCorrupt(f"Run {new.parent_run_id} belongs to another root than {new.run_id}.", run_id=new.run_id)
    row = tx.one("runs.next_id")
    assert row is not None
    now = tx.now_ms
    columns = (row[0], new.run_id, root, parent.run, new.parent_position, new.depth, new.name, new.cwd, new.definition,
               new.file_digest, now, now)  # fmt: skip
    tx.run_rows("runs.create", [columns])


def row_of(tx: Tx, run_id: str) -> RunRow | None:
    """One run's row."""
    found = tx.one("runs.one", run_id=run_id)
    return None if found is None else to_run_row(found)


def catalog(
    tx: Tx, *, status: str | None = None, children: bool = False, deleted: bool = False, before: str | None = None,
    count: int = 1000,
) -> list[RunRow]:  # fmt: skip
    """Runs, newest first; `before` pages on from a run id. One query, no fold."""
    found = tx.all("runs.catalog", status=status, children=children, deleted=deleted, before=before, count=count)
    return [to_run_row(row) for row in found]


def tree(tx: Tx, run_id: str) -> list[RunRow]:
    """The root of a run and every run of its tree, in order of creation."""
    return [to_run_row(row) for row in tx.all("runs.tree", run_id=run_id)]


def find(tx: Tx, prefix: str) -> list[str]:
    """Ids that begin with a prefix, at most PREFIX_MATCHES_MAX."""
    found = tx.all("runs.find", prefix=prefix, end=prefix + "\U0010ffff", count=PREFIX_MATCHES_MAX)
    return [row[0] for row in found]


def to_run_row(row: Row) -> RunRow:
    """A row of `runs.catalog`, `tree` or `one`."""
    columns: list[Any] = list(row)
    columns[11] = bool(columns[11])
    return RunRow(*columns)
