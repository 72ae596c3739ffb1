"""The cases, one module each with `measure(full) -> list[Row]`; each runs in a process of its own (bench/case.py)."""

from __future__ import annotations

from typing import Final

NAMES: Final = (
    "sequential", "in_flight", "parallel", "replay", "growth", "processes", "slow_sync", "cold_start", "memory",
)  # fmt: skip
