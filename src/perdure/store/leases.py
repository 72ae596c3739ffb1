"""Leases: who may append to a root run's journal (spec/journal.md 2.5).

    none -acquire-> held by A, epoch 1 -release-> free -acquire-> held by B, epoch 2
                    held by A -acquire by A-> same epoch, renewed, even when late
                    held by A -late, or A's process proven gone: acquire by B-> held by B, epoch + 1

Late is not lost: only another holder's acquire ends a right to append, in one statement, and every append checks holder
and epoch where it writes. Only the store's clock is compared, so a wrong clock of a process changes nothing, and a jump
of the store's clock can cause a take-over, which the epoch fences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from perdure.errors import LeaseHeld, RunDeleted, StaleLease
from perdure.store.database import Tx
from perdure.store.runs import place_of

TIMEOUT_MS = 90_000
RENEW_EVERY_MS = 30_000


class Process(Protocol):
    """The identity of the process that asks, as host/identity.py makes it."""

    def to_text(self) -> str:
        """What the lease row keeps."""
        ...

    def proves_gone(self, stored: str, *, one_machine: bool) -> bool:
        """Whether the process of a stored text is proven gone."""
        ...


class Lease(Struct, frozen=True):
    """The right to append to a root run's journal. `root` is its row."""

    root_run_id: str
    holder: str
    epoch: int
    root: int
    timeout_ms: int


class Terms(Struct, frozen=True):
    """Who asks for a lease, and how long its silence is waited out."""

    holder: str
    timeout_ms: int = TIMEOUT_MS
    process: Process | None = None


def acquire(tx: Tx, run_id: str, terms: Terms) -> Lease:
    """The lease of a run's root. Raises TargetNotFound, RunDeleted for a child of a deleted run, LeaseHeld."""
    place = place_of(tx, run_id)
    process = None if terms.process is None else terms.process.to_text()
    row = tx.one("leases.one", root=place.root)
    assert row is not None, f"the root of {run_id} has no lease row"
    holder, epoch, holder_process, renewed_at, timeout_ms = row
    now = tx.now_ms
    if holder == terms.holder:
        tx.run("leases.keep", root=place.root, holder=holder, now=now, timeout_ms=terms.timeout_ms, process=process)
        return Lease(place.root_run_id, holder, epoch, place.root, terms.timeout_ms)
    expires_at = renewed_at + timeout_ms
    if holder is not None and now <= expires_at and not _is_gone(terms, holder_process):
        raise LeaseHeld(
            f"Another process owns run {place.root_run_id}. "
            f"Send it a command instead (perdure show {place.root_run_id}), or resume once it has ended.",
            run_id=place.root_run_id, holder=holder, expires_at=expires_at,
        )  # fmt: skip
    taken = tx.run("leases.take", root=place.root, epoch=epoch, previous=holder, holder=terms.holder, process=process,
                   now=now, timeout_ms=terms.timeout_ms)  # fmt: skip
    assert taken == 1, f"lease of {run_id} changed inside its transaction"
    return Lease(place.root_run_id, terms.holder, epoch + 1, place.root, terms.timeout_ms)


def _is_gone(terms: Terms, stored: str | None) -> bool:
    return bool(stored) and terms.process is not None and terms.process.proves_gone(stored or "", one_machine=True)


def is_live(tx: Tx, root: int, process: Process | None) -> bool:
    """Whether somebody holds the lease, is not late, and is not proven gone by the process that asks."""
    row = tx.one("leases.one", root=root)
    if row is None or row[0] is None or tx.now_ms > row[3] + row[4]:
        return False
    return not _is_gone(Terms("", process=process), row[2])


def check(tx: Tx, lease: Lease) -> None:
    """Raise StaleLease unless holder and epoch are still ours. Being late is no reason."""
    row = tx.one("leases.one", root=lease.root)
    if row is None or row[0] != lease.holder or row[1] != lease.epoch:
        raise stale(lease, None if row is None else row[0], 0 if row is None else row[1])


def stale(lease: Lease, holder: str | None, epoch: int) -> StaleLease:
    """The refusal of a fenced writer."""
    return StaleLease(
        f"Another process owns run {lease.root_run_id} now; this one stops. "
        f"Follow it: perdure show {lease.root_run_id}",
        run_id=lease.root_run_id, ours=lease.epoch, current=epoch, holder=holder,
    )  # fmt: skip


def renew_many(tx: Tx, leases: Sequence[Lease]) -> list[StaleLease | None]:
    """Renew each; a refusal stands at the place of its lease. Works when late."""
    now = tx.now_ms
    refused: list[StaleLease | None] = []
    for lease in leases:
        if tx.run("leases.renew", root=lease.root, holder=lease.holder, epoch=lease.epoch, now=now):
            refused.append(None)
        else:
            row = tx.one("leases.one", root=lease.root) or (None, 0)
            refused.append(stale(lease, row[0], row[1]))
    return refused


def release(tx: Tx, held: Sequence[Lease]) -> None:
    """Give up those that are still ours. The epoch outlives them."""
    tx.run_rows("leases.release", [(lease.root, lease.holder, lease.epoch) for lease in held])


def refuse_deleted(run_id: str) -> RunDeleted:
    """The refusal of an append to a tombstone."""
    return RunDeleted(f"Run {run_id} was deleted. Start it anew: perdure run.", run_id=run_id)
