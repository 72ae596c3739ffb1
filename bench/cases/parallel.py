"""100 steps at once in one run, trivial ones and ones that take 100 ms, as the author's code sees it."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from bench.bed import bed, run_on_lanes
from bench.flows import WORK_S, fan
from bench.folders import scratch
from bench.probe import bare_file, commits_per_s
from bench.row import Row, median_ratio

STEPS = 100


def measure(*, full: bool) -> list[Row]:
    """Milliseconds for all of them."""
    return run_on_lanes(_measure(rounds=40 if full else 12))  # type: ignore[no-any-return]


async def _measure(rounds: int) -> list[Row]:
    trivial, bare, working, plain = [], [], [], []
    with scratch() as folder, bare_file(folder) as connection:
        async with bed(folder) as here:
            await here.run(fan, steps=STEPS, is_work=False)
            for _ in range(rounds):
                bare.append(1000 / commits_per_s(connection, 1, STEPS))
                trivial.append(1000 * await here.run(fan, steps=STEPS, is_work=False))
                plain.append(1000 * await _plain())
                working.append(1000 * await here.run(fan, steps=STEPS, is_work=True))
    return [
        Row(
            name="100 trivial parallel steps", value=median(trivial), unit="ms", goal=6, floor=15,
            baseline=median(bare), ratio=median_ratio(trivial, bare), note="against one bare commit of 100 rows",
        ),
        Row(
            name="100 parallel steps of 100 ms", value=median(working), unit="ms", goal=110, floor=125,
            baseline=median(plain), ratio=median_ratio(working, plain), note="against plain asyncio",
        ),
    ]  # fmt: skip


async def _plain() -> float:
    began = time.perf_counter()
    await asyncio.gather(*(asyncio.sleep(WORK_S) for _ in range(STEPS)))
    return time.perf_counter() - began
