"""`python -m bench`: every case in a process of its own, a table for people, results.json for machines."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.cases import NAMES
from bench.peers import environment, versus
from bench.row import Row, to_row, to_table, unmeasured, write_results

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results.json")
CASE_S_MAX = {False: 120, True: 900}


def main() -> int:
    """Measure; 1 if --check was given and a floor was missed."""
    arguments = _parse()
    rows: list[Row] = []
    for name in arguments.only or NAMES:
        rows += _timed(name, partial(_case, name, full=arguments.full))
    if arguments.peers:
        for peer in environment.PEERS:
            rows += _timed(f"peer {peer.name}", partial(versus.measure, peer, full=arguments.full))
        rows += versus.against_best(rows)
    print(to_table(rows))
    write_results(rows, arguments.results)
    print(f"\n{arguments.results}", file=sys.stderr)
    return int(arguments.check and any(row.ok is False for row in rows))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure perdure against this machine.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about a minute (the default)")
    size.add_argument("--full", action="store_true", help="some minutes: more rounds, 100,000 steps")
    parser.add_argument("--only", metavar="NAME", action="append", choices=NAMES, help=f"one of: {', '.join(NAMES)}")
    parser.add_argument("--peers", action="store_true", help="install dbos, langgraph and burr, and measure them too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a floor is missed")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where the JSON goes")
    return parser.parse_args()


def _timed(name: str, measure: Callable[[], list[Row]]) -> list[Row]:
    print(f"{name} ...", end="", file=sys.stderr, flush=True)
    began = time.monotonic()
    rows = measure()
    print(f" {time.monotonic() - began:.0f} s", file=sys.stderr)
    return rows


def _case(name: str, *, full: bool) -> list[Row]:
    """The rows of a case; if it fails, a row that says so."""
    command = [sys.executable, "-m", "bench.case", name, *(["--full"] if full else [])]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CASE_S_MAX[full], check=False)
    except subprocess.TimeoutExpired:
        return [unmeasured(name, f"not done after {CASE_S_MAX[full]} s")]
    if done.returncode:
        return [unmeasured(name, (done.stderr.strip().splitlines() or ["it failed without a word"])[-1])]
    return [to_row(fields) for fields in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    sys.exit(main())
