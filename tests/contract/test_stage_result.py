"""A schema stage end to end: engine, an agent over ACP in a process of its own, `perdure bridge`, the tool server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from pydantic import BaseModel

from perdure.agents.registry import build_agent
from perdure.config import load_config
from perdure.definitions import workflow
from perdure.engine.engine import Engine
from perdure.engine.loop import LaneLoop
from perdure.engine.tree import RunOptions
from perdure.store import open_database
from tests.bed.acp import COMMAND


class Findings(BaseModel):
    approved: bool
    problems: list[str]


def run(folder: Path, prompt: str):
    """How a run of one schema stage with that prompt ended, and what it saw."""
    seen = []

    @workflow(name="judge")
    async def judge(ctx) -> None:
        seen.append(await ctx.task("judge", prompt, schema=Findings, timeout=30))

    async def main():
        database = open_database(folder / "perdure.db")
        config = load_config(folder, {"PERDURE_DATA_DIR": str(folder), "HOME": str(folder)})
        agent = build_agent("bed", {"kind": "acp", "command": COMMAND})
        try:
            async with Engine(database, config, agents=lambda _: agent) as engine:
                execution = await engine.start(judge, {}, RunOptions(cwd=folder, agent="bed"))
                return await execution.wait(), set(engine._services.tools._stages)
        finally:
            await database.close()

    with asyncio.Runner(loop_factory=LaneLoop) as runner:
        ending, left = runner.run(main())
    assert not left
    return ending, seen


def test_an_agent_hands_in_its_value_through_the_bridge(tmp_path):
    value = {"approved": False, "problems": ["ein Käfer"]}
    ending, [result] = run(tmp_path, f"TOOL perdure_result {json.dumps(value)}")
    assert ending.status == "completed"
    assert result.value == Findings(**value)
    assert "taken" in result.text
    assert result.warnings == ()


def test_an_agent_that_never_fits_is_corrected_three_times_and_fails(tmp_path):
    ending, seen = run(tmp_path, 'TOOL perdure_result {"approved": "maybe", "problems": []}')
    assert not seen
    assert ending.failure.code == "schema_unmet"
    assert "3 corrections" in ending.failure.message
