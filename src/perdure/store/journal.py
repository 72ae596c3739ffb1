"""The journal of runs: append, read, leases, the catalog (spec/journal.md 2).

A root run owns a journal; its children write theirs into it under their own run id. Who may append is decided by the
lease, in the transaction of the append. Everything here is a thin async face of plain functions of a transaction
(append, batch, leases, runs), which other tables' writes may share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec

from perdure.errors import JournalCorrupt, PerdureError, RunDeleted, TargetNotFound
from perdure.events import Stored, decode
from perdure.store import batch, leases, runs
from perdure.store.append import Appended, Exists, Item, Outcome, Prepared, Rejected, append_in, prepare
from perdure.store.batch import Created, Creation
from perdure.store.chain import verify_chain
from perdure.store.database import Database, Done, Tx, awaited
from perdure.store.leases import TIMEOUT_MS, Lease, Process, Terms
from perdure.store.runs import NewRun, Place, RunRow

__all__ = [
    "Appended", "Created", "Exists", "Item", "Journal", "Lease", "NewRun", "Outcome", "Rejected", "RunRow", "Terms",
    "append_in", "prepare", "verify_chain",
]  # fmt: skip

PAGE_EVENTS: Final = 256
_ROWS: Final = msgspec.json.Decoder(list[tuple[int, int, int, str, str]])

Deleted = Literal["ok", "running", "not_found"]


class Journal:
    """Every run's journal in one database. Safe to share between runs."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # --- leases

    async def create(self, new: NewRun, terms: Terms, items: Sequence[Item] = ()) -> Lease:
        """A new root run, its lease, and its first events, in one unit. Asked again by the same holder: the same lease.

        Raises LeaseHeld if another holder has the run, and what rejected the first item that was.
        """
        created: Created = await awaited(partial(self.submit_create, new, terms, items))
        for outcome in created.outcomes:
            if isinstance(outcome, Rejected):
                raise outcome.error
        return created.lease

    def submit_create(
        self, new: NewRun, terms: Terms, items: Sequence[Item], done: Done, loop: asyncio.AbstractEventLoop
    ) -> None:
        """`create` for the hot path: `done` gets Created, whose outcomes stand in the order of the items."""
        entry = prepare(Lease(new.run_id, terms.holder, 1, 0, terms.timeout_ms), items)
        self.database.submit_bulk(batch.run_bulk, Creation(new, terms, entry.items, entry.is_plain), done, loop)

    async def acquire(
        self, run_id: str, holder: str, timeout_ms: int = TIMEOUT_MS, process: Process | None = None
    ) -> Lease:
        """The lease of a run's root: free, late, its process proven gone, or ours already. Raises LeaseHeld."""
        terms = Terms(holder, timeout_ms, process)
        return await self.database.write(lambda tx: leases.acquire(tx, run_id, terms))

    async def renew(self, lease: Lease) -> None:
        """Stay alive. Works when late; raises StaleLease when lost."""
        refused = (await self.renew_many([lease]))[0]
        if refused is not None:
            raise refused

    async def renew_many(self, held: Sequence[Lease]) -> list[PerdureError | None]:
        """Renew all in one transaction; a StaleLease stands at the place of each lost lease."""
        return list(await self.database.write(lambda tx: leases.renew_many(tx, held)))

    async def release(self, lease: Lease) -> None:
        """Give the lease up; nothing happens if it is lost."""
        await awaited(partial(self.database.submit_bulk, batch.run_bulk, lease))

    def submit_release(self, lease: Lease, loop: asyncio.AbstractEventLoop) -> None:
        """`release` without waiting for it: whatever is written after it finds the lease free."""
        self.database.submit_bulk(batch.run_bulk, lease, lambda _result, _error: None, loop)

    # --- writing

    async def append(self, lease: Lease, item: Item) -> Appended | Exists:
        """Append one event. Raises what refused it."""
        outcome = (await self.append_many(lease, [item]))[0]
        if isinstance(outcome, Rejected):
            raise outcome.error
        return outcome

    async def append_many(self, lease: Lease, items: Sequence[Item]) -> list[Outcome]:
        """Append events in order, in one transaction; each has its own outcome.

        Raises StaleLease, RunDeleted or StorageUnavailable, and then none of them was appended.
        """
        result: list[Outcome] = await awaited(partial(self.submit_many, lease, items))
        return result

    def submit_many(
        self, lease: Lease, items: Sequence[Item], done: Done, loop: asyncio.AbstractEventLoop, *, is_idle: bool = False
    ) -> None:
        """`append_many` for the hot path: `done(outcomes, None)` after the commit, or `done(None, error)`.

        `is_idle` says that the loop has nothing else to do; then `done` may be called before this returns.
        """
        entry = prepare(lease, items)
        if not entry.is_plain and not any(isinstance(item, Prepared) for item in entry.items):
            loop.call_soon(done, entry.items, None)  # nothing that could be stored
            return
        submit = self.database.submit_idle if is_idle else self.database.submit_bulk
        submit(batch.run_bulk, entry, done, loop)

    async def create_child(self, lease: Lease, new: NewRun) -> None:
        """The row of a child run, once. Raises StaleLease, JournalCorrupt if the id stands at another place."""

        def unit(tx: Tx) -> None:
            leases.check(tx, lease)
            runs.create_child(tx, lease.root, new)

        await self.database.write(unit)

    # --- reading

    async def load(self, root_run_id: str) -> list[Stored]:
        """A whole journal, children's events too, in order. One statement for its events.

        Raises TargetNotFound, RunDeleted, JournalCorrupt.
        """

        def unit(tx: Tx) -> list[Stored]:
            place, row = _living(tx, root_run_id)
            names = _names(tx, place.root)
            events = [stored for (page,) in tx.all("events.all", root=place.root) for stored in _decode(page, names)]
            _check_whole(events, row.last_seq)
            return events

        return await self.database.read(unit)

    async def read(self, run_id: str, from_seq: int = 1) -> AsyncIterator[Stored]:
        """A root's whole journal or a child's own events, from a sequence on; each page is its own snapshot."""
        while True:
            page = await self.page(run_id, from_seq)
            for stored in page:
                yield stored
            if len(page) < PAGE_EVENTS:
                return
            from_seq = page[-1].seq + 1

    async def page(self, run_id: str, from_seq: int = 1, count: int = PAGE_EVENTS) -> list[Stored]:
        """At most `count` events from a sequence on. Raises as `load`."""

        def unit(tx: Tx) -> list[Stored]:
            place, _ = _living(tx, run_id)
            own = None if place.run == place.root else place.run
            row = tx.one("events.page", root=place.root, run=own, from_seq=from_seq, count=count)
            assert row is not None
            return _decode(row[0], _names(tx, place.root))

        return await self.database.read(unit)

    async def verify(self, run_id: str) -> int:
        """How many events the root's journal holds, once its chain of digests is proven. Raises JournalCorrupt."""

        def unit(tx: Tx) -> int:
            place = runs.place_of(tx, run_id)
            ends = tx.one("events.chain_ends", root=place.root)
            assert ends is not None
            rows: Any = tx.all("events.chain", root=place.root)
            return verify_chain(rows, base_seq=ends[0], base=ends[1], last_seq=ends[2], last=ends[3])

        return await self.database.read(unit)

    # --- the catalog

    async def catalog(
        self, *, status: str | None = None, children: bool = False, deleted: bool = False, before: str | None = None,
        count: int = 1000,
    ) -> list[RunRow]:  # fmt: skip
        """Runs, newest first, without folding anything; `before` pages on from a run id."""
        return await self.database.read(
            lambda tx: runs.catalog(tx, status=status, children=children, deleted=deleted, before=before, count=count)
        )

    async def tree(self, run_id: str) -> list[RunRow]:
        """The root of a run and every run of its tree, in order of creation."""
        return await self.database.read(lambda tx: runs.tree(tx, run_id))

    async def row(self, run_id: str) -> RunRow:
        """One run's row. Raises TargetNotFound."""
        found = await self.database.read(lambda tx: runs.row_of(tx, run_id))
        if found is None:
            raise TargetNotFound(f"There is no run {run_id}. perdure status shows the runs.", run_id=run_id)
        return found

    async def find(self, prefix: str) -> list[str]:
        """Ids of runs that begin so."""
        return await self.database.read(lambda tx: runs.find(tx, prefix))

    # --- deleting

    async def delete(self, lease: Lease) -> None:
        """Remove a run's record and release it; a tombstone and the transcripts stay. Raises StaleLease."""

        def unit(tx: Tx) -> None:
            leases.check(tx, lease)
            _bury(tx, lease.root)
            leases.release(tx, [lease])

        await self.database.write(unit)

    async def delete_if_inactive(self, run_id: str, process: Process | None = None) -> Deleted:
        """Delete a run that no live process owns; whoever still believes it owns it is fenced."""

        def unit(tx: Tx) -> Deleted:
            place = tx.one("runs.place", run_id=run_id)
            row = None if place is None else runs.row_of(tx, place[2])
            if place is None or row is None or row.deleted_at is not None:
                return "not_found"
            if leases.is_live(tx, place[1], process):
                return "running"
            _bury(tx, place[1])
            tx.run("leases.fence", root=place[1])
            return "ok"

        return await self.database.write(unit)


def _bury(tx: Tx, root: int) -> None:
    for name in ("events.delete_all", "events.delete_usage", "events.delete_prompts"):
        tx.run(name, root=root)
    tx.run("runs.bury", root=root, now=tx.now_ms)
    tx.run("runs.bury_children", root=root, now=tx.now_ms)


def _living(tx: Tx, run_id: str) -> tuple[Place, RunRow]:
    place = runs.place_of(tx, run_id)
    row = runs.row_of(tx, run_id)
    assert row is not None, run_id
    if row.deleted_at is not None:
        raise RunDeleted(f"Run {run_id} was deleted.", run_id=run_id)
    return place, row


def _check_whole(events: list[Stored], last_seq: int) -> None:
    """Raise JournalCorrupt if an event is missing: a resume would do again what it recorded.

    The first one is its run's beginning, which the engine misses by itself.
    """
    first = events[0].seq if events else 1
    if last_seq and (not events or events[-1].seq != last_seq or last_seq - first + 1 != len(events)):
        raise JournalCorrupt(
            f"The journal should hold events {first} to {last_seq} and holds {len(events)}. Restore the database from "
            "a backup; do not go on with this run.",
            last_seq=last_seq, found=len(events),
        )  # fmt: skip


def _names(tx: Tx, root: int) -> dict[int, str]:
    row = tx.one("runs.ids_of_root", root=root)
    assert row is not None
    return dict(msgspec.json.decode(row[0]))


def _decode(page: str, names: dict[int, str]) -> list[Stored]:
    return [Stored(seq, names[run], at, decode(kind, payload)) for seq, run, at, kind, payload in _ROWS.decode(page)]
