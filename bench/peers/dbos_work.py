"""DBOS: plain steps and workflows on its SQLite system database. Run by bench/peers/versus.py in DBOS' environment.

Replay is a second process, as DBOS recovers a pending workflow when it is launched; only the body's own time counts.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dbos import DBOS

FOLDER, SIZE = Path(sys.argv[1]), sys.argv[2]
STEPS, WORKFLOWS = (1000, 400) if SIZE == "full" else (300, 100)
replayed = threading.Event()
replay_us = 0.0


@DBOS.step()
def echo(x: int) -> int:
    return x


@DBOS.workflow()
def sequential(steps: int) -> int:
    for n in range(steps):
        echo(n)
    return steps


@DBOS.workflow()
def three() -> int:
    return echo(echo(echo(1) + 1) + 1)


@DBOS.workflow()
def killed(steps: int) -> int:
    global replay_us  # noqa: PLW0603  the process is this workflow
    began = time.perf_counter()
    for n in range(steps):
        echo(n)
    if SIZE != "replay":
        os._exit(0)
    replay_us = (time.perf_counter() - began) / steps * 1e6
    replayed.set()
    return steps


def launch() -> None:
    logging.disable(logging.CRITICAL)
    DBOS(
        config={"name": "bench", "system_database_url": f"sqlite:///{FOLDER / 'dbos.sqlite'}", "log_level": "CRITICAL"}
    )
    DBOS.launch()


def main() -> None:
    launch()
    if SIZE == "replay":
        if not replayed.wait(300):
            sys.exit("DBOS did not recover the workflow.")
        print(json.dumps(replay_us))
        sys.stdout.flush()
        os._exit(0)
    if SIZE.isdecimal():
        killed(int(SIZE))
    sequential(20)
    began = time.perf_counter()
    sequential(STEPS)
    figures = {"sequential steps": STEPS / (time.perf_counter() - began)}
    with ThreadPoolExecutor(50) as callers:
        began = time.perf_counter()
        list(callers.map(lambda _: three(), range(WORKFLOWS)))
        figures["three-step workflows, 50 in flight"] = WORKFLOWS / (time.perf_counter() - began)
    DBOS.destroy()
    again = [sys.executable, __file__, str(FOLDER)]
    subprocess.run([*again, str(STEPS)], check=True, capture_output=True)
    done = subprocess.run([*again, "replay"], check=True, capture_output=True, text=True)
    figures["replay of a step"] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
