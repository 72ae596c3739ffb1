"""Looking at runs through the store: lists from the catalog, one run by folding its journal and then only its tail.

A watch never claims a run and never writes; what it shows can be one poll old (DESIGN 2, law 7: a wake-up is a hint).
"""

from __future__ import annotations

import asyncio
from typing import Final

from perdure.errors import ControlRefused
from perdure.inspect import RunView, run_view
from perdure.projection import RunTree, apply
from perdure.store.database import Database, Tx
from perdure.store.journal import Journal
from perdure.store.prompts import Prompt, open_prompts
from perdure.store.runs import RunRow, catalog, row_of

POLL_S: Final = 0.1
RECHECK_S: Final = 2.0  # even without a change: a lease may have run out


async def list_runs(database: Database, *, count: int, status: str | None = None) -> list[RunView]:
    """The newest root runs; nothing is folded."""

    def unit(tx: Tx) -> list[RunView]:
        rows = catalog(tx, status=status, count=count)
        return [run_view(row, tx.now_ms, _prompts(tx, row)) for row in rows]

    return await database.read(unit)


def _prompts(tx: Tx, row: RunRow) -> list[Prompt]:
    return open_prompts(tx, row.run_id) if row.prompts_open else []


class Watch:
    """One run, folded as far as it was looked at."""

    def __init__(self, database: Database, run_id: str) -> None:
        """Reads nothing yet; `refresh` does."""
        self._database, self._journal = database, Journal(database)
        self.run_id = run_id
        self.tree: RunTree | None = None
        self._row: RunRow | None = None
        self._now_ms = 0
        self._seen = -1  # the database's change number when it was last read
        self._prompts: list[Prompt] = []

    async def refresh(self) -> set[tuple[str, str]]:
        """Read what is new; the (run id, position) of every step that something happened to.

        Raises ControlRefused when the run is gone, JournalCorrupt when its journal cannot be read.
        """

        def unit(tx: Tx) -> tuple[RunRow | None, int, list[Prompt]]:
            row = row_of(tx, self.run_id)
            return row, tx.now_ms, [] if row is None else _prompts(tx, row)

        touched: set[tuple[str, str]] = set()
        self._seen = self._database.changes()
        row, self._now_ms, self._prompts = await self._database.read(unit)
        if row is None or row.deleted_at is not None:
            raise ControlRefused("run_not_found", f"There is no run {self.run_id}.", run_id=self.run_id)
        if self.tree is None:
            self.tree = RunTree(row.root_run_id)
        async for stored in self._journal.read(row.root_run_id, self.tree.seq + 1):
            apply(self.tree, stored)
            position = getattr(stored.event, "position", "")
            if position in self.tree.run(stored.run_id).nodes:
                touched.add((stored.run_id, position))
        self._row = row
        return touched

    def view(self, *, latest: int | None = None) -> RunView:
        """What was read last; `latest` bounds the number of steps."""
        assert self._row is not None, "refresh comes first"
        return run_view(self._row, self._now_ms, self._prompts, self.tree, latest=latest)

    @property
    def is_behind(self) -> bool:
        """Whether anybody committed anything since the last refresh."""
        return self._database.changes() != self._seen

    async def changed(self, timeout_s: float = RECHECK_S) -> bool:
        """Wait until anybody committed anything since the last refresh, at most this long; whether it happened."""
        for _ in range(max(1, round(timeout_s / POLL_S))):
            if self.is_behind:
                return True
            await asyncio.sleep(POLL_S)
        return self.is_behind
