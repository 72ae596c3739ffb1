"""What a slower disk takes away: throughput with 200 workflows in flight, and steps one after another.

Both sides of each comparison go through the same VFS and, for the throughput, the same file, with and without the wait,
in turn.
"""

from __future__ import annotations

import time
from statistics import median

from bench.bed import bed, run_on_lanes
from bench.cases.in_flight import run_many
from bench.flows import sequential
from bench.folders import scratch
from bench.probe import bare_file, commits_per_s
from bench.row import Row, median_ratio
from bench.slow_vfs import SlowFile, SlowVfs

EXTRA_S = 0.002
IN_FLIGHT = 200
STEPS = 100


def measure(*, full: bool) -> list[Row]:
    """The loss in percent, and the ratio of steps to bare commits where a sync takes time."""
    vfs = SlowVfs()
    try:
        rows = [run_on_lanes(_throughput(each=10 if full else 4, rounds=13 if full else 6))]
        rows.append(run_on_lanes(_sequential(rounds=11 if full else 5)))
    finally:
        vfs.unregister()
    return rows


async def _throughput(each: int, rounds: int) -> Row:
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
    return Row(
        name="throughput lost to syncs 2 ms slower", value=100 * (1 - ratio), unit="%", goal=15, floor=30,
        baseline=median(normal), ratio=ratio, note=f"{median(slow):,.0f} workflows/s against {median(normal):,.0f}",
    )  # fmt: skip


async def _sequential(rounds: int) -> Row:
    bare, rates = [], []
    with scratch() as folder, bare_file(folder) as connection:
        async with bed(folder) as here:
            SlowFile.extra_s = EXTRA_S
            for _ in range(rounds):
                bare.append(commits_per_s(connection, STEPS))
                began = time.perf_counter()
                await here.run(sequential, steps=STEPS)
                rates.append(STEPS / (time.perf_counter() - began))
            SlowFile.extra_s = 0.0
    ratio = median_ratio(rates, bare)
    return Row(
        name="sequential steps / bare commits, syncs 2 ms slower", value=ratio, unit="x", baseline=median(bare),
        ratio=ratio, note="what the first row is on a disk whose sync takes time",
    )  # fmt: skip
