"""Tools of servers that the client names."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp.peer import Refused
from perdure.agents.house import toolserver
from perdure.host.census import mark_of, marked_with
from perdure.host.identity import here
from tests.bed.house import Call, Script, results_of, served

BED = str(Path(__file__).parents[3] / "bed" / "mcp_server.py")


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Any:
    yield
    assert marked_with(mark_of(here())) == ()


def server(*words: str) -> dict[str, Any]:
    return {"name": "sums", "command": sys.executable, "args": [BED, *words], "env": [{"name": "X", "value": "1"}]}


def run(script: Script, folder: Path, *servers: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with served(script, folder) as client:
            opened = await client.call("session/new", cwd=str(folder), mcpServers=list(servers))
            await client.prompt(opened["sessionId"], "Add.")

    asyncio.run(scenario())


def test_their_tools_stand_beside_ours_and_a_name_of_ours_stays_ours(tmp_path: Path) -> None:
    script = Script([Call("add", {"a": 2, "b": 3}), Call("sums_read", {}), "Five."])
    run(script, tmp_path, server())
    assert results_of(script) == ["5", "A book."]
    assert {"add", "sums_read", "read", "write", "edit", "search", "shell"} == set(script.tools)


def test_an_error_of_theirs_is_an_answer(tmp_path: Path) -> None:
    script = Script([Call("add", {"a": "two"}), Call("add", {"a": 2}), "Two."])
    run(script, tmp_path, server())
    assert results_of(script) == ["Numbers, please.", "2"]


@pytest.mark.parametrize(("word", "why"), [("dies", "closed its output"), ("dumb", "said nothing")])
def test_a_server_that_does_not_answer_fails_the_session_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, why: str
) -> None:
    monkeypatch.setattr(toolserver, "START_SECONDS", 0.2)
    with pytest.raises(Refused, match=f"'sums' does not answer: .*{why}"):
        run(Script([]), tmp_path, server(word))


def test_a_server_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="'sums' cannot start: There is no command"):
        run(Script([]), tmp_path, {"name": "sums", "command": "no-such-command", "args": [], "env": []})
