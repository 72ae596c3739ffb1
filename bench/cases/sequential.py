"""Durable tool steps one after another, against bare commits of one row."""

from __future__ import annotations

import time
from statistics import median

from bench.bed import bed, run_on_lanes
from bench.flows import sequential
from bench.folders import scratch
from bench.probe import bare_file, commits_per_s
from bench.row import Row, median_ratio


def measure(*, full: bool) -> list[Row]:
    """Rates, and their ratio, over interleaved rounds."""
    return run_on_lanes(_measure(steps=1000 if full else 300, rounds=15 if full else 9))  # type: ignore[no-any-return]


async def _measure(steps: int, rounds: int) -> list[Row]:
    bare, rates, cpus = [], [], []
    with scratch() as folder, bare_file(folder) as connection:
        async with bed(folder) as here:
            await here.run(sequential, steps=50)
            commits_per_s(connection, 50)
            for _ in range(rounds):
                bare.append(commits_per_s(connection, steps))
                began, cpu = time.perf_counter(), time.process_time()
                await here.run(sequential, steps=steps)
                rates.append(steps / (time.perf_counter() - began))
                cpus.append((time.process_time() - cpu) / steps * 1e6)
    ratio = median_ratio(rates, bare)
    return [
        Row(
            name="sequential steps", value=median(rates), unit="1/s", baseline=median(bare), ratio=ratio,
            note=f"{median(cpus):.0f} us of CPU each",
        ),
        Row(
            name="sequential steps / bare commits", value=ratio, unit="x", goal=0.85, floor=0.6, baseline=median(bare),
            ratio=ratio,
        ),
    ]  # fmt: skip
