"""The writer: one thread, one connection, one commit for everything that waits (DESIGN 5, group commit).

    submit -> queue -> batch of at most 256 units -> BEGIN IMMEDIATE, a savepoint each, COMMIT -> results, in order

Nothing delays a batch: it is what queued up while the last one was committed, so a lone unit commits at once and 200
callers share one sync. Each unit has its own outcome; a failed COMMIT refuses all. Results cross to each event loop in
one call a batch. Neighbours with the same bulk run as one call and need no savepoint: a bulk undoes its own refusals.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import apsw

from perdure.errors import JournalClosed, StorageUnavailable
from perdure.store import sql
from perdure.store.database import Bulk, Done, Statistics, StoreClock
from perdure.store.sqlite import SqliteTx, to_perdure
from perdure.store.turnstile import Turnstile

BATCH_UNITS_MAX: Final = 256
UNITS_WAITING_MAX: Final = 200_000
TURN_SECONDS_MAX = 30.0  # how long another process may keep us from writing
# How long another thread may keep the interpreter while the writer wants it. A batch needs it back about ten times; at
# the usual 5 ms a busy event loop would stretch a commit to 50 ms. Seconds, for the whole process.
SWITCH_SECONDS: Final = 0.0002
# A commit that is expected to be as quick as this may be made by an idle event loop itself: it saves two thread
# switches, which cost more than a sync of a fast disk. Slower disks keep to the writer's thread.
QUICK_SECONDS: Final = 0.0005

Outcome = tuple[Any, BaseException | None]


class Unit(NamedTuple):
    """What waits in the queue. `bulk` tells neighbours that run as one call; `work` is then the entry."""

    work: Any
    bulk: Bulk | None
    done: Done
    loop: asyncio.AbstractEventLoop


class Writer:
    """Owns the write connection and its thread. `submit` may be called from any thread."""

    def __init__(
        self, connection: apsw.Connection, turnstile: Turnstile, clock: StoreClock, statistics: Statistics
    ) -> None:
        self._connection = connection
        self._turnstile = turnstile
        self._clock = clock
        self._statistics = statistics
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._closed = False
        self._gave_up = False  # closed while another process kept the turn
        self._watch: threading.Thread | None = None
        self._turn_lock = threading.Lock()
        self._waiting: list[Unit] = []  # the batch that waits for the turn
        self._waiting_since: float | None = None
        self._connection_lock = threading.Lock()  # who commits: the writer's thread, or a loop in `commit_here`
        self._usual_seconds = QUICK_SECONDS  # a running mean of what a commit takes
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        self._thread = threading.Thread(target=self._work, name="perdure-writer", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> None:
        """Queue a unit. Raises JournalClosed, or StorageUnavailable when too much waits already."""
        if self._closed:
            raise JournalClosed("The database is closed. Open it again.")
        if self._queue.qsize() >= UNITS_WAITING_MAX:
            raise StorageUnavailable(f"{UNITS_WAITING_MAX} writes wait for the disk already. Slow down and try again.")
        self._queue.put(unit)

    def commit_here(self, unit: Unit) -> bool:
        """Commit a lone unit in the caller's thread, that of the unit's loop; False if it must be queued instead.

        For a loop that has nothing else to do: with other units waiting, another process writing, or a disk that is
        not quick, nothing happens.
        """
        if self._usual_seconds >= QUICK_SECONDS or self._closed or self._queue.qsize():
            return False
        if not self._connection_lock.acquire(blocking=False):
            return False
        try:
            if self._queue.qsize() or not self._turnstile.try_enter():
                return False
            outcomes = self._timed([unit])
            self._turnstile.leave()
        finally:
            self._connection_lock.release()
        _settle(unit.loop, [(unit.done, *outcomes[0])])
        return True

    def _timed(self, batch: list[Unit]) -> list[Outcome]:
        began = time.monotonic()
        outcomes = self._transact(batch)
        self._usual_seconds += 0.1 * (time.monotonic() - began - self._usual_seconds)
        return outcomes

    def close(self) -> None:
        """Refuse new units, finish the queued ones, end the thread. Blocks, but not for a stuck process; safe twice."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        while self._thread.is_alive() and not self._gave_up:
            self._thread.join(TURN_SECONDS_MAX / 10)

    def _work(self) -> None:
        queue = self._queue
        last = False
        while not (last or self._gave_up):
            batch: list[Unit] = []
            unit = queue.get()
            while unit is not None:
                batch.append(unit)
                if len(batch) == BATCH_UNITS_MAX or not queue.qsize():
                    break
                unit = queue.get_nowait()
            last = unit is None
            if batch:
                self._commit(batch)
        with self._connection_lock:
            self._turnstile.close()
            self._connection.close()

    def _commit(self, batch: list[Unit]) -> None:
        with self._connection_lock:
            try:
                if not self._enter(batch):
                    return
            except OSError as error:
                deliver(batch, [(None, to_perdure(error))] * len(batch))
                return
            outcomes = self._timed(batch)
            # Before anybody hears of it: a process that is stopped after its acknowledgement must not hold up the rest.
            self._turnstile.leave()
        deliver(batch, outcomes)

    def _enter(self, batch: list[Unit]) -> bool:
        """Wait for our turn; False if the wait was given up, and then the batch has been refused."""
        if self._turnstile.try_enter():
            return True
        if self._watch is None:
            self._watch = threading.Thread(target=self._watch_turn, name="perdure-turn", daemon=True)
            self._watch.start()
        with self._turn_lock:
            self._waiting_since, self._waiting = time.monotonic(), batch
        self._turnstile.enter()
        with self._turn_lock:
            is_ours = bool(self._waiting)
            self._waiting_since, self._waiting = None, []
        if not is_ours:
            self._turnstile.leave()
        return is_ours

    def _watch_turn(self) -> None:
        """Refuse what waits while another process keeps the turn: a lock cannot be waited for with a bound."""
        while self._thread.is_alive():
            self._thread.join(TURN_SECONDS_MAX / 10)
            with self._turn_lock:
                since = self._waiting_since
                if since is None or time.monotonic() - since < TURN_SECONDS_MAX:
                    continue
                refused, self._waiting = self._waiting, []
                while self._queue.qsize():
                    unit = self._queue.get_nowait()
                    if unit is None:
                        self._gave_up = True
                    else:
                        refused.append(unit)
            error = StorageUnavailable(
                f"Another perdure process has kept the database for {TURN_SECONDS_MAX:g} seconds. If it was stopped"
                " (Ctrl-Z), continue it (fg) or end it, then try again."
            )
            deliver(refused, [(None, error)] * len(refused))

    def _transact(self, batch: list[Unit]) -> list[Outcome]:
        """One transaction around the batch; the outcomes, in order. Returns with the turn still ours."""
        connection, execute = self._connection, self._connection.execute
        try:
            execute(sql.query("meta.begin"))
            outcomes = self._run(batch)
            if any(error is None for _, error in outcomes):
                execute(sql.query("meta.commit"))
            elif connection.in_transaction:  # a full disk may have ended it already
                execute(sql.query("meta.rollback"))
            self._statistics.commits += 1
            self._statistics.units += len(batch)
            return outcomes
        except BaseException as error:  # noqa: BLE001  whatever happened, every caller of the batch must hear of it
            refused = to_perdure(error)
            with suppress(apsw.Error):  # the transaction is gone either way; the next BEGIN tells if anything works
                if connection.in_transaction:
                    execute(sql.query("meta.rollback"))
            return [(None, refused)] * len(batch)

    def _run(self, batch: list[Unit]) -> list[Outcome]:
        tx = SqliteTx(self._connection, self._clock, self._statistics)
        segments = [batch] if len(batch) == 1 else list(_segments(batch))
        if len(segments) == 1:  # if it is refused, so is the transaction: no savepoint
            return self._tried(tx, segments[0])
        return [outcome for segment in segments for outcome in self._guarded(tx, segment)]

    def _guarded(self, tx: SqliteTx, segment: list[Unit]) -> list[Outcome]:
        """As `_tried`; a segment that is refused as a whole is undone."""
        outcomes: list[Outcome] = []
        with suppress(_Undo), tx.savepoint():
            outcomes = self._tried(tx, segment)
            refused = outcomes[0][1]
            if refused is not None and not self._connection.in_transaction:
                raise refused  # SQLite ended the transaction itself (disk full, I/O): nothing of the batch stands
            if all(error is not None for _, error in outcomes):
                raise _Undo
        return outcomes

    def _tried(self, tx: SqliteTx, segment: list[Unit]) -> list[Outcome]:
        bulk = segment[0].bulk
        try:
            if bulk is None:
                return [(segment[0].work(tx), None)]
            return [to_outcome(result) for result in bulk(tx, [unit.work for unit in segment])]
        except BaseException as error:  # noqa: BLE001  a unit's error is its caller's, whatever it is
            return [(None, to_perdure(error))] * len(segment)


class _Undo(Exception):
    """Leaves a savepoint backwards."""


def to_outcome(result: Any) -> Outcome:
    """A bulk's result for one entry: an exception object is a refusal."""
    return (None, result) if isinstance(result, BaseException) else (result, None)


def _segments(batch: list[Unit]) -> Iterator[list[Unit]]:
    """Neighbours of the same bulk together, every other unit alone."""
    for bulk, units in groupby(batch, key=lambda unit: unit.bulk):
        if bulk is None:
            yield from ([unit] for unit in units)
        else:
            yield list(units)


def deliver(batch: list[Unit], outcomes: list[Outcome]) -> None:
    """Hand each outcome to its loop: one call a loop, in unit order."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Done, Any, BaseException | None]]] = {}
    for unit, (result, error) in zip(batch, outcomes, strict=True):
        by_loop.setdefault(unit.loop, []).append((unit.done, result, error))
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more, and what was committed stands
            loop.call_soon_threadsafe(_settle, loop, settled)


def _settle(loop: asyncio.AbstractEventLoop, settled: list[tuple[Done, Any, BaseException | None]]) -> None:
    for done, result, error in settled:
        try:
            done(result, error)
        except Exception as raised:  # noqa: BLE001  a caller's callback must not cost the others theirs
            loop.call_exception_handler({"message": "a store callback raised", "exception": raised})
