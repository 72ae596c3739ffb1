"""The folder that holds a process's Unix socket: short enough for an address, for this user only, gone afterwards.

A process that is killed cannot remove its folder, so the next one removes folders whose socket nobody answers. Young
ones are left alone: between making a folder and listening in it a process answers nobody.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final, Self

from perdure.clock import SystemClock

NAME: Final = "tools"
PREFIX: Final = "perdure-tools-"
PATH_BYTES_MAX: Final = 100  # an address of a Unix socket holds about this much
LEFT_ALONE_MS: Final = 60_000


class SocketFolder:
    """A folder with room for one socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / NAME)
        self._folder = folder

    @classmethod
    def make(cls) -> Self:
        """A fresh folder of mode 0700, and the end of those that killed processes left."""
        made = Path(tempfile.mkdtemp(prefix=PREFIX))
        if len(str(made / NAME).encode()) > PATH_BYTES_MAX:
            made.rmdir()
            made = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))  # short; the folder itself is private
        for folder in made.parent.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # somebody else's, or removed meanwhile
                if _is_left_over(folder):
                    shutil.rmtree(folder, ignore_errors=True)
        return cls(made)

    def remove(self) -> None:
        """Remove it with what is in it. Safe twice."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _is_left_over(folder: Path) -> bool:
    state = folder.lstat()
    if state.st_uid != os.getuid() or SystemClock().wall_ms() - state.st_mtime_ns // 1_000_000 < LEFT_ALONE_MS:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(folder / NAME))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        return False
