"""Whole runs with an agent over ACP, on the real command line: an owner that is killed, and a value handed in."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.acp import COMMAND
from tests.bed.cli import CommandLine, until

FLOWS = """
from pydantic import BaseModel

from perdure import Context, workflow


class Verdict(BaseModel):
    approved: bool
    problems: list[str]


@workflow
async def works(ctx: Context, prompt: str) -> str:
    return (await ctx.task("work", prompt)).text


@workflow
async def judges(ctx: Context, prompt: str) -> dict:
    return (await ctx.task("judge", prompt, schema=Verdict)).value.model_dump()
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    (tmp_path / "flows.py").write_text(FLOWS)
    config = line.home / ".config" / "perdure" / "config.toml"
    config.parent.mkdir(parents=True)
    command = json.dumps([*COMMAND, "--state", str(tmp_path / "state")])
    config.write_text(f'agent = "bed"\n[agents.bed]\nkind = "acp"\ncommand = {command}\n')
    yield line
    line.close()


def sessions(folder: Path) -> list[list[str]]:
    """The prompts of every session the agent has kept."""
    return [json.loads(path.read_text()) for path in sorted((folder / "state").glob("*.json"))]


def agents(folder: Path) -> list[int]:
    """The agents that live."""
    mark = str(folder / "state").encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if mark in line and b"acp_agent.py" in line:
            found.append(int(path.parent.name))
    return found


@pytest.mark.slow
def test_an_owner_killed_in_mid_turn_is_resumed_in_the_same_session_and_nothing_is_prompted_twice(
    run: CommandLine, tmp_path: Path
) -> None:
    owner = run.start("run", "flows.py:works", "prompt=SLOW work on it")
    until(lambda: bool(sessions(tmp_path) and sessions(tmp_path)[0]))
    owner.send_signal(signal.SIGKILL)
    owner.wait(10)
    (run_id,) = [one["run_id"] for one in run("status", "--json").data["runs"]]
    said = run("resume", run_id, "--json")
    assert said.code == 0, said
    (prompts,) = sessions(tmp_path)
    assert prompts[0].startswith("SLOW work on it")
    assert [prompt.split(",")[0] for prompt in prompts[1:]] == ["You were interrupted while you worked on your task"]
    assert agents(tmp_path) == []


@pytest.mark.slow
def test_a_value_is_handed_in_through_the_engines_tool(run: CommandLine, tmp_path: Path) -> None:
    value = json.dumps({"approved": False, "problems": ["no tests"]})
    said = run("run", "flows.py:judges", f"prompt=TOOL perdure_result {value}", "--json")
    assert said.code == 0, said
    assert said.data["output"] == {"approved": False, "problems": ["no tests"]}
    assert len(sessions(tmp_path)[0]) == 1
