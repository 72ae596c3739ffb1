"""A disk whose syncs take longer on demand: a VFS below every database that this process opens.

A VFS in Python costs something at each call, so rates through it are compared only with rates through it.
"""

from __future__ import annotations

import time

import apsw

BASE = "unix"


class SlowFile(apsw.VFSFile):
    """A file whose sync may take longer."""

    extra_s = 0.0

    def xSync(self, flags: int) -> None:  # noqa: N802  the name SQLite calls
        """Sync, and wait."""
        if self.extra_s:
            time.sleep(self.extra_s)
        super().xSync(flags)


class SlowVfs(apsw.VFS):
    """The default VFS of this process, from its construction on."""

    def __init__(self) -> None:
        super().__init__("slow", base=BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> SlowFile:  # noqa: N802
        """Every file of every database."""
        return SlowFile(BASE, name, flags)
