"""The database as the rest of perdure sees it: units of work, one hand-over each (DESIGN 5).

A *unit* is a plain synchronous function of a `Tx`; it runs in the database's own thread, inside a transaction, and must
not keep the `Tx`. Many units share one commit, each with its own outcome; nobody sees a result before that commit
(DESIGN 2, law 2). The protocol hides the dialect: only the module of a driver knows its library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from perdure.errors import JournalError

T = TypeVar("T")
Row = tuple[Any, ...]
Done = Callable[[Any, BaseException | None], None]


class ConstraintViolated(JournalError):
    """A row breaks a constraint of the schema."""


class Tx(Protocol):
    """A transaction, valid only inside its unit. `name` is a query of queries/<noun>.sql."""

    @property
    def now_ms(self) -> int:
        """The store's clock, read once a transaction. Milliseconds since 1970."""
        ...

    def observe_now(self, database_ms: int) -> None:
        """Take what a query of this unit read of the database's clock, unless the clock was read before."""
        ...

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Every row of a query."""
        ...

    def one(self, name: str, /, **params: Any) -> Row | None:
        """The first row, or None."""
        ...

    def run(self, name: str, /, **params: Any) -> int:
        """Execute; how many rows were written. Raises ConstraintViolated."""
        ...

    def run_rows(self, name: str, rows: Sequence[Row], /) -> int:
        """Execute a `+` query over many rows; how many rows were written.

        Raises ConstraintViolated, and then some rows may stand: whoever wants to go on uses a savepoint.
        """
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """What happens inside is undone if it raises; the transaction goes on."""
        ...


class Bulk(Protocol):
    """A kind of unit that is cheaper together: neighbours in the queue with the same bulk run as one call."""

    def __call__(self, tx: Tx, entries: list[Any], /) -> Sequence[Any]:
        """An outcome for each entry, in order; an exception object stands for that entry's refusal.

        To raise refuses all of them. An entry's refusal must leave nothing of it written.
        """
        ...


@dataclass(slots=True)
class Statistics:
    """Counters since the database was opened."""

    commits: int = 0
    units: int = 0
    statements: int = 0
    rows_written: int = 0
    reads: int = 0


class StoreClock:
    """What the store takes for now. Tests derive from it; in production the database's own clock stands."""

    def now_ms(self, database_ms: int) -> int:
        """The time of a transaction, given the database's own."""
        return database_ms


class Database(Protocol):
    """One store. Safe to use from any thread and any number of event loops."""

    statistics: Statistics

    async def write(self, unit: Callable[[Tx], T]) -> T:
        """Run a unit and return its result once it is durable. Cancelling the caller does not cancel the unit.

        Raises what the unit raised (then nothing of it was written), or StorageUnavailable.
        """
        ...

    async def read(self, unit: Callable[[Tx], T]) -> T:
        """Run a unit that only reads, on a snapshot of its own."""
        ...

    def submit(self, unit: Callable[[Tx], Any], done: Done, loop: asyncio.AbstractEventLoop) -> None:
        """Queue a unit; `done(result, error)` is called in the loop's thread after the commit, in queue order."""
        ...

    def submit_bulk(self, bulk: Bulk, entry: Any, done: Done, loop: asyncio.AbstractEventLoop) -> None:
        """As `submit`, for an entry of a bulk."""
        ...

    def submit_idle(self, bulk: Bulk, entry: Any, done: Done, loop: asyncio.AbstractEventLoop) -> None:
        """As `submit_bulk`, by a loop that has nothing else to do: a quick commit may happen before this returns."""
        ...

    def changes(self) -> int:
        """A number that differs once anybody committed. Cheap; a hint, not a fact about any row."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then close. Safe twice."""
        ...


async def awaited(submit: Callable[[Done, asyncio.AbstractEventLoop], None]) -> Any:
    """The result of something that is submitted with a callback. Cancelling the caller does not cancel it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return  # the caller was cancelled; what was committed stands
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    submit(settle, loop)
    return await future
