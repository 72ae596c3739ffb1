"""Eight processes that write one file: what the slowest gets, and how long anybody waits between own commits."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import mean

from bench.bed import bed, run_on_lanes
from bench.folders import scratch
from bench.row import Row

PROCESSES = 8
SETTLE_S = 0.5  # at the beginning the runs are created; at the end some have stopped already


def measure(*, full: bool) -> list[Row]:
    """One process alone, then all of them."""
    seconds = 10.0 if full else 2.5
    with scratch() as folder:
        file = folder / "shared.db"
        run_on_lanes(_create(file))
        alone = _rate(_work(file, 1, seconds)[0], seconds)
        everyone = _work(file, PROCESSES, seconds)
    rates = [_rate(times, seconds) for times in everyone]
    waits = [later - earlier for times in everyone for earlier, later in pairwise(_settled(times, seconds))]
    return [
        Row(
            name="eight processes: smallest share of the mean", value=min(rates) / mean(rates), unit="x", goal=0.8,
            floor=0.5, baseline=alone, ratio=sum(rates) / alone, note="against one alone, steps/s; ratio: all of them",
        ),
        Row(
            name="eight processes: longest wait", value=max(waits) * 1000, unit="ms", goal=50, floor=250,
            baseline=mean(waits) * 1000, ratio=max(waits) / mean(waits), note="between own steps; baseline: the mean",
        ),
    ]  # fmt: skip


async def _create(file: Path) -> None:
    async with bed(file.parent, file.name):
        pass


def _work(file: Path, count: int, seconds: float) -> list[list[float]]:
    """For each process the times of its steps, in seconds."""
    command = [sys.executable, "-m", "bench.worker", str(file), str(seconds)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != "ready\n":
                raise RuntimeError("A worker did not start.")
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        return [json.loads(worker.communicate(timeout=seconds * 10)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _settled(times: list[float], seconds: float) -> list[float]:
    return [time for time in times if SETTLE_S <= time <= seconds - SETTLE_S]


def _rate(times: list[float], seconds: float) -> float:
    return len(_settled(times, seconds)) / (seconds - 2 * SETTLE_S)
