"""What the bare machine does: the same rows with apsw and nothing else, in the same file system, with the same sync."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

PAYLOAD = "x" * 300  # about what a small step weighs


@contextmanager
def bare_file(folder: Path, name: str = "bare.db") -> Iterator[apsw.Connection]:
    """A WAL database that syncs each commit, with one table."""
    connection = apsw.Connection(str(folder / name))
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)")
    try:
        yield connection
    finally:
        connection.close()


def commits_per_s(connection: apsw.Connection, count: int, rows: int = 1) -> float:
    """Commits a second, each of so many rows."""
    batch = [(PAYLOAD,)] * rows
    began = time.perf_counter()
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO bare (payload) VALUES (?)", batch)
        connection.execute("COMMIT")
    return count / (time.perf_counter() - began)


def read_us_per_row(file: Path) -> float:
    """Microseconds for each event of a journal, read in order and decoded from JSON."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        began = time.perf_counter()
        rows = [
            (seq, msgspec.json.decode(str(payload)))
            for seq, payload in connection.execute("SELECT seq, payload FROM events ORDER BY root, seq")
        ]
        return (time.perf_counter() - began) / max(1, len(rows)) * 1e6
    finally:
        connection.close()
