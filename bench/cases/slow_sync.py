"""What a disk that syncs 2 ms slower takes away, with 200 workflows in flight.

The database is opened through a VFS that waits in xSync; both sides go through it, with and without the wait, in turn,
on one file. A VFS in Python costs something at each call, so these rates are lower than those of `in_flight`.
"""

from __future__ import annotations

import time
from statistics import median

import apsw

from bench.bed import bed, run_on_lanes, scratch
from bench.cases.in_flight import run_many
from bench.row import Row, median_ratio

EXTRA_S = 0.002
IN_FLIGHT = 200
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


def measure(*, full: bool) -> list[Row]:
    """The loss in percent."""
    vfs = SlowVfs()
    try:
        return run_on_lanes(_measure(each=10 if full else 4, rounds=13 if full else 7))  # type: ignore[no-any-return]
    finally:
        vfs.unregister()


async def _measure(each: int, rounds: int) -> list[Row]:
    normal: list[float] = []
    slow: list[float] = []
    with scratch() as folder:
        async with bed(folder) as here:
            await run_many(here, IN_FLIGHT, 1)
            for turn in range(rounds):
                pair = [(0.0, normal), (EXTRA_S, slow)]
                for extra_s, rates in pair if turn % 2 else reversed(pair):
                    SlowFile.extra_s = extra_s
                    began = time.perf_counter()
                    await run_many(here, IN_FLIGHT, each)
                    rates.append(IN_FLIGHT * each / (time.perf_counter() - began))
            SlowFile.extra_s = 0.0
    ratio = median_ratio(slow, normal)
    return [
        Row(
            name="throughput lost to a sync 2 ms slower", value=100 * (1 - ratio), unit="%", goal=15, floor=30,
            baseline=median(normal), ratio=ratio, note=f"{median(slow):,.0f} workflows/s against {median(normal):,.0f}",
        )
    ]  # fmt: skip
