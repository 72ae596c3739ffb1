"""Agents that misbehave, as real processes: each ends in a clear failure, and nothing of it is left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp import session as session_module
from perdure.agents.acp.session import AcpSession
from perdure.agents.session import Turn
from perdure.errors import AgentError, AgentProtocolError, AgentUnavailable, TimedOut
from perdure.failures import classify
from perdure.host.census import mark_of, marked_with
from perdure.host.identity import here
from tests.bed.acp import Bed


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Any:
    yield
    assert marked_with(mark_of(here())) == ()


def test_an_agent_that_floods_its_standard_error_is_not_held_up(bed: Bed) -> None:
    assert bed.say("FLOOD") == "Flooded."
    (file,) = bed.scratch.glob("*.stderr")
    assert file.stat().st_size == 1024 * 1024


def test_an_agent_that_prints_garbage_in_mid_turn_fails_the_turn_and_is_quoted(bed: Bed) -> None:
    with pytest.raises(AgentProtocolError, match="this is not the protocol"):
        bed.say("GARBAGE")


def test_a_program_that_does_not_speak_the_protocol_is_told_apart_from_a_slow_one(bed: Bed) -> None:
    with pytest.raises(AgentProtocolError, match="This program is for people"):
        bed.say("Hello.", "--garbage", start_timeout=2)


def test_an_agent_that_hangs_at_its_start_is_ended_when_its_time_is_up(bed: Bed) -> None:
    with pytest.raises(TimedOut, match=r"opened no session within 0\.3 s.*start_timeout"):
        bed.say("Hello.", "--hang", start_timeout=0.3)


def test_an_agent_that_dies_in_mid_turn_leaves_its_exit_code_and_its_last_words(bed: Bed) -> None:
    with pytest.raises(AgentError, match=r"ended \(exit code 7\)\. It complained: the ceiling came down") as caught:
        bed.say("DIE")
    assert classify(caught.value, "provider").code == "provider_unavailable"


def test_a_descendant_that_holds_the_pipes_delays_neither_the_failure_nor_the_end(bed: Bed) -> None:
    began = time.monotonic()
    with pytest.raises(AgentError, match="exit code 7"):
        bed.say("FORK DIE")
    assert time.monotonic() - began < 5


def test_an_agent_that_does_not_obey_a_cancel_is_killed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CANCEL_SECONDS", 0.1)

    async def scenario(session: AcpSession) -> Turn:
        prompt = asyncio.create_task(session.prompt("DEAF"))
        while not bed.heard:
            await asyncio.sleep(0.01)
        await session.cancel()
        assert marked_with(mark_of(here())) == ()
        with pytest.raises(AgentError, match="was ended because it did not stop"):
            await session.prompt("Hello?")
        return await prompt

    assert bed.play(scenario).stop == "cancelled"


def test_a_second_cancellation_does_not_leave_a_deaf_agent_at_work(bed: Bed) -> None:
    async def scenario(session: AcpSession) -> None:
        prompt = asyncio.create_task(session.prompt("DEAF"))
        while not bed.heard:
            await asyncio.sleep(0.01)
        prompt.cancel()
        await asyncio.sleep(0.01)
        prompt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await prompt
        assert marked_with(mark_of(here())) == ()

    bed.play(scenario)


def test_a_cancelled_opening_leaves_no_agent(bed: Bed) -> None:
    async def scenario() -> None:
        opening = asyncio.create_task(bed.open("--hang"))
        while not list(bed.scratch.glob("*.frames.jsonl")) or not bed.frames("out"):
            await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert marked_with(mark_of(here())) == ()

    asyncio.run(scenario())


def test_a_command_that_is_not_installed_is_told_with_what_installs_it(bed: Bed, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(bed.cwd))
    with pytest.raises(AgentUnavailable, match="npm install -g opencode-ai"):
        bed.say("Hello.", profile="opencode", command=["opencode", "acp"])


def test_a_command_that_the_agent_left_running_ends_with_the_turn(bed: Bed) -> None:
    async def scenario(session: AcpSession) -> None:
        prompt = asyncio.create_task(session.prompt("RUN echo $$ > pid; exec sleep 1000"))
        while not (bed.cwd / "pid").exists() or not (bed.cwd / "pid").read_text().strip():
            await asyncio.sleep(0.01)
        pid = int((bed.cwd / "pid").read_text())
        assert pid in marked_with(mark_of(here()))
        await session.cancel()
        assert (await prompt).stop == "cancelled"
        assert pid not in marked_with(mark_of(here()))

    bed.play(scenario)
