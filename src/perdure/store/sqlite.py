"""The SQLite driver: opening a file safely, its transactions, its errors.

apsw brings its own current SQLite; the standard module is never used on our files (DESIGN 5). Opening checks the
folder, the file system, the format and the version before it writes anything.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import apsw

from perdure.errors import ConfigInvalid, FormatTooNew, JournalCorrupt, PerdureError, StorageUnavailable
from perdure.store import sql
from perdure.store.database import ConstraintViolated, Row, Statistics, StoreClock

VERSION: Final = 1
BUSY_MS_MAX: Final = 30_000
ROWS_PER_STATEMENT_MAX: Final = 256
_STATEMENTS_CACHED: Final = 256
_HEADER: Final = b"SQLite format 3\0"
_NETWORK_FILE_SYSTEMS: Final = {
    0x6969: "NFS", 0x517B: "SMB", 0xFF534D42: "CIFS", 0xFE534D42: "SMB2", 0x01021997: "9p", 0x5346414F: "AFS",
    0x00C36400: "Ceph", 0x0BD00BD0: "Lustre", 0x47504653: "GPFS", 0x6B414653: "AFS",
}  # fmt: skip


class SqliteTx:
    """A transaction on one connection. Not kept beyond its unit."""

    __slots__ = ("_clock", "_connection", "_now_ms", "_savepoints", "_statistics")

    def __init__(self, connection: apsw.Connection, clock: StoreClock, statistics: Statistics) -> None:
        self._connection = connection
        self._clock = clock
        self._statistics = statistics
        self._now_ms: int | None = None
        self._savepoints = 0

    @property
    def now_ms(self) -> int:
        """The store's clock, read once a transaction."""
        if self._now_ms is None:
            row = self.one("meta.now")
            assert row is not None
            self._now_ms = self._clock.now_ms(row[0])
        return self._now_ms

    def observe_now(self, database_ms: int) -> None:
        """Take what a query of this unit read of the database's clock, unless the clock was read before."""
        if self._now_ms is None:
            self._now_ms = self._clock.now_ms(database_ms)

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Every row of a query."""
        return self._execute(sql.query(name), params).fetchall()

    def one(self, name: str, /, **params: Any) -> Row | None:
        """The first row, or None."""
        rows = self._execute(sql.query(name), params).fetchall()
        return rows[0] if rows else None

    def run(self, name: str, /, **params: Any) -> int:
        """Execute; how many rows were written."""
        self._execute(sql.query(name), params)
        written = self._connection.changes()
        self._statistics.rows_written += written
        return written

    def run_rows(self, name: str, rows: Sequence[Row], /) -> int:
        """Execute a `+` query over many rows, in as few statements as there are ones in their binary count."""
        # One step for many rows: apsw gives up the interpreter lock at each step, and a busy event loop makes the
        # writer wait for it each time. Sizes are powers of two, so few statements are ever prepared.
        start = written = 0
        while start < len(rows):
            size = min(1 << ((len(rows) - start).bit_length() - 1), ROWS_PER_STATEMENT_MAX)
            chunk = rows[start : start + size]
            self._execute(sql.repeated(name, size), chunk[0] if size == 1 else tuple(chain.from_iterable(chunk)))
            written += self._connection.changes()
            start += size
        self._statistics.rows_written += written
        return written

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What happens inside is undone if it raises."""
        self._execute(sql.query("meta.savepoint"))
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # a full disk may have ended it already
                self._execute(sql.query("meta.rollback_to"))
                self._execute(sql.query("meta.release"))
            raise
        self._execute(sql.query("meta.release"))

    def _execute(self, text: str, params: Any = ()) -> apsw.Cursor:
        self._statistics.statements += 1
        try:
            return self._connection.execute(text, params)
        except apsw.ConstraintError as error:
            kind = _code_name(getattr(error, "extendedresult", 0))
            raise ConstraintViolated(
                f"The store refused a row: {error}.",
                kind=kind,
                constraint=str(error),
            ) from error


def to_perdure(error: BaseException) -> BaseException:
    """The error callers see for one of the driver: class and code, never its message, which may quote a value."""
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        kind = _code_name(getattr(error, "extendedresult", 0))
        damaged = JournalCorrupt(
            f"The database file is damaged ({kind}). Keep a copy of it, then put a backup in its place, or name"
            " another file with --database.",
            detail=kind,
        )
        damaged.__cause__ = error
        return damaged
    if isinstance(error, apsw.Error):
        detail = f"{type(error).__name__} {_code_name(getattr(error, 'extendedresult', 0))}"
    elif isinstance(error, OSError):
        detail = f"{type(error).__name__} {errno.errorcode.get(error.errno or 0, error.errno)}"
    else:
        return error
    is_full = isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)
    refused = StorageUnavailable(
        f"The disk of the database is full ({detail}). Free some space, then go on."
        if is_full
        else f"The database cannot be used right now ({detail}). Put that right, then go on.",
        detail=detail,
    )
    refused.__cause__ = error
    return refused


def _code_name(code: int) -> str:
    known = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code) or code
    return str(known)


# --- opening


def open_file(path: Path, *, create: bool) -> apsw.Connection:
    """The writer's connection to a checked, current database file; creates or migrates it in one transaction.

    Raises ConfigInvalid, StorageUnavailable, FormatTooNew; then nothing was written.
    """
    _check_place(path, create=create)
    try:
        connection = apsw.Connection(str(path), statementcachesize=_STATEMENTS_CACHED)
    except apsw.Error as error:
        raise to_perdure(error) from error
    try:
        connection.set_busy_timeout(BUSY_MS_MAX)
        _check_format(connection, path)
        configure(connection)
        _migrate(connection, path)
    except apsw.Error as error:
        connection.close()
        raise to_perdure(error) from error
    except PerdureError:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """A connection that only reads, to a file that `open_file` has opened."""
    try:
        connection = apsw.Connection(str(path), statementcachesize=_STATEMENTS_CACHED)
        connection.set_busy_timeout(BUSY_MS_MAX)
        connection.execute(sql.query("meta.only_read"))
    except apsw.Error as error:
        raise to_perdure(error) from error
    return connection


def configure(connection: apsw.Connection) -> None:
    """The settings that durability rests on."""
    for name in ("meta.wal", "meta.full", "meta.foreign_keys", "meta.journal_limit"):
        connection.execute(sql.query(name)).fetchall()


def _check_place(path: Path, *, create: bool) -> None:
    folder = path.parent
    if not path.exists():
        if not create:
            raise ConfigInvalid(f"There is no database at {path}. Run a workflow first, or name one with --database.",
                                path=str(path))  # fmt: skip
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageUnavailable(f"The folder {folder} cannot be made ({_errno(error)}). "
                                     "Name another file with --database.",
                                     path=str(folder)) from error  # fmt: skip
    elif not path.is_file():
        raise ConfigInvalid(f"{path} is not a file. Name a database file with --database.", path=str(path))
    name = network_file_system(folder)
    if name:
        raise ConfigInvalid(f"{folder} is on a network file system ({name}), where SQLite loses data. Name a file on a"
                            " local disk with --database.", path=str(folder), file_system=name)  # fmt: skip
    if not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.R_OK | os.W_OK)):
        raise StorageUnavailable(
            f"{path} cannot be written by this user. Name another file with --database.", path=str(path)
        )
    if path.exists():
        with path.open("rb") as file:
            start = file.read(len(_HEADER))
        if start and start != _HEADER:
            raise ConfigInvalid(f"{path} is not a perdure database. Name another file with --database.", path=str(path))
    else:
        # Made by us first, so that its mode is private from the first byte; SQLite's side files inherit it.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StorageUnavailable(
                f"{path} cannot be made ({_errno(error)}). Name another file with --database.", path=str(path)
            ) from error


def _check_format(connection: apsw.Connection, path: Path) -> None:
    try:
        tables = {row[0] for row in connection.execute(sql.query("meta.tables"))}
    except apsw.NotADBError as error:
        raise ConfigInvalid(f"{path} is not a perdure database. Name another file with --database.",
                            path=str(path)) from error  # fmt: skip
    if tables and "meta" not in tables:
        raise ConfigInvalid(
            f"{path} is a database of another program. Name another file with --database.", path=str(path)
        )
    if tables:
        _check_version(connection, path)


def _check_version(connection: apsw.Connection, path: Path) -> int:
    found = connection.execute(sql.query("meta.version")).fetchall()
    version = int(cast("int", found[0][0])) if found else 0
    if version > VERSION:
        raise FormatTooNew(f"{path} was written by a newer perdure (format {version}, this one knows {VERSION})."
                           " Upgrade perdure, or name another file with --database.",
                           found=version, known=VERSION)  # fmt: skip
    return version


def _migrate(connection: apsw.Connection, path: Path) -> None:
    tables = list(connection.execute(sql.query("meta.tables")))
    if tables and _check_version(connection, path) == VERSION:
        return
    with_lock = sql.query("meta.begin")
    connection.execute(with_lock)
    try:
        if not list(connection.execute(sql.query("meta.tables"))):  # asked again: another process may have been first
            connection.execute(sql.schema())
        else:
            version = _check_version(connection, path)
            for leads_to, text in sql.migrations():
                if leads_to > version:
                    connection.execute(text)
        connection.execute(sql.query("meta.set_version"), {"version": VERSION})
        connection.execute(sql.query("meta.commit"))
    except BaseException:
        if connection.in_transaction:
            connection.execute(sql.query("meta.rollback"))
        raise


def network_file_system(folder: Path) -> str | None:
    """The kind of network file system the folder is on, or None for a local one."""
    if sys.platform != "linux":
        return None
    buffer = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None).statfs(os.fsencode(folder), buffer) != 0:
        return None
    kind = int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF
    return _NETWORK_FILE_SYSTEMS.get(kind)


def _errno(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))
