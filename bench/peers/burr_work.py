"""Burr with its SQLite persister. Run by bench/peers/versus.py in Burr's environment.

The persister is synchronous on one connection, so workflows come one after another: more in flight would only wait.
Burr saves a snapshot of its state and never runs a body again, so there is no replay to measure.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from burr.core import ApplicationBuilder, State, action
from burr.core.persistence import SQLitePersister

FOLDER, IS_FULL = Path(sys.argv[1]), sys.argv[2] == "full"
STEPS, WORKFLOWS = (1000, 400) if IS_FULL else (300, 100)


@action(reads=["x"], writes=["x"])
def echo(state: State) -> State:
    return state.update(x=state["x"] + 1)


def run(persister: Any, name: str, steps: int) -> None:
    """A new application, and so many steps of it."""
    application = (
        ApplicationBuilder()
        .with_actions(echo)
        .with_transitions(("echo", "echo"))
        .with_state(x=0)
        .with_entrypoint("echo")
        .with_identifiers(app_id=name)
        .with_state_persister(persister)
        .build()
    )
    for _ in range(steps):
        application.step()


def main() -> None:
    persister = SQLitePersister(str(FOLDER / "burr.db"), "burr")
    if sys.argv[3:] == ["burr-wal"]:
        persister.connection.execute("PRAGMA journal_mode = WAL")
    persister.connection.execute("PRAGMA synchronous = FULL")
    persister.initialize()
    run(persister, "warm", 20)
    began = time.perf_counter()
    run(persister, "sequential", STEPS)
    figures = {"sequential steps": STEPS / (time.perf_counter() - began)}
    began = time.perf_counter()
    for n in range(WORKFLOWS):
        run(persister, f"three-{n}", 3)
    figures["three-step workflows, 50 in flight"] = WORKFLOWS / (time.perf_counter() - began)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
