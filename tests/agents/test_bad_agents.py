"""Agents that misbehave: each run ends in a failure that says what happened, and no process is left."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.real import processes_of
from tests.bed.cli import CommandLine

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to see what is left")

AGENT = Path(__file__).parents[1] / "bed" / "acp_agent.py"
FLOWS = """
from perdure import Context, workflow


@workflow
async def works(ctx: Context, prompt: str, timeout: float = 30.0) -> str:
    return (await ctx.task("work", prompt, timeout=timeout, steering_contract=False)).text
"""


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    (tmp_path / "flows.py").write_text(FLOWS)
    yield line
    line.close()
    assert processes_of(line.home) == []


def use(line: CommandLine, *flags: str, **more: object) -> None:
    """Have the agent of the bed be the agent of every stage."""
    config = line.home / ".config" / "perdure" / "config.toml"
    config.parent.mkdir(parents=True)
    settings = {"kind": "acp", "command": [sys.executable, str(AGENT), *flags], **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    config.write_text("\n".join(['agent = "tested"', "[agents.tested]", *lines]))


def run(line: CommandLine, prompt: str, *more: str) -> tuple[int, str]:
    """The exit code of a run, and all that is said of its end."""
    said = line("run", "flows.py:works", f"prompt={prompt}", *more, "--json")
    return said.code, json.dumps(said.envelope)


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("DIE", "exit code 7"),
        ("GARBAGE", "not of the protocol"),
        ("REFUSE HTTP 400: no such thing", "no such thing"),
        ("SILENT", "without a final message"),
    ],
)
def test_what_goes_wrong_in_a_turn_is_told(perdure: CommandLine, prompt: str, says: str) -> None:
    use(perdure)
    code, failure = run(perdure, prompt)
    assert code in {1, 7}
    assert says in failure


@pytest.mark.parametrize(
    ("flag", "says"),
    [("--hang", "no session within 1 s"), ("--garbage", "does not speak the Agent Client Protocol"),
     ("--login", "not logged in"), ("--version=9", "speaks version 9")],
)  # fmt: skip
def test_what_goes_wrong_at_the_start_is_told(perdure: CommandLine, flag: str, says: str) -> None:
    use(perdure, *flag.split("="), start_timeout=1)
    code, failure = run(perdure, "Hello.")
    assert code in {1, 7}
    assert says in failure


def test_an_agent_that_floods_its_standard_error_still_answers(perdure: CommandLine) -> None:
    use(perdure)
    code, result = run(perdure, "FLOOD")
    assert code == 0
    assert "Flooded" in result


@pytest.mark.parametrize("prompt", ["SLOW", "DEAF", "FORK"])
def test_a_stage_that_takes_too_long_is_ended_with_all_it_started(perdure: CommandLine, prompt: str) -> None:
    use(perdure)
    code, failure = run(perdure, prompt, "timeout:=1.0")
    assert code in {1, 7}
    assert "timed_out" in failure
