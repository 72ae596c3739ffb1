"""The house agent as a process: whatever ends it, the commands it runs end too."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.agents.registry import build_agent
from perdure.agents.session import AgentEvent, SessionSpec
from perdure.errors import AgentError
from perdure.host.census import mark_of, marked_with
from perdure.host.identity import here
from perdure.host.processes import environment, spawn, stop
from tests.bed.cli import until
from tests.bed.model_server import ModelServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to see what is left"),
]


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def ours() -> dict[int, str]:
    """The processes that we started, directly or not, with their command lines."""
    found = {}
    for pid in marked_with(mark_of(here())):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        found[pid] = b" ".join(words).decode()
    return found


def pid_of(word: str) -> int:
    return next(pid for pid, line in ours().items() if word in line)


def is_running(word: str) -> bool:
    return any(word in line for line in ours().values())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_agent_takes_its_command_with_it(model: ModelServer, tmp_path: Path, number: signal.Signals) -> None:
    heard: list[AgentEvent] = []

    async def scenario() -> None:
        agent = build_agent("house", {"model": "openai/stand-in", "base_url": model.base_url})
        session = await agent.open(SessionSpec("r", "n", "work", tmp_path, tmp_path / "s"), heard.append)
        prompt = asyncio.create_task(session.prompt("RUN setsid sleep 1001 & exec sleep 1002"))
        await asyncio.to_thread(until, lambda: is_running("sleep 1001") and is_running("sleep 1002"))
        os.kill(pid_of("perdure agent"), number)
        with pytest.raises(AgentError):
            await prompt
        await session.close()

    asyncio.run(scenario())
    assert ours() == {}


def test_the_wire_carries_frames_only_and_its_end_ends_the_agent(tmp_path: Path) -> None:
    (tmp_path / "perdure.py").write_text("print('a module of the stage'); raise SystemExit(9)")

    async def scenario() -> tuple[bytes, int]:
        argv = [sys.executable, "-P", "-m", "perdure", "agent", "--model", "openai/x", "--sessions", str(tmp_path)]
        process = await spawn(argv, cwd=tmp_path, env=environment(), stderr_path=tmp_path / "stderr")
        await process.feed(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n')
        line = await process.stdout.read()
        code = await process.wait()
        await stop(process)
        return line, code

    line, code = asyncio.run(scenario())
    assert code == 0
    assert line.count(b"\n") == 1
    assert b'"agentInfo":{"name":"perdure-house"' in line


def test_started_by_hand_without_pipes_it_says_what_it_is_for(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "perdure", "agent", "--model", "openai/x"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: perdure agent speaks to a program")


def test_without_a_model_it_says_what_it_needs(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, str]:
        argv = [sys.executable, "-P", "-m", "perdure", "agent"]
        process = await spawn(argv, cwd=tmp_path, env=environment(), stderr_path=tmp_path / "stderr")
        code = await process.wait()
        await stop(process)
        return code, (tmp_path / "stderr").read_text()

    code, said = asyncio.run(scenario())
    assert code == 2
    assert "--model provider/model" in said
