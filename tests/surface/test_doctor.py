"""`perdure doctor`: what a person reads, and its exit code."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.bed.cli import CommandLine

AGENT = Path(__file__).parents[1] / "bed" / "acp_agent.py"


@pytest.fixture
def perdure(tmp_path):
    line = CommandLine(tmp_path)
    yield line
    line.close()


def configure(line, **agents):
    config = line.home / ".config" / "perdure" / "config.toml"
    config.parent.mkdir(parents=True)
    tables = []
    for name, flags in agents.items():
        command = json.dumps([sys.executable, str(AGENT), *flags])
        tables.append(f'[agents.{name}]\nkind = "acp"\ncommand = {command}\nstart_timeout = 1\n')
    config.write_text("".join(tables))


def test_every_known_agent_is_looked_at_and_what_is_missing_does_not_fail_the_command(perdure):
    said = perdure("doctor", PATH="/usr/bin:/bin")
    assert said.code == 0, said.err
    assert re.search(r"^ready +rehearsal", said.out, re.MULTILINE)
    for name in ("claude", "codex", "gemini", "kimi", "opencode", "pi", "qwen"):
        assert re.search(rf"^\S.* {name}\b", said.out, re.MULTILINE)
    assert list(perdure.home.rglob("*.db")) == []


def test_an_agent_that_was_asked_for_and_is_not_ready_fails_the_command_with_advice(perdure):
    configure(perdure, stranger=["--login"], hangs=["--hang"])
    said = perdure("doctor", "stranger", "hangs", "absent", "--json")
    assert said.code == 1
    found = {one["name"]: one for one in said.data["agents"]}
    assert [found[name]["state"] for name in ("stranger", "hangs", "absent")] == ["login", "broken", "broken"]
    assert found["stranger"]["is_logged_in"] is False
    assert "start_timeout" in found["hangs"]["advice"]
    assert "No agent is called" in found["absent"]["advice"]


def test_a_question_is_asked_only_on_demand(perdure):
    configure(perdure, refuses=["--refuse", "HTTP 401: invalid api key", "--http", "--state", str(perdure.folder)])
    assert perdure("doctor", "refuses", "--ask", "--json").data["agents"][0]["state"] == "login"
