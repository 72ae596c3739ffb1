"""Three-step workflows with 1, 50 and 200 in flight, against bare commits of as many rows in as large batches."""

from __future__ import annotations

import asyncio
import time
from statistics import median

import apsw

from bench.bed import Bed, bed, run_on_lanes
from bench.flows import three
from bench.folders import scratch
from bench.probe import bare_file, commits_per_s
from bench.row import Row, median_ratio

GOAL, FLOOR = 10_000.0, 3_000.0


def measure(*, full: bool) -> list[Row]:
    """A rate for each number in flight; for 200 the rows a commit too."""
    return run_on_lanes(_measure(rounds=9 if full else 5, scale=4 if full else 1))  # type: ignore[no-any-return]


async def _measure(rounds: int, scale: int) -> list[Row]:
    rows: list[Row] = []
    with scratch() as folder, bare_file(folder) as connection:
        async with bed(folder) as here:
            for in_flight, each in ((1, 100), (50, 10), (200, 5)):
                rows += await _at(here, connection, in_flight, each * scale, rounds)
    return rows


async def _at(here: Bed, bare: apsw.Connection, in_flight: int, each: int, rounds: int) -> list[Row]:
    count = in_flight * each
    await run_many(here, in_flight, 1)
    rates, baseline, batches, cpus = [], [], [], []
    for _ in range(rounds):
        statistics = here.database.statistics
        commits, written = statistics.commits, statistics.rows_written
        began, cpu = time.perf_counter(), time.process_time()
        await run_many(here, in_flight, each)
        rates.append(count / (time.perf_counter() - began))
        cpus.append((time.process_time() - cpu) / count * 1e6)
        commits, written = statistics.commits - commits, statistics.rows_written - written
        batches.append(written / commits)
        size = max(1, round(written / commits))
        baseline.append(commits_per_s(bare, commits, size) * size / (written / count))
    is_goal = in_flight == 200
    rows = [
        Row(
            name=f"three-step workflows, {in_flight} in flight", value=median(rates), unit="1/s",
            goal=GOAL if is_goal else None, floor=FLOOR if is_goal else None, baseline=median(baseline),
            ratio=median_ratio(rates, baseline), note=f"{median(cpus):.0f} us of CPU each",
        )
    ]  # fmt: skip
    if is_goal:
        rows.append(Row(name="rows a commit, 200 in flight", value=median(batches), unit="rows", goal=50))
    return rows


async def run_many(here: Bed, in_flight: int, each: int) -> None:
    """So many callers, each running so many workflows one after another."""

    async def caller() -> None:
        for _ in range(each):
            await here.run(three)

    await asyncio.gather(*(caller() for _ in range(in_flight)))
