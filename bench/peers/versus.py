"""Rows that put a peer's figures beside perdure's of the same session."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Final

from bench.folders import scratch
from bench.peers.environment import PEERS, Peer, python_of
from bench.row import Row, unmeasured

WORK_S_MAX: Final = 900
BEST_GOAL: Final = 5.0
# What a peer's script reports, the unit, and perdure's row for the same work.
FIGURES: Final = {
    "sequential steps": ("1/s", "sequential steps"),
    "three-step workflows, 50 in flight": ("1/s", "three-step workflows, 50 in flight"),
    "replay of a step": ("us", "replay of a step, in one lane"),
}


def measure(peer: Peer, *, full: bool) -> list[Row]:
    """The peer's figures; one row with the reason if there are none."""
    try:
        python = python_of(peer)
        with scratch() as folder:
            command = [str(python), str(peer.script), str(folder), "full" if full else "quick", peer.name]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WORK_S_MAX, check=False)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it failed without a word"])[-1])
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
        return [unmeasured(f"peer {peer.name}", str(error))]
    return [
        Row(name=f"peer {peer.name}: {name}", value=value, unit=FIGURES[name][0], note=peer.note)
        for name, value in figures.items()
    ]


def against_best(rows: Sequence[Row]) -> list[Row]:
    """How many times perdure does what the best peer does, for each work that both were measured at."""
    own = {row.name: row.value for row in rows}
    return [
        row
        for work, (unit, name) in FIGURES.items()
        if (row := _against_best(work, unit, own.get(name), rows)) is not None
    ]


def _against_best(work: str, unit: str, mine: float | None, rows: Sequence[Row]) -> Row | None:
    names = {f"peer {peer.name}: {work}" for peer in PEERS if peer.is_as_shipped}
    theirs = [(row.value, row.name) for row in rows if row.name in names and row.value is not None]
    if mine is None or not theirs:
        return None
    value, name = max(theirs) if unit == "1/s" else min(theirs)
    times = mine / value if unit == "1/s" else value / mine
    goal = BEST_GOAL if work == "sequential steps" else None
    return Row(
        name=f"{work} / best peer", value=times, unit="x", goal=goal, baseline=value, ratio=times,
        note=name.removeprefix("peer ").partition(":")[0],
    )  # fmt: skip
