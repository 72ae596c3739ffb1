"""Whole runs on the command line with real coding agents: durable, resumed, and nothing prompted twice."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.real import KEY, Real, keep_offline, processes_of
from tests.bed.cli import CommandLine, until
from tests.bed.model_server import Asked, ModelServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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


class Project:
    """A folder with workflows, a home that knows one agent, and the command line in it."""

    def __init__(self, real: Real, model: ModelServer, folder: Path, path: str) -> None:
        self.real, self.model, self.folder = real, model, folder
        self.run = CommandLine(folder)
        self.run.seconds = 120.0
        self.run.environ.update({"PATH": path, KEY: "none"})
        keep_offline(self.run.home)
        (folder / "flows.py").write_text(FLOWS)
        self.configure()

    def configure(self, **more: object) -> None:
        config = self.run.home / ".config" / "perdure" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        settings = self.real.pointed_at(self.model, **more)
        config.write_text(f'agent = "tested"\n[agents.tested]\n{toml(settings | self.profile())}')

    def profile(self) -> dict[str, object]:
        return {} if self.real.name == "house" else {"profile": self.real.name}

    def runs(self) -> list[dict]:
        return self.run("status", "--json").data["runs"]

    def start_slowly(self) -> subprocess.Popen:
        """A run whose agent is in the middle of a turn that takes a minute."""
        run = self.run.start("run", "flows.py:works", "prompt=Please:\nSLOW")
        until(lambda: run.poll() is not None or b"Slowly" in self.frames(), seconds=120)
        assert run.poll() is None, run.stderr.read()
        return run

    def frames(self) -> bytes:
        """What agents of this project sent so far."""
        return b"".join(file.read_bytes() for file in self.run.home.rglob("*.frames.jsonl"))


def toml(settings: dict[str, object]) -> str:
    """Settings as TOML; an inline table is like JSON but for its colons."""
    return "".join(f"{key} = {inline(value)}\n" for key, value in settings.items())


def inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


def is_slow(one: Asked) -> bool:
    return "SLOW" in one.prompt


@pytest.fixture
def project(real: Real, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    one = Project(real, model, tmp_path, real.path())
    yield one
    one.run.close()
    until(lambda: processes_of(one.run.home) == [], seconds=10)


def test_a_stage_writes_a_file_and_its_doings_and_usage_are_kept(project: Project) -> None:
    target = project.folder / "hello.txt"
    said = project.run("run", "flows.py:works", f"prompt=Please:\nWRITE {target} hello you\nSAY It is written.")
    assert said.code == 0, said.err
    assert target.read_text().strip() == "hello you"
    (run,) = project.runs()
    assert run["status"] == "completed"
    transcript = project.run("transcript", run["run_id"], "work", "--json").out
    assert "tool_call" in transcript
    assert "It is written." in transcript
    usage = project.run("stage", run["run_id"], "work", "--json").data
    assert "tokens_in" in json.dumps(usage)


def test_a_schema_stage_gets_its_value_by_the_engines_tool(project: Project) -> None:
    verdict = json.dumps({"approved": False, "problems": ["no tests"]})
    said = project.run("run", "flows.py:judges", f"prompt=Judge:\nRESULT {verdict}", "--json")
    assert said.code == 0, said.out + said.err
    assert said.data["output"] == json.loads(verdict)


def test_a_killed_run_reopens_its_session_and_prompts_nothing_twice(project: Project) -> None:
    run = project.start_slowly()
    run.send_signal(signal.SIGKILL)
    run.wait(10)
    until(lambda: processes_of(project.run.home) == [], seconds=30)

    (left,) = project.runs()
    said = project.run("resume", left["run_id"], "--json")
    assert said.code == 0, said.out + said.err
    assert said.data["output"] == "Done."
    assert sum(is_slow(one) for one in project.model.turns) == 1
    last = next(one for one in reversed(project.model.turns) if "You were interrupted" in one.prompt)
    assert sum("SLOW" in prompt for prompt in last.said.prompts) == 1


@pytest.mark.parametrize("real", ["house"], indirect=True)
def test_an_interrupted_run_ends_its_agent_and_goes_on_later(project: Project) -> None:
    run = project.start_slowly()
    run.send_signal(signal.SIGINT)
    assert run.wait(20) == 130
    assert processes_of(project.run.home) == []
    (left,) = project.runs()
    assert project.run("resume", left["run_id"]).code == 0
    assert sum(is_slow(one) for one in project.model.turns) == 1


def test_doctor_sees_that_the_agent_is_ready_and_the_engines_tools_reach_it(project: Project) -> None:
    said = project.run("doctor", "tested", "--ask", "--json")
    assert said.code == 0, said.out + said.err
    (checkup,) = said.data["agents"]
    assert checkup["state"] == "ready"
    assert checkup["is_logged_in"] is True
    assert checkup["has_tools"] is True
    assert checkup["can_reopen"] is True
    assert checkup["version"]


@pytest.mark.parametrize("real", ["opencode", "house"], indirect=True)
def test_an_agents_question_for_permission_reaches_a_person_by_the_command_line(project: Project) -> None:
    project.configure(permissions="ask")
    target = project.folder / "hello.txt"
    run_id = project.run(
        "run", "flows.py:works", f"prompt=Please:\nWRITE {target} hello you", "--detach", "--json"
    ).data["run_id"]
    waited = project.run("wait", run_id)
    assert waited.code == 8, waited.err  # a person must answer
    (run,) = project.runs()
    (question,) = run["awaiting_input"]
    assert not target.exists()
    assert project.run("answer", run_id, next(one for one in question["choices"] if "llow" in one)).code == 0
    assert project.run("wait", run_id).code == 0
    assert target.read_text().strip() == "hello you"
