"""Resident memory: of a `perdure run` that waits, over a bare Python; and of each waiting run in one engine."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.bed import Bed, bed, run_on_lanes
from bench.command import Command
from bench.flows import parked
from bench.folders import scratch
from bench.row import Row, unmeasured

RUNS = 1_000
SETTLE_S = 1.0


def measure(*, full: bool) -> list[Row]:
    """Megabytes of an owner, kilobytes of a run. `full` changes nothing: memory is hardly noisy."""
    del full
    if not Path("/proc/self/statm").exists():
        return [unmeasured("memory", "needs /proc")]
    with scratch() as folder:
        bare = subprocess.run(
            [sys.executable, "-c", "import asyncio; print(open('/proc/self/statm').read())"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        bare_mb = _resident(bare.stdout) / 1e6
        owner_mb = _owner_mb(folder)
        run_kb = run_on_lanes(_run_kb(folder))
    return [
        Row(
            name="idle owner over bare Python", value=owner_mb - bare_mb, unit="MB", goal=25, floor=40,
            baseline=bare_mb, ratio=owner_mb / bare_mb, note="a waiting `perdure run`, after a second",
        ),
        Row(name="a live parked run", value=run_kb, unit="KB", goal=6, floor=12, note=f"{RUNS:,} runs in ctx.sleep"),
    ]  # fmt: skip


def _owner_mb(folder: Path) -> float:
    perdure = Command(folder)
    perdure.run("run", "tiny.py")  # compiles what is imported, which leaves a larger heap behind
    perdure.stamp.unlink()
    owner = perdure.start("run", "tiny.py", "wait:=3600")
    try:
        while not perdure.stamp.exists():
            if owner.poll() is not None:
                raise RuntimeError(f"perdure run ended: {owner.communicate()[1]}")
            time.sleep(0.02)
        time.sleep(SETTLE_S)
        return _resident(Path(f"/proc/{owner.pid}/statm").read_text()) / 1e6
    finally:
        owner.terminate()
        owner.communicate()


async def _run_kb(folder: Path) -> float:
    async with bed(folder) as here:
        await _park(here, 20)  # what the first ones import and cache is the owner's
        before = _own()
        await _park(here, RUNS)
        return (_own() - before) / RUNS / 1000


async def _park(here: Bed, count: int) -> None:
    before = here.database.statistics.units
    await asyncio.gather(*(here.start(parked) for _ in range(count)))
    while here.database.statistics.units < before + 2 * count:  # its creation, and the start of its sleep
        await asyncio.sleep(0.01)


def _own() -> int:
    gc.collect()
    return _resident(Path("/proc/self/statm").read_text())


def _resident(statm: str) -> int:
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
