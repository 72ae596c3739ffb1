"""A process that owns a run in a shared database: `python -m bench.worker FILE SECONDS`.

It says `ready`, waits for a line, takes durable steps for so many seconds, and prints when each came, counted from
that line on.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.bed import bed, run_on_lanes
from bench.flows import echo
from perdure import Context, workflow

times: list[float] = []


@workflow
async def until(ctx: Context, seconds: float) -> None:
    """Steps until the time is over. Never resumed, so the clock may decide."""
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < seconds:
        times.append(now)
        await ctx.tool(echo, len(times))


async def main(file: Path, seconds: float) -> None:
    """Work, and report."""
    async with bed(file.parent, file.name) as here:
        print("ready", flush=True)
        sys.stdin.readline()
        await here.run(until, seconds=seconds)
    print(json.dumps(times))


if __name__ == "__main__":
    run_on_lanes(main(Path(sys.argv[1]), float(sys.argv[2])))
