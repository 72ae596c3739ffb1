"""The one door for process time. Leases are decided by the store's clock, never by this one (DESIGN 2, law 5)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Bounds waits and stamps what people read."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for display only."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for display only."""
        return time.time_ns() // 1_000_000
