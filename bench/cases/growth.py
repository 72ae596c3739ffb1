"""Whether a step costs more late in a long run: laps of a young and of an old run, taken in turn; bytes a step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

from bench.bed import Bed, bed, checked, run_on_lanes
from bench.flows import Laps, growing, laps, milestone
from bench.folders import scratch
from bench.row import Row, median_ratio

YOUNG, LAP = 1_000, 200


def measure(*, full: bool) -> list[Row]:
    """At 10,000 steps, and at 100,000 in full."""
    rows: list[Row] = []
    for steps in (10_000, 100_000) if full else (10_000,):
        with scratch() as folder:
            rows += run_on_lanes(_measure(folder, steps, rounds=11 if full else 7))
    return rows


async def _measure(folder: Path, steps: int, rounds: int) -> list[Row]:
    young, old = [], []
    async with bed(folder, "young.db") as first, bed(folder, "old.db") as second:
        runs = [await _grown(first, YOUNG, "young"), await _grown(second, steps, "old")]
        for _ in range(rounds):
            young.append(await laps["young"].next() / LAP * 1e6)
            old.append(await laps["old"].next() / LAP * 1e6)
        for each in laps.values():
            each.end()
        await asyncio.gather(*runs)
    taken = steps + rounds * LAP
    payload = _payload_bytes(steps) + rounds * _payload_bytes(LAP)
    size = ((folder / "old.db").stat().st_size - payload) / taken
    ratio = median_ratio(old, young)
    return [
        Row(
            name=f"cost of a step at {steps:,} against {YOUNG:,}", value=ratio, unit="x", goal=1.10, floor=1.25,
            baseline=median(young), ratio=ratio, note=f"{median(old):.0f} us against {median(young):.0f} us",
        ),
        Row(
            name=f"bytes of a step beyond its payload, {steps:,}", value=size, unit="B", goal=300, floor=500,
            baseline=payload / taken, ratio=None, note="baseline: its argument and result as JSON",
        ),
    ]  # fmt: skip


async def _grown(here: Bed, steps: int, key: str) -> asyncio.Task[None]:
    """A run with so many steps behind it, waiting for laps; the task that ends with it."""
    laps[key] = Laps()
    execution = await here.start(growing, steps=steps, lap_steps=LAP, key=key)

    async def ended() -> None:
        checked(await execution.wait())

    task = asyncio.create_task(ended())
    await milestone.wait()
    return task


def _payload_bytes(steps: int) -> int:
    """What an author stores in so many steps: `{"x":n}` and `n`."""
    return sum(2 * len(str(n)) + len('{"x":}') for n in range(steps))
