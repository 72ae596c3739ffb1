"""The command agent: how prompt, model and earlier turns reach the command line. What processes do is in contract."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.command import build
from perdure.agents.session import AgentEvent, SessionSpec, Turn
from perdure.errors import AgentError, AgentProtocolError, AgentUnavailable, TimedOut
from perdure.failures import classify

SHOW = "import sys; print('|'.join(sys.argv[1:]), end=''); print('<' + sys.stdin.read() + '>')"


def spec(folder: Path, **more: Any) -> SessionSpec:
    return SessionSpec("run-1", "node-1", "review", folder, folder / "scratch", **more)


async def ask(settings: dict[str, Any], at: SessionSpec, *prompts: str) -> list[Turn]:
    session = await build("cli", settings).open(at, lambda _event: None)
    try:
        return [await session.prompt(text) for text in prompts]
    finally:
        await session.close()


@pytest.mark.parametrize(
    ("words", "more", "shown"),
    [
        ([], {}, "hello there<>"),
        ([], {"prompt": "stdin"}, "<hello there>"),
        (["--ask={prompt}", "-q"], {}, "--ask=hello there|-q<>"),
        (["--ask={prompt}"], {"prompt": "stdin"}, "--ask=hello there<>"),
        (["-m", "{model}"], {"model": "small"}, "-m|small|hello there<>"),
    ],
)
def test_the_prompt_reaches_the_command_where_the_settings_say(
    tmp_path: Path, words: list[str], more: dict[str, Any], shown: str
) -> None:
    turns = asyncio.run(ask({"command": [sys.executable, "-c", SHOW, *words], **more}, spec(tmp_path), "hello there"))
    assert turns[0].text == shown


def test_a_later_turn_is_given_the_earlier_ones(tmp_path: Path) -> None:
    turns = asyncio.run(ask({"command": ["cat"], "prompt": "stdin"}, spec(tmp_path), "first", "second"))
    assert turns[0].text == "first"
    assert "You were asked:\nfirst" in turns[1].text
    assert turns[1].text.endswith("Now:\n\nsecond")


def test_the_command_sees_allowed_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("CHOSEN", "yes")
    turns = asyncio.run(ask({"command": ["env"], "prompt": "stdin", "env": ["CHOSEN"]}, spec(tmp_path), "x"))
    assert "CHOSEN=yes" in turns[0].text
    assert "PATH=" in turns[0].text
    assert "SECRET_TOKEN" not in turns[0].text


def test_a_failed_command_tells_exit_code_and_the_end_of_its_stderr(tmp_path: Path) -> None:
    settings = {"command": ["sh", "-c", "echo partial; seq 9000 >&2; echo 'rate limit exceeded' >&2; exit 7"]}
    with pytest.raises(AgentError, match="exit code 7: rate limit exceeded") as caught:
        asyncio.run(ask(settings, spec(tmp_path), "x"))
    failure = classify(caught.value, "provider")
    assert (failure.code, failure.exit_code, failure.stdout) == ("rate_limited", 7, "partial\n")
    assert failure.stderr.endswith("rate limit exceeded")
    assert len(failure.stderr) <= 4096


def test_stderr_of_one_turn_is_no_evidence_against_the_next(tmp_path: Path) -> None:
    said: list[AgentEvent] = []

    async def scenario() -> None:
        script = "test -e done && { echo ok; exit; }; touch done; echo complaint >&2; echo ok"
        session = await build("cli", {"command": ["sh", "-c", script]}).open(spec(tmp_path), said.append)
        await session.prompt("one")
        await session.prompt("two")

    asyncio.run(scenario())
    assert [event.text for event in said if event.kind == "stderr"] == ["complaint"]


def test_an_end_without_an_answer_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(AgentProtocolError, match="printed nothing"):
        asyncio.run(ask({"command": ["true"]}, spec(tmp_path), "x"))


def test_a_signal_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="signal 9"):
        asyncio.run(ask({"command": ["sh", "-c", "kill -9 $$"]}, spec(tmp_path), "x"))


def test_a_turn_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TimedOut, match=r"longer than 0\.05 s"):
        asyncio.run(ask({"command": ["sleep", "1000"], "timeout": 0.05, "prompt": "stdin"}, spec(tmp_path), "x"))


def test_a_missing_command_is_refused_when_the_session_opens(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable, match="no-such-agent"):
        asyncio.run(ask({"command": ["no-such-agent"]}, spec(tmp_path)))


def test_a_prompt_too_long_for_an_argument_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable, match='prompt = "stdin"'):
        asyncio.run(ask({"command": ["echo"]}, spec(tmp_path), "x" * 3_000_000))


def test_a_model_is_asked_for_where_the_command_needs_one_and_noted_where_it_takes_none(tmp_path: Path) -> None:
    said: list[AgentEvent] = []
    with pytest.raises(AgentUnavailable, match="needs a model"):
        asyncio.run(ask({"command": ["echo", "{model}"]}, spec(tmp_path)))
    asyncio.run(build("cli", {"command": ["echo"]}).open(spec(tmp_path, model="big"), said.append))
    assert "takes no model" in said[0].text


def test_output_is_shown_while_it_comes(tmp_path: Path) -> None:
    said: list[AgentEvent] = []

    async def scenario() -> Turn:
        session = await build("cli", {"command": ["printf", "a\xe9b"], "prompt": "stdin"}).open(
            spec(tmp_path), said.append
        )
        return await session.prompt("x")

    assert asyncio.run(scenario()).text == "a\xe9b"
    assert "".join(event.text for event in said if event.kind == "text") == "a\xe9b"
