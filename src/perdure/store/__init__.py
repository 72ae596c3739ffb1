"""The store: every table, all SQL, one door (DESIGN 5)."""

from __future__ import annotations

from pathlib import Path

from perdure.errors import NotAvailable
from perdure.store.database import Database, StoreClock, Tx
from perdure.store.local import LocalDatabase

__all__ = ["Database", "LocalDatabase", "StoreClock", "Tx", "open_database"]


def open_database(target: str | Path, *, create: bool = True, clock: StoreClock | None = None) -> LocalDatabase:
    """The database at a path, made if it is not there and `create` says so.

    Raises ConfigInvalid, FormatTooNew or StorageUnavailable, and then nothing was written; NotAvailable for a URL of a
    server.
    """
    if "://" in str(target):
        raise NotAvailable("This version of perdure stores runs in a SQLite file only: give --database a path.",
                           target=str(target).partition("://")[0])  # fmt: skip
    return LocalDatabase(Path(target).expanduser().absolute(), create=create, clock=clock or StoreClock())
