"""Resuming a run that stopped behind its last recorded step: time a step, and statements a resume."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from statistics import median

from bench.bed import bed, run_on_lanes
from bench.flows import milestone, recorded
from bench.folders import scratch
from bench.probe import read_us_per_row
from bench.row import Row, median_ratio

STEPS = 10_000


def measure(*, full: bool) -> list[Row]:
    """10,000 steps in one lane, and in 100."""
    rounds = 15 if full else 5
    rows: list[Row] = []
    for lanes, goal, floor in ((1, 10.0, 20.0), (100, 15.0, 30.0)):
        with scratch() as folder:
            rows += run_on_lanes(_measure(folder, lanes, rounds, (goal, floor)))
    return rows


async def _measure(folder: Path, lanes: int, rounds: int, marks: tuple[float, float]) -> list[Row]:
    async with bed(folder) as here:
        execution = await here.start(recorded, steps=STEPS, lanes=lanes)
        await milestone.wait()
        execution.quit()
        await execution.wait()
    times, bare, statements = [], [], []
    for _ in range(rounds):
        bare.append(read_us_per_row(folder / "bench.db"))
        async with bed(folder) as here:
            gc.collect()
            before = here.database.statistics.statements
            began = time.perf_counter()
            execution = await here.resume(execution.run_id, recorded)
            times.append((await milestone.wait() - began) / STEPS * 1e6)
            statements.append(here.database.statistics.statements - before)
            execution.quit()
            await execution.wait()
    where = "in one lane" if lanes == 1 else f"in {lanes} lanes"
    note = f"{STEPS:,} steps; against reading and decoding the same rows"
    return [
        Row(
            name=f"replay of a step, {where}", value=median(times), unit="us", goal=marks[0], floor=marks[1],
            baseline=median(bare), ratio=median_ratio(times, bare), note=note,
        ),
        Row(
            name=f"statements a resume, {where}", value=min(statements), unit="", goal=3, is_more_better=False,
            note="the fewest of all rounds, since the mailbox is polled meanwhile",
        ),
    ]  # fmt: skip
