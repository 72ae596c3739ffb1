"""What was said in a stage's session, for people: never read by a replay, kept when a run is deleted.

Plain functions of a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from perdure.store.database import Row, Tx
from perdure.store.runs import place_of
from perdure.values import dump, load

PAGE_ENTRIES: Final = 500


class Said(Struct, frozen=True):
    """An entry of a transcript. `id` grows within a stage; `at` is store milliseconds; `entry` is plain JSON."""

    id: int
    take: int
    kind: str
    entry: Any
    at: int


def append(tx: Tx, run_id: str, position: str, take: int, entries: Sequence[tuple[str, Any]]) -> None:
    """Add (kind, entry) pairs to a stage's transcript."""
    if entries:
        run, now = place_of(tx, run_id).run, tx.now_ms
        tx.run_rows(
            "transcripts.append", [(run, position, take, kind, dump(said, what=kind), now) for kind, said in entries]
        )


def read(tx: Tx, run_id: str, position: str, after: int = 0, count: int = PAGE_ENTRIES) -> list[Said]:
    """Entries after an id, oldest first."""
    place = place_of(tx, run_id)
    return [
        _to_said(row) for row in tx.all("transcripts.read", run=place.run, position=position, after=after, count=count)
    ]


def last(tx: Tx, run_id: str, position: str, count: int = PAGE_ENTRIES) -> list[Said]:
    """The newest entries, oldest first."""
    place = place_of(tx, run_id)
    return [_to_said(row) for row in tx.all("transcripts.last", run=place.run, position=position, count=count)]


def _to_said(row: Row) -> Said:
    return Said(row[0], row[1], row[2], load(row[3]), row[4])
