"""Who a process is: a number alone is soon somebody else's.

An identity is (boot, pid namespace, pid, start time). "Gone" is claimed only with proof: same boot, same namespace, and
no living process with that pid and start time. Where the system does not tell start times, a reused pid reads as not
gone, which only costs waiting.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot of one machine."""

    boot_id: str
    pid_namespace: str
    pid: int
    start_time: str  # clock ticks since boot; empty where the system does not tell

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Identity:
        """What `to_dict` gave."""
        return cls(**stored)

    def to_text(self) -> str:
        """As a lease keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def proves_gone(self, stored: str, *, one_machine: bool) -> bool:
        """Whether the process of a stored identity is proven gone, asked by the process `self`.

        `one_machine` says that only processes of this machine could have stored it: then another boot proves it too.
        """
        try:
            other = Identity.from_dict(json.loads(stored))
        except (ValueError, TypeError):
            return False
        if one_machine and self.boot_id and other.boot_id and other.boot_id != self.boot_id:
            return True
        return is_gone(other)


def identity_of(pid: int) -> Identity | None:
    """The identity of a living process of this machine, None if there is none. A zombie does not live."""
    if not (_PROC / "self" / "stat").exists():
        return Identity(*_place(), pid, "") if _answers(pid) else None
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may hold blanks and brackets
    return None if fields[0] in {"Z", "X"} else Identity(*_place(), pid, fields[19])


@cache
def _self(pid: int) -> Identity:
    found = identity_of(pid)
    assert found is not None
    return found


def here() -> Identity:
    """Our own identity."""
    return _self(os.getpid())


def is_gone(identity: Identity) -> bool:
    """Whether the process is proven gone; False for another boot or namespace, of which nothing can be proven here."""
    if (identity.boot_id, identity.pid_namespace) != _place():
        return False
    return identity_of(identity.pid) != identity


@cache
def _place() -> tuple[str, str]:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return "", ""


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
