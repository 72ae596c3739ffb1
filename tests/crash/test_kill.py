"""kill -9, two owners, a stopped and woken owner: real processes, the real command line."""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.events import NodeFinished
from perdure.store import open_database
from perdure.store.journal import Journal
from tests.bed.cli import CommandLine, until

KILLS = 30
STEPS, STAGES = 200, 5

FLOW = """
import asyncio
import os

from perdure import Context, tool, workflow


@tool
async def write(n: int, log: str) -> int:
    await asyncio.sleep(0.01)
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{n}\\n".encode())
    os.fsync(handle)
    os.close(handle)
    return n * n


@workflow
async def long(ctx: Context, log: str, steps: int, stages: int) -> dict:
    total, texts = 0, []
    for stage in range(stages):
        for n in range(stage * steps // stages, (stage + 1) * steps // stages):
            total += await ctx.tool(write, n, log)
        texts.append((await ctx.task(f"stage-{stage}", f"Say something about {total}.")).text)
    return {"total": total, "texts": texts}


@workflow
async def waits(ctx: Context, log: str) -> str:
    await ctx.tool(write, 1, log)
    ok = await ctx.ask.confirm("Go on?")
    await ctx.tool(write, 2, log)
    return f"answer {ok}"


@workflow
async def beats(ctx: Context, log: str) -> int:
    for n in range(100_000):
        await ctx.tool(write, n, log)
    return 1
"""


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    command = CommandLine(tmp_path)
    (tmp_path / "long.py").write_text(FLOW)
    try:
        yield command
    finally:
        command.close()


def database_of(perdure: CommandLine) -> Path:
    return next(perdure.home.rglob("*.db"))


def journal_of(perdure: CommandLine, run_id: str) -> list:
    """The events of a run, proven whole: no gap, and every digest fits."""

    async def read():
        database = open_database(database_of(perdure))
        try:
            journal = Journal(database)
            count = await journal.verify(run_id)
            events = await journal.load(run_id)
            assert [s.seq for s in events] == list(range(1, count + 1))
            return events
        finally:
            await database.close()

    return asyncio.run(read())


def finished(events: list) -> set[str]:
    """The names of tools and stages whose success is recorded, by position."""
    return {s.event.position for s in events if isinstance(s.event, NodeFinished) and s.event.status == "completed"}


def the_run(perdure: CommandLine) -> str:
    runs = perdure("status", "--json").data["runs"]
    return runs[0]["run_id"]


def lines(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_killed_at_30_random_instants_does_every_step_and_no_recorded_step_again(perdure, tmp_path):
    rng = random.Random(20261130)
    plain = [f"steps={STEPS}", f"stages={STAGES}", "--agent", "rehearsal", "--json"]
    undisturbed = perdure("run", "long.py:long", f"log={tmp_path / 'plain.txt'}", *plain).data["output"]
    kills, rounds = 0, 0
    while kills < KILLS:  # a run may end before it was killed often enough: then the next one
        rounds += 1
        log = tmp_path / f"log-{rounds}.txt"
        words = ["run", "long.py:long", f"log={log}", *plain]
        recorded: dict[int, int] = {}  # step -> how often it had run when its success was first seen in the journal
        before = {r["run_id"] for r in perdure("status", "--json").data["runs"]}
        while True:
            process = perdure.start(*words)
            try:
                process.communicate(timeout=rng.uniform(0.35, 1.1) if kills < KILLS else 60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
            new = [r for r in perdure("status", "--json").data["runs"] if r["run_id"] not in before]
            if not new:
                continue  # killed before it wrote anything
            (run,) = new
            words = ["resume", run["run_id"], "--json"]
            events = journal_of(perdure, run["run_id"])
            counts = Counter(lines(log))
            for step in recorded_steps(events):
                recorded.setdefault(step, counts[step])
            if run["status"] == "completed":
                break
        assert perdure("show", run["run_id"], "--json").data["output"] == undisturbed
        counts = Counter(lines(log))
        assert set(counts) == set(range(STEPS)), "every step ran"
        again = {step: counts[step] for step, seen in recorded.items() if counts[step] != seen}
        assert not again, "recorded and run again"
        assert len(finished(events)) == STEPS + STAGES
    assert kills >= KILLS


def recorded_steps(events: list) -> list[int]:
    """The tool steps whose success is recorded: their value is the step's number, squared."""
    values = [json.loads(bytes(s.event.value)) for s in events if isinstance(s.event, NodeFinished)]
    return [math.isqrt(value) for value in values if isinstance(value, int)]


def test_of_two_processes_that_resume_at_once_one_owns_the_run_and_the_other_leaves_with_5(perdure, tmp_path):
    log = tmp_path / "log.txt"
    first = perdure.start("run", "long.py:beats", f"log={log}", "--json")
    until(lambda: len(lines(log)) > 3)
    first.kill()
    first.wait()
    run_id = the_run(perdure)
    two = [perdure.start("resume", run_id, "--json") for _ in range(2)]
    until(lambda: any(p.poll() is not None for p in two))
    loser = next(p for p in two if p.poll() is not None)
    winner = next(p for p in two if p is not loser)
    out, err = loser.communicate()
    assert loser.returncode == 5, (out, err)
    error = json.loads(out.splitlines()[-1])["error"]
    assert error["code"] in {"changed", "owned_elsewhere"}
    before = len(lines(log))
    until(lambda: len(lines(log)) > before + 3)
    assert winner.poll() is None
    winner.send_signal(signal.SIGINT)
    assert winner.wait(10) == 130
    journal_of(perdure, run_id)


def test_an_owner_stopped_past_its_lease_writes_nothing_more_once_it_wakes(perdure, tmp_path):
    log = tmp_path / "log.txt"
    perdure.environ |= {"PERDURE_LEASE_TIMEOUT_MS": "1000", "PERDURE_LEASE_RENEW_MS": "300"}
    old = perdure.start("run", "long.py:beats", f"log={log}", "--json")
    until(lambda: len(lines(log)) > 3)
    run_id = the_run(perdure)
    until(lambda: stopped_between_commits(old.pid, database_of(perdure)))
    new = None

    def taken_over() -> bool:
        nonlocal new
        if new is None or new.poll() is not None:
            new = perdure.start("resume", run_id, "--json")
        return len(lines(log)) > before

    before = len(lines(log))
    until(taken_over)
    before = len(lines(log))
    until(lambda: len(lines(log)) > before + 3)
    os.kill(old.pid, signal.SIGCONT)
    out, _ = old.communicate(timeout=20)
    assert old.returncode == 5
    error = json.loads(out.splitlines()[-1])["error"]
    assert error["code"] == "stale_lease"
    assert "Another process owns" in error["message"]
    new.send_signal(signal.SIGINT)
    assert new.wait(10) == 130
    events = journal_of(perdure, run_id)
    epochs = [s.event.epoch for s in events if hasattr(s.event, "number") and hasattr(s.event, "epoch")]
    assert epochs == sorted(epochs), "nothing of the old owner came after the new one began"


def stopped_between_commits(pid: int, database: Path) -> bool:
    """Stop a process, but not in the middle of a write: SQLite's lock would then be held by a process that sleeps."""
    os.kill(pid, signal.SIGSTOP)
    with Path(f"{database}-gate").open("rb") as gate, Path(f"{database}-turn").open("rb") as turn:
        try:
            for lock in (gate, turn):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.kill(pid, signal.SIGCONT)
            return False
    return True


def test_a_question_answered_while_its_owner_is_dead_is_not_asked_again(perdure, tmp_path):
    log = tmp_path / "log.txt"
    owner = perdure.start("run", "long.py:waits", f"log={log}", "--detach", "--json")
    out, _ = owner.communicate(timeout=20)
    data = json.loads(out.splitlines()[-1])["data"]
    run_id = data["run_id"]
    perdure("wait", run_id, "--json")
    os.kill(data["pid"], signal.SIGKILL)
    until(lambda: perdure("status", "--json").data["runs"][0]["display_status"] == "crashed")
    answered = perdure("answer", run_id, "yes", "--json")
    assert answered.code == 0, answered
    said = perdure("resume", run_id, "--json")
    assert said.code == 0, said
    assert said.data["output"] == "answer True"
    assert lines(log) == [1, 2]
    asked = [s.event for s in journal_of(perdure, run_id) if type(s.event).__name__ == "PromptAsked"]
    assert len(asked) == 1
