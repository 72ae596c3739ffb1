"""Stages through the real engine, store and agents: one suite over the kinds of agent that every machine has."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from perdure.agents.registry import build_agent
from perdure.config import load_config
from perdure.definitions import workflow
from perdure.engine.engine import Engine
from perdure.engine.loop import LaneLoop
from perdure.engine.tree import RunOptions
from perdure.events import NodeFinished, NodeStarted, SessionBound
from perdure.store import open_database, transcripts
from perdure.store.journal import Journal

ECHO = """
import json, sys
text = sys.stdin.read()
print("I was told: " + text.splitlines()[0])
if "JSON Schema" in text:
    print('```json\\n{"approved": true, "problems": []}\\n```')
"""
SLOW = "import os, time, pathlib; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"


class Findings(BaseModel):
    approved: bool
    problems: list[str]


class Bench:
    """An engine over a database in a folder; entered afresh for each process that the test plays."""

    def __init__(self, folder: Path, agents: dict) -> None:
        self.folder, self.agents = folder, agents
        self.cwd = folder / "cwd"
        self.cwd.mkdir()

    def run(self, scenario):
        """`async scenario(engine, journal, database)` on a loop of its own."""

        async def main():
            database = open_database(self.folder / "perdure.db")
            config = load_config(self.cwd, {"PERDURE_DATA_DIR": str(self.folder), "HOME": str(self.folder)})
            try:
                async with Engine(database, config, agents=self._agent) as engine:
                    return await scenario(engine, Journal(database), database)
            finally:
                await database.close()

        with asyncio.Runner(loop_factory=LaneLoop) as runner:
            return runner.run(main())

    def _agent(self, name):
        return build_agent(name, self.agents.get(name, {}), known=self.agents)

    def options(self, agent):
        return RunOptions(cwd=self.cwd, agent=agent)


@pytest.fixture
def bench(tmp_path):
    echo = {"kind": "command", "command": [sys.executable, "-c", ECHO], "prompt": "stdin"}
    slow = {"kind": "command", "command": [sys.executable, "-c", SLOW], "prompt": "stdin"}
    return Bench(tmp_path, {"echo": echo, "slow": slow})


async def until(check):
    while not check():
        await asyncio.sleep(0.005)


async def everything(ctx) -> dict:
    review = await ctx.task("review", "Review it.", schema=Findings, output="out/review.md", output_mode="file")
    pair = await ctx.parallel({"a": ctx.task("a", "A?", previous=review), "b": ctx.task("b", "B?")})
    async with ctx.stage("plan") as plan:
        await plan.prompt("First?")
        last = await plan.prompt("Second?")
    return {
        "typed": isinstance(review.value, Findings), "text": review.text, "pair": sorted(pair), "last": last.text,
        "session": review.session_id, "artifact": review.artifacts[0]["path"],
    }  # fmt: skip


@pytest.mark.parametrize("agent", ["rehearsal", "echo"])
def test_a_run_of_stages_completes_and_keeps_its_messages_and_transcripts(bench, agent):
    definition = workflow(name="everything")(everything)

    async def scenario(engine, journal, database):
        execution = await engine.start(definition, {}, bench.options(agent))
        ending = await execution.wait()
        events = await journal.load(execution.run_id)
        said = await database.read(lambda tx: transcripts.read(tx, execution.run_id, "/:0"))
        return execution.run_id, ending, events, said

    run_id, ending, events, said = bench.run(scenario)
    assert ending.status == "completed", ending
    output = ending.value
    assert output["typed"]
    written = bench.cwd / "out/review.md"
    assert output["artifact"] == str(written)
    assert str(written) in output["text"]
    told = [entry.entry["text"] for entry in said if entry.kind == "prompt"]
    assert told[0].startswith("Review it.")
    assert written.read_text().strip() in {entry.entry["text"].strip() for entry in said if entry.kind == "text"}
    stages = {s.event.name for s in events if isinstance(s.event, NodeStarted)}
    assert {"review", "a", "b", "plan", "plan 1", "plan 2"} <= stages
    assert (bench.folder / "runs" / run_id).is_dir()


def test_a_stage_that_was_quit_goes_on_in_its_session(bench):
    bench.agents["rehearsal"] = {
        "kind": "rehearsal", "script": {"plan": [{"delay": 600}, {"text": "Went on."}], "before": {"text": "x"}},
    }  # fmt: skip

    async def body(ctx) -> str:
        await ctx.task("before", "Before.")
        return (await ctx.task("plan", "Plan.")).text

    definition = workflow(name="quits")(body)
    agent = build_agent("rehearsal", bench.agents["rehearsal"])
    bench._agent = lambda name: agent  # the rehearsal counts its turns in memory

    async def first(engine, journal, database):
        execution = await engine.start(definition, {}, bench.options("rehearsal"))
        while not any(
            isinstance(s.event, SessionBound) and s.event.position == "/:1"
            for s in await journal.load(execution.run_id)
        ):
            await asyncio.sleep(0.005)
        execution.quit()
        return execution.run_id, await execution.wait()

    run_id, ending = bench.run(first)
    assert ending.status == "paused"

    async def second(engine, journal, database):
        execution = await engine.resume(run_id, definition, bench.options(None))
        ending = await execution.wait()
        return ending, await journal.load(run_id), await database.read(lambda tx: transcripts.read(tx, run_id, "/:1"))

    ending, events, said = bench.run(second)
    assert ending.value == "Went on."
    assert len([s for s in events if isinstance(s.event, SessionBound)]) == 2
    assert [s.event.position for s in events if isinstance(s.event, NodeFinished)] == ["/:0", "/:1"]
    prompts = [entry.entry["text"] for entry in said if entry.kind == "prompt"]
    assert prompts[0].startswith("Plan.")
    assert prompts[-1].startswith("You were interrupted")


def test_a_stage_that_is_stopped_leaves_no_process(bench):
    async def body(ctx) -> str:
        return (await ctx.task("slow", "Take your time.")).text

    definition = workflow(name="slow")(body)

    async def scenario(engine, journal, database):
        execution = await engine.start(definition, {}, bench.options("slow"))
        file = bench.cwd / "pid"
        await until(lambda: file.exists() and file.read_text())
        execution.quit()
        ending = await execution.wait()
        return ending, int(file.read_text())

    ending, pid = bench.run(scenario)
    assert ending.status == "paused"
    assert not Path(f"/proc/{pid}").exists()


def test_a_command_that_fails_shows_its_evidence(bench):
    bench.agents["bad"] = {
        "kind": "command", "command": [sys.executable, "-c", "import sys; sys.exit('no disk left')"], "prompt": "stdin",
    }  # fmt: skip

    async def body(ctx) -> str:
        return (await ctx.task("plan", "Plan.", agent="bad")).text

    async def scenario(engine, journal, database):
        execution = await engine.start(workflow(name="bad")(body), {}, bench.options("rehearsal"))
        return await execution.wait()

    ending = bench.run(scenario)
    assert ending.status == "failed"
    assert ending.failure.exit_code == 1
    assert "no disk left" in ending.failure.message + ending.failure.stderr
