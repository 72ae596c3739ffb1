"""The SQLite database of one machine: a writer thread, a reader thread, and a connection that asks for news."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from perdure.errors import JournalClosed
from perdure.store import sql
from perdure.store.database import Bulk, Done, Statistics, StoreClock, Tx, awaited
from perdure.store.sqlite import SqliteTx, open_file, open_reader, to_perdure
from perdure.store.turnstile import Turnstile
from perdure.store.writer import Unit, Writer, deliver

T = TypeVar("T")


class LocalDatabase:
    """A `Database` in one file."""

    def __init__(self, path: Path, *, create: bool, clock: StoreClock) -> None:
        self.path = path
        self.statistics = Statistics()
        connection = open_file(path, create=create)
        self._writer = Writer(connection, Turnstile(path), clock, self.statistics)
        self._reader = _Reader(path, clock, self.statistics)
        self._news = open_reader(path)
        self._closed = False

    async def write(self, unit: Callable[[Tx], T]) -> T:
        """Run a unit and return its result once it is durable."""
        return cast("T", await awaited(partial(self.submit, unit)))

    async def read(self, unit: Callable[[Tx], T]) -> T:
        """Run a unit that only reads, on a snapshot of its own."""
        return cast("T", await awaited(lambda done, loop: self._reader.submit(Unit(unit, None, done, loop))))

    def submit(self, unit: Callable[[Tx], Any], done: Done, loop: asyncio.AbstractEventLoop) -> None:
        """Queue a unit; `done(result, error)` follows the commit."""
        self._writer.submit(Unit(unit, None, done, loop))

    def submit_bulk(self, bulk: Bulk, entry: Any, done: Done, loop: asyncio.AbstractEventLoop) -> None:
        """As `submit`, for an entry of a bulk."""
        self._writer.submit(Unit(entry, bulk, done, loop))

    def submit_idle(self, bulk: Bulk, entry: Any, done: Done, loop: asyncio.AbstractEventLoop) -> None:
        """As `submit_bulk`, by a loop that has nothing else to do: a quick commit may happen before this returns."""
        unit = Unit(entry, bulk, done, loop)
        if not self._writer.commit_here(unit):
            self._writer.submit(unit)

    def changes(self) -> int:
        """A number that differs once anybody committed."""
        if self._closed:
            raise JournalClosed("The database is closed. Open it again.")
        return cast("int", self._news.execute(sql.query("meta.data_version")).fetchall()[0][0])

    async def close(self) -> None:
        """Finish what is queued, then close."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """As `close`, for callers without an event loop. Blocks."""
        self._writer.close()
        self._reader.close()
        if not self._closed:
            self._closed = True
            self._news.close()


class _Reader:
    """A thread with a connection that only reads, each unit on its own snapshot."""

    def __init__(self, path: Path, clock: StoreClock, statistics: Statistics) -> None:
        self._connection = open_reader(path)
        self._clock = clock
        self._statistics = statistics
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="perdure-reader", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> None:
        if self._closed:
            raise JournalClosed("The database is closed. Open it again.")
        self._queue.put(unit)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (unit := self._queue.get()) is not None:
            deliver([unit], [self._run(unit)])
        self._connection.close()

    def _run(self, unit: Unit) -> tuple[Any, BaseException | None]:
        self._statistics.reads += 1
        try:
            self._connection.execute(sql.query("meta.begin_read"))
            try:
                return unit.work(SqliteTx(self._connection, self._clock, self._statistics)), None
            finally:
                if self._connection.in_transaction:
                    self._connection.execute(sql.query("meta.commit"))
        except BaseException as error:  # noqa: BLE001  a unit's error is its caller's, whatever it is
            return None, to_perdure(error)
