"""Which processes of a group still live, read from /proc. Looks only; signals are the business of `processes`.

A group is known by its leader's identity and by a mark in the environment of every process in it. The mark names the
process that started the group, and the group; a group started from inside another carries that one's mark before its
own, so ending the outer one ends it too. The mark finds what the group id cannot: a descendant that called setsid. The
leader's identity guards the other way: a group id is believed only while its leader is the process we started, or
while the member carries our mark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perdure.host.identity import Identity, identity_of
from perdure.ids import new_id

MARK: Final = "PERDURE_GROUP"
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group we started: its leader and the mark its environment carries."""

    leader: Identity
    mark: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for the record that lets a later owner end the group."""
        return {"leader": self.leader.to_dict(), "mark": self.mark}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Group:
        """What `to_dict` gave."""
        return cls(Identity.from_dict(stored["leader"]), stored["mark"])


@dataclass(frozen=True, slots=True)
class Members:
    """What of a group lives: `ours` may be signalled; `unprobeable` has its group id but proves nothing."""

    ours: tuple[int, ...] = ()
    unprobeable: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ours or self.unprobeable)


def members_of(group: Group, *, owned: bool = False) -> Members:
    """The living processes of a group. `owned`: it was started by this process and has been watched since."""
    if not _PROC.joinpath("self/stat").exists():
        return _members_by_signal(group, owned)
    leads = owned or identity_of(group.leader.pid) == group.leader
    ours, unprobeable = [], []
    for pid, group_id in _living():
        in_group = group_id == group.leader.pid
        if (in_group and leads) or f"{_mark(pid)}/".startswith(f"{group.mark}/"):
            ours.append(pid)
        elif in_group and pid != group_id:  # a leader that is not ours has its number by accident
            unprobeable.append(pid)
    return Members(tuple(ours), tuple(unprobeable))


def mark_of(owner: Identity) -> str:
    """How the marks of all groups begin that `owner` starts, behind the mark of the group it is in."""
    return f"{owner.pid}-{owner.start_time}-"


def new_mark(owner: Identity) -> str:
    """The mark of a new group that `owner`, this process, starts."""
    outer = os.environ.get(MARK)
    return f"{f'{outer}/' if outer else ''}{mark_of(owner)}{new_id()}"


def marked_with(prefix: str) -> tuple[int, ...]:
    """Every living process of this user in a group whose mark begins with `prefix`, ourselves excepted.

    Empty without /proc.
    """
    if not prefix or not _PROC.joinpath("self/stat").exists():
        return ()
    return tuple(pid for pid, _ in _living() if pid != os.getpid() and f"/{prefix}" in f"/{_mark(pid)}")


def _living() -> Iterator[tuple[int, int]]:
    """(pid, group id) of every process that is not a zombie."""
    for entry in os.listdir(_PROC):  # noqa: PTH208  a thousand Path objects would be made for nothing
        if not entry.isdecimal():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:  # noqa: PTH123  as above
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields and fields[0] not in {b"Z", b"X"}:
            yield int(entry), int(fields[2])


def _mark(pid: int) -> str:
    """The mark a process carries; empty if it has none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return ""
    found = (b"\0" + environment).partition(f"\0{MARK}=".encode())[2]
    return found.partition(b"\0")[0].decode("ascii", "replace")


def _members_by_signal(group: Group, owned: bool) -> Members:
    """Without /proc: whether the group answers, believed only for a group of our own."""
    try:
        os.killpg(group.leader.pid, 0)
    except (ProcessLookupError, PermissionError):
        return Members()
    return Members(ours=(group.leader.pid,)) if owned else Members(unprobeable=(group.leader.pid,))
