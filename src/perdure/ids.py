"""Identities, and the one door for randomness.

A run's id is a version 7 UUID (sorts by time). What must be the same on every replay is derived, never drawn: a child
run from its place, a node from its position (spec/journal.md, Overrides 2 and 5).
"""

from __future__ import annotations

import os
import random
import time
import uuid

_NAMESPACE = uuid.UUID("8c8f1f6e-4a50-5e0e-9d7f-6f1f3a2f7c11")


_drawn = bytearray()  # random bytes drawn ahead; processes of perdure never fork


def _draw(count: int) -> bytes:
    if len(_drawn) < count:
        _drawn.extend(os.urandom(4096))
    taken = bytes(_drawn[-count:])
    del _drawn[-count:]
    return taken


def new_run_id() -> str:
    """A fresh run id: UUID version 7."""
    millis = time.time_ns() // 1_000_000
    tail = int.from_bytes(_draw(10), "big")
    number = (millis & (1 << 48) - 1) << 80 | 7 << 76 | (tail >> 68) << 64 | 2 << 62 | tail & (1 << 62) - 1
    return str(uuid.UUID(int=number))


def new_id() -> str:
    """A fresh opaque id (holders, requests)."""
    return str(uuid.uuid4())


def new_token() -> str:
    """A fresh secret, 256 bits: who shows it is let in."""
    return _draw(32).hex()


def child_run_id(root_run_id: str, parent_run_id: str, position: str) -> str:
    """The id of the child run at a position of its parent: the same on every replay."""
    return str(uuid.uuid5(_NAMESPACE, f"{root_run_id}/{parent_run_id}/{position}"))


def node_id(run_id: str, position: str) -> str:
    """The id of the node at a position of a run: the same on every replay."""
    return str(uuid.uuid5(_NAMESPACE, f"{run_id}#{position}"))


def draw_random() -> float:
    """A random number in [0, 1), to be recorded."""
    return random.SystemRandom().random()


def jitter(seconds: float) -> float:
    """`seconds`, give or take a fifth, for periodic timers."""
    return seconds * (0.8 + 0.4 * random.random())  # noqa: S311  spreads timers, guards nothing
