"""The peers, their pinned versions, and a virtual environment for each in the cache folder."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.folders import cache_folder

INSTALL_S_MAX: Final = 600


@dataclass(frozen=True, slots=True)
class Peer:
    """A project to compare with, or a variant of one."""

    name: str
    project: str
    requirements: tuple[str, ...]
    note: str
    is_as_shipped: bool = True  # otherwise it is shown and not ranked

    @property
    def script(self) -> Path:
        """Its work: `<script> FOLDER quick|full NAME`."""
        return Path(__file__).with_name(f"{self.project}_work.py")


_BURR: Final = ("apache-burr==0.43.0",)
PEERS: Final = (
    Peer("dbos", "dbos", ("dbos==3.4.0",), "SQLite as shipped: rollback journal, full sync"),
    Peer("langgraph", "langgraph", ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
         "SQLite saver as shipped: WAL, full sync"),
    Peer("burr", "burr", _BURR, "SQLite persister as shipped; one workflow after another"),
    Peer("burr-wal", "burr", _BURR, "tuned by us to WAL, not ranked; one workflow after another", is_as_shipped=False),
)  # fmt: skip


def python_of(peer: Peer) -> Path:
    """The interpreter that has the peer; installed at the first call. Raises RuntimeError with what pip said."""
    folder = cache_folder() / f"{peer.project}-{sys.version_info.major}.{sys.version_info.minor}"
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(peer.requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    venv.create(folder, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["pip failed without a word"])[-1])
    stamp.write_text(wanted)
    return python
