"""What the writer runs for all journal calls that wait, as one bulk: runs that begin, appends, leases given up.

A creation is a run's row, its lease and its first events in one unit. Together they go in that order, creations first
and releases last, which is the order they have within each run; a call that comes after its own lease's release makes
the bulk go one by one, in queue order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from perdure.errors import JournalError, PerdureError
from perdure.store import leases, runs
from perdure.store.append import (
    BetLost,
    Entry,
    Head,
    Outcome,
    Prepared,
    Rejected,
    append_in,
    append_together,
    read_heads,
)
from perdure.store.database import ConstraintViolated, Row, Tx
from perdure.store.leases import Lease, Terms
from perdure.store.runs import NewRun


class Creation(Struct, frozen=True):
    """A root run to create, who owns it, and its first events."""

    new: NewRun
    terms: Terms
    items: list[Prepared | Rejected]
    is_plain: bool


class Created(Struct, frozen=True):
    """The run exists and is ours."""

    lease: Lease
    outcomes: list[Outcome]


Call = Creation | Entry | Lease  # a lease alone: it is given up


def run_bulk(tx: Tx, calls: list[Call]) -> list[Any]:
    """For each call its outcomes (a creation's in Created, a release's None), or the error that refuses all of it."""
    try:
        return _run_together(tx, calls)
    except (BetLost, ConstraintViolated):
        return [_one(tx, call) for call in calls]


def _run_together(tx: Tx, calls: list[Call]) -> list[Any]:
    released: list[Lease] = []
    over: set[int] = set()
    entries: list[Entry | Creation] = []
    creations: list[Creation] = []
    for call in calls:
        if isinstance(call, Lease):
            released.append(call)
            over.add(call.root)
            continue
        if not call.is_plain or (isinstance(call, Entry) and call.lease.root in over):
            raise BetLost
        entries.append(call)
        if isinstance(call, Creation):
            creations.append(call)
    results: list[Any] = []
    if creations:
        with tx.savepoint():
            results = _create_together(tx, entries, creations)
    elif entries:
        results = list(_together(tx, entries, {}, []))
    if not released:
        return results
    leases.release(tx, released)
    in_turn = iter(results)
    return [None if type(call) is Lease else next(in_turn) for call in calls]


def _one(tx: Tx, entry: Call) -> Any:
    try:
        if isinstance(entry, Lease):
            return leases.release(tx, [entry])
        if isinstance(entry, Entry):
            return append_in(tx, entry)
        with tx.savepoint():
            lease = create(tx, entry.new, entry.terms)
            return Created(lease, append_in(tx, Entry(lease, entry.items, entry.is_plain)))
    except PerdureError as error:
        return error


def create(tx: Tx, new: NewRun, terms: Terms) -> Lease:
    """A root run's row and its lease. One that exists is acquired, so that a lost reply can be asked for again."""
    if tx.one("runs.place", run_id=new.run_id) is not None:
        return leases.acquire(tx, new.run_id, terms)
    row = _next_row(tx)
    _insert(tx, [(new, terms)], row)
    return Lease(new.run_id, terms.holder, 1, row, terms.timeout_ms)


def _create_together(tx: Tx, entries: Sequence[Entry | Creation], creations: Sequence[Creation]) -> list[Any]:
    first = _next_row(tx)
    _insert(tx, [(creation.new, creation.terms) for creation in creations], first)
    created = [
        Lease(creation.new.run_id, creation.terms.holder, 1, row, creation.terms.timeout_ms)
        for row, creation in enumerate(creations, first)
    ]
    heads = {lease.root: Head(lease.root, lease.holder, 1, lease.root_run_id, 0, b"", False) for lease in created}
    results = _together(tx, entries, heads, created)
    in_turn = iter(created)
    return [
        Created(next(in_turn), result) if type(entry) is Creation and isinstance(result, list) else result
        for entry, result in zip(entries, results, strict=True)
    ]


def _together(
    tx: Tx, entries: Sequence[Entry | Creation], heads: dict[int, Head], created: list[Lease]
) -> list[list[Outcome] | JournalError]:
    in_turn = iter(created)
    plain = [entry if type(entry) is Entry else Entry(next(in_turn), entry.items, True) for entry in entries]
    older = [entry.lease.root for entry in plain if entry.lease.root not in heads]
    return append_together(tx, {**read_heads(tx, older), **heads} if older else heads, plain)


def _next_row(tx: Tx) -> int:
    row = tx.one("runs.next_id")
    assert row is not None
    return int(row[0])


def _insert(tx: Tx, wanted: Sequence[tuple[NewRun, Terms]], first: int) -> None:
    now = tx.now_ms
    held: list[Row] = [
        (row, terms.holder, 1, None if terms.process is None else terms.process.to_text(), now, terms.timeout_ms)
        for row, (_, terms) in enumerate(wanted, first)
    ]
    tx.run_rows("runs.create", [runs.insert_root(tx, new, row) for row, (new, _) in enumerate(wanted, first)])
    tx.run_rows("leases.create", held)
