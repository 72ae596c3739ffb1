"""The control mailbox: one durable row a request to the owner of a run (spec/control.md 4).

    posted: pending -settle, by the owner-> settled with an outcome
                    -withdraw, by whoever posted it-> withdrawn

Both moves compare-and-set on `pending`, so a request that was given up never runs later. Plain functions of a
transaction: `database.write(lambda tx: requests.post(tx, ...))`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct, json

from perdure.errors import NotAllowedNow
from perdure.store import leases
from perdure.store.database import Row, Tx
from perdure.store.leases import Lease
from perdure.store.runs import place_of
from perdure.values import dump, load


class Request(Struct, frozen=True):
    """A request as the mailbox holds it. Times are store milliseconds."""

    id: int  # the order of posting
    request_id: str
    run_id: str
    verb: str
    args: Any
    actor: str
    state: Literal["pending", "settled", "withdrawn"]
    outcome: Any  # None until settled
    posted_at: int
    ended_at: int | None


def post(tx: Tx, request_id: str, run_id: str, verb: str, args: Any, actor: str) -> Request:
    """Put a request into the mailbox of a run's owner. The same id again gives the stored request.

    Raises TargetNotFound, or NotAllowedNow when the id was used for another request.
    """
    place = place_of(tx, run_id)
    text = dump(args, what="args")
    tx.run("requests.post", request_id=request_id, root=place.root, run=place.run, verb=verb, args=text, actor=actor,
           now=tx.now_ms)  # fmt: skip
    stored = get(tx, request_id)
    assert stored is not None
    if (stored.run_id, stored.verb, dump(stored.args)) != (run_id, verb, text):
        raise NotAllowedNow(
            f"Request id {request_id} was used for another request. Use a new id.", request_id=request_id
        )
    return stored


def get(tx: Tx, request_id: str) -> Request | None:
    """The request with its outcome, if it has one."""
    row = tx.one("requests.one", request_id=request_id)
    return None if row is None else _to_request(row)


def pending(tx: Tx, root_run_ids: Iterable[str]) -> list[Request]:
    """What waits for the owners of these runs, in the order of posting."""
    return [
        _to_request(row) for row in tx.all("requests.pending", root_run_ids=json.encode(list(root_run_ids)).decode())
    ]


def settle(tx: Tx, request_id: str, outcome: Any, lease: Lease | None = None) -> bool:
    """Record what came of a request; False if it was settled or withdrawn before.

    With a lease: raises StaleLease unless it holds. A run without a live owner is settled without one.
    """
    if lease is not None:
        leases.check(tx, lease)
    return bool(tx.run("requests.settle", request_id=request_id, outcome=dump(outcome, what="outcome"), now=tx.now_ms))


def withdraw(tx: Tx, request_id: str) -> bool:
    """Give a request up; False if it was settled or withdrawn before."""
    return bool(tx.run("requests.withdraw", request_id=request_id, now=tx.now_ms))


def _to_request(row: Row) -> Request:
    id_, request_id, run_id, verb, args, actor, state, outcome, posted_at, ended_at, _ = row
    stored = None if outcome is None else load(outcome)
    return Request(id_, request_id, run_id, verb, load(args), actor, state, stored, posted_at, ended_at)
