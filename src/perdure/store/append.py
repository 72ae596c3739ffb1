"""Appending: the transaction that law 2 rests on (spec/journal.md 2.3, 2.4).

For each item, in order: lease, guard, key (known: Exists, nothing written), expected sequence, row, counters, guard.
The lease comes first, so that a fenced writer never hears "success", not even "exists".

Two ways through, with the same outcomes. *Together*: all items of all runs of a batch in a handful of statements, on
the bet that no key is known yet; the unique index (run, key) calls the bet, at the first statement. *One by one*, with
a savepoint each, for what lost the bet and for items with a guard, which must run around its own insert.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from perdure.errors import (
    AppendRefused,
    CounterOverflow,
    JournalError,
    PayloadInvalid,
    PerdureError,
    SequenceConflict,
    TargetNotFound,
)
from perdure.events import NAMES, Event, RunStarted, Stored, decode, encode
from perdure.store import effects, leases
from perdure.store.chain import link
from perdure.store.database import ConstraintViolated, Row, Tx
from perdure.store.leases import Lease
from perdure.store.runs import places_of
from perdure.values import check

KEY_BYTES_MAX: Final = 1024
SEQ_MAX: Final = 2**53 - 1

Guard = Callable[[Tx], None]


class Item(Struct, frozen=True):
    """An event to append to a run of the lease's tree.

    `expect_seq` is the root's last sequence the decision was made on; `guard` runs inside the transaction, before and
    after the insert, and refuses by raising. The event must not change afterwards.
    """

    run_id: str
    event: Event
    key: str | None = None
    expect_seq: int | None = None
    guard: Guard | None = None


class Appended(Struct, frozen=True):
    """The event is durable under `stored.seq`."""

    stored: Stored


class Exists(Struct, frozen=True):
    """An event with this key was there already; nothing was written."""

    stored: Stored


class Rejected(Struct, frozen=True):
    """This item was refused; the others of its call stand."""

    error: PerdureError


Outcome = Appended | Exists | Rejected


class Prepared(Struct, frozen=True):
    """An item with its payload serialised: what happens to the event after the call has no effect."""

    run_id: str
    key: str
    type_name: str
    payload: str
    event: Event
    expect_seq: int | None
    guard: Guard | None


class Entry(Struct, frozen=True):
    """One call's items, as they wait in the writer's queue."""

    lease: Lease
    items: list[Prepared | Rejected]
    is_plain: bool  # no guard, no rejection: may go together with others


class Head(Struct):
    """The end of a root's journal within a transaction."""

    root: int
    holder: str | None
    epoch: int
    run_id: str
    seq: int
    digest: bytes
    is_deleted: bool


class BetLost(Exception):
    """These items must be looked at one by one."""


def prepare(lease: Lease, items: Sequence[Item]) -> Entry:
    """Check and serialise the items. An item that cannot be stored becomes its own Rejected."""
    prepared: list[Prepared | Rejected] = []
    is_plain = True
    for item in items:
        try:
            one = _prepare(item)
        except PerdureError as error:
            prepared.append(Rejected(error))
            is_plain = False
        else:
            prepared.append(one)
            if item.guard is not None:
                is_plain = False
    return Entry(lease, prepared, is_plain)


def _prepare(item: Item) -> Prepared:
    event = item.event
    kind = type(event)
    if isinstance(event, RunStarted):
        check(event.options, "options")  # the one field that may hold anything
    key = event.key if item.key is None else item.key
    if not key or "\0" in key:
        raise PayloadInvalid("An event's key must be text without NUL.", key=key)
    try:
        payload = encode(event)
        key_bytes = len(key) if key.isascii() else len(key.encode())
    except (UnicodeError, TypeError, ValueError, OverflowError) as error:
        raise PayloadInvalid(
            f"A {NAMES[kind]} event cannot be stored: {type(error).__name__}.", type=NAMES[kind]
        ) from error
    if key_bytes > KEY_BYTES_MAX:
        key = "sha256:" + sha256(key.encode()).hexdigest()
    if kind is RunStarted:
        event = decode("run_started", payload)  # its options may change in the caller's hands
    return Prepared(item.run_id, key, NAMES[kind], payload, event, item.expect_seq, item.guard)


# --- in the transaction


def append_in(tx: Tx, entry: Entry) -> list[Outcome]:
    """Append one call's items inside any transaction. Raises StaleLease or RunDeleted, and then nothing was written."""
    head = read_heads(tx, [entry.lease.root]).get(entry.lease.root)
    check_head(entry, head)
    assert head is not None
    if entry.is_plain:
        try:
            result = append_together(tx, {head.root: head}, [entry])[0]
            assert isinstance(result, list)
            return result
        except (BetLost, ConstraintViolated):
            pass
    return _append_one_by_one(tx, head, entry)


def read_heads(tx: Tx, roots: list[int]) -> dict[int, Head]:
    """Lease and journal end of some roots."""
    row = tx.one("events.heads", roots=str(list(dict.fromkeys(roots))))
    assert row is not None
    tx.observe_now(row[0])
    return {
        root: Head(root, holder, epoch, run_id, seq, bytes.fromhex(digest), bool(is_deleted))
        for root, holder, epoch, run_id, seq, digest, is_deleted in msgspec.json.decode(row[1])
    }


def check_head(entry: Entry, head: Head | None) -> None:
    """Raise StaleLease unless the lease holds, RunDeleted for a tombstone that is not started anew."""
    lease = entry.lease
    if head is None or head.holder != lease.holder or head.epoch != lease.epoch:
        raise leases.stale(lease, None if head is None else head.holder, 0 if head is None else head.epoch)
    if head.is_deleted:
        first = entry.items[0] if entry.items else None
        if not (isinstance(first, Prepared) and type(first.event) is RunStarted and first.run_id == head.run_id):
            raise leases.refuse_deleted(head.run_id)


def append_together(tx: Tx, heads: dict[int, Head], entries: Sequence[Entry]) -> list[list[Outcome] | JournalError]:
    """Append everything in one go; for each entry its outcomes, or what refuses its whole call.

    Raises BetLost or ConstraintViolated when the entries must be looked at one by one; then nothing was written.
    """
    places = _child_places(tx, entries)
    now = tx.now_ms
    rows: list[Row] = []
    written: list[tuple[int, Event]] = []
    results: list[list[Outcome] | JournalError] = []
    ends: dict[int, tuple[int, bytes]] = {}
    for entry in entries:
        lease = entry.lease
        root = lease.root
        head = heads.get(root)
        try:
            check_head(entry, head)
        except JournalError as error:
            results.append(error)
            continue
        assert head is not None
        if head.is_deleted:
            raise BetLost
        seq, digest = ends.get(root) or (head.seq, head.digest)
        outcomes: list[Outcome] = []
        for item in entry.items:
            assert type(item) is Prepared
            run_id = item.run_id
            run = root if run_id == head.run_id else _run_below(places, run_id, root)
            if (item.expect_seq is not None and item.expect_seq != seq) or seq >= SEQ_MAX:
                raise BetLost
            seq += 1
            digest = link(digest, (seq, run_id, lease.epoch, item.key, item.type_name, item.payload, now))
            rows.append((root, seq, run, lease.epoch, item.key, item.type_name, item.payload, now, digest))
            written.append((run, item.event))
            outcomes.append(Appended(Stored(seq, run_id, now, item.event)))
        ends[root] = (seq, digest)
        results.append(outcomes)
    if rows:
        # One row that is refused leaves nothing behind, and then only its effects could be refused.
        is_safe = len(rows) == 1 and not effects.has_any(written[0][1])
        with nullcontext() if is_safe else tx.savepoint():
            tx.run_rows("events.insert", rows)
            effects.apply(tx, written, ends)
    return results


def _child_places(tx: Tx, entries: Sequence[Entry]) -> dict[str, tuple[int, int]]:
    wanted = {
        item.run_id
        for entry in entries
        for item in entry.items
        if type(item) is Prepared and item.run_id != entry.lease.root_run_id
    }
    return places_of(tx, sorted(wanted)) if wanted else {}


def _run_below(places: dict[str, tuple[int, int]], run_id: str, root: int) -> int:
    place = places.get(run_id)
    if place is None or place[1] != root:
        raise BetLost
    return place[0]


def _append_one_by_one(tx: Tx, head: Head, entry: Entry) -> list[Outcome]:
    places = _child_places(tx, [entry])
    outcomes: list[Outcome] = []
    for item in entry.items:
        if isinstance(item, Rejected):
            outcomes.append(item)
            continue
        before = (head.seq, head.digest, head.is_deleted)
        try:
            with tx.savepoint():
                outcomes.append(_append_one(tx, head, places, item))
        except PerdureError as error:
            head.seq, head.digest, head.is_deleted = before
            outcomes.append(Rejected(error))
    return outcomes


def _append_one(tx: Tx, head: Head, places: dict[str, tuple[int, int]], item: Prepared) -> Outcome:
    run, root = (head.root, head.root) if item.run_id == head.run_id else places.get(item.run_id, (0, 0))
    if root != head.root:
        raise TargetNotFound(f"Run {item.run_id} is not part of run {head.run_id}.", run_id=item.run_id)
    _ask(item, tx)
    known = tx.one("events.by_key", run=run, key=item.key)
    if known is not None:
        return Exists(Stored(known[0], item.run_id, known[1], decode(known[2], known[3])))
    if item.expect_seq is not None and item.expect_seq != head.seq:
        raise SequenceConflict(f"Run {head.run_id} moved on from {item.expect_seq} to {head.seq}.",
                               run_id=head.run_id, expected=item.expect_seq, actual=head.seq)  # fmt: skip
    if head.seq >= SEQ_MAX:
        raise CounterOverflow(f"Run {head.run_id} has used up its sequence numbers. Fork it.", run_id=head.run_id)
    if head.is_deleted:
        tx.run("runs.revive", root=head.root)
        head.is_deleted = False
    now = tx.now_ms
    head.seq += 1
    row = (head.seq, item.run_id, head.epoch, item.key, item.type_name, item.payload, now)
    head.digest = link(head.digest, row)
    tx.run_rows("events.insert", [(head.root, head.seq, run, head.epoch, item.key, item.type_name, item.payload, now,
                                   head.digest)])  # fmt: skip
    effects.apply(tx, [(run, item.event)], {head.root: (head.seq, head.digest)})
    _ask(item, tx)
    return Appended(Stored(head.seq, item.run_id, now, item.event))


def _ask(item: Prepared, tx: Tx) -> None:
    if item.guard is None:
        return
    try:
        item.guard(tx)
    except AppendRefused:
        raise
    except PerdureError as error:
        raise AppendRefused(f"The append was refused: {error.message}", reason=error.code, **error.details) from error
