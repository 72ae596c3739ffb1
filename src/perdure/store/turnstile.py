"""The queue of processes that write one database file.

SQLite's busy handler retries at random, and whoever commits without pause starves the rest. So a writer first takes
two advisory locks, `gate` then `turn`, leaves the gate and commits. The next one waits for the turn while it holds the
gate; whoever just left must queue at the gate again, so nobody barges. The kernel releases both when a process dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Turnstile:
    """Two lock files beside the database. Used by one thread."""

    def __init__(self, database: Path) -> None:
        self._gate = _open(database.with_name(database.name + "-gate"))
        self._turn = _open(database.with_name(database.name + "-turn"))

    def try_enter(self) -> bool:
        """Take the turn if nobody has it and nobody waits for it."""
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        return True

    def enter(self) -> None:
        """Wait until it is our turn."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def leave(self) -> None:
        """Let the next one in."""
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give up both files."""
        os.close(self._gate)
        os.close(self._turn)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
