"""A checkup: how far an agent comes, what to do about it, and that its session is closed whatever happens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.agents import doctor
from perdure.agents.doctor import Checkup, check_up
from perdure.agents.session import AgentEvent, Capabilities, SessionSpec, Turn
from perdure.errors import AgentError, AgentUnavailable, ExtraMissing


class Tools:
    """The engine's tools; the agent looks at them when it is opened, when it is asked, or never."""

    answered = False


class Session:
    session_id = "one"

    def __init__(self, agent: Agent, spec: SessionSpec) -> None:
        self.agent, self.spec = agent, spec

    async def prompt(self, text: str) -> Turn:
        if isinstance(self.agent.reply, Exception):
            raise self.agent.reply
        if self.agent.looks == "asked":
            self.spec.tools.answered = True  # type: ignore[union-attr, misc]
        return Turn("end_turn", self.agent.reply)

    async def steer(self, text: str) -> bool:
        return False

    async def cancel(self) -> None:
        pass

    async def close(self) -> None:
        self.agent.closed += 1


class Agent:
    name, kind = "tested", "fake"
    capabilities = Capabilities(reopen=True, mcp=True)

    def __init__(self, reply: str | Exception = "ready", looks: str = "opened", opens: Any = None) -> None:
        self.reply, self.looks, self.opens, self.closed = reply, looks, opens, 0

    async def open(self, spec: SessionSpec, emit: Any) -> Session:
        emit(AgentEvent("note", "hello"))
        if isinstance(self.opens, Exception):
            raise self.opens
        if self.opens == "never":
            await asyncio.Event().wait()
        if self.looks == "opened":
            spec.tools.answered = True  # type: ignore[union-attr, misc]
        return Session(self, spec)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "START_SECONDS", 0.02)
    monkeypatch.setattr(doctor, "TOOLS_SECONDS", 0)


def checkup(agent: Agent, question: str | None = None) -> Checkup:
    spec = SessionSpec("run", "node", "doctor", Path("/"), Path("/nonexistent"), tools=Tools())  # type: ignore[arg-type]
    return asyncio.run(check_up(agent, spec, question))  # type: ignore[arg-type]


def test_an_agent_that_starts_and_sees_the_tools_is_ready_though_nobody_knows_its_login() -> None:
    agent = Agent()
    found = checkup(agent)
    assert (found.state, found.has_tools, found.can_reopen, found.is_logged_in) == ("ready", True, True, None)
    assert agent.closed == 1


def test_an_agent_that_never_looks_at_the_tools_is_limited_and_the_advice_says_what_follows() -> None:
    found = checkup(Agent(looks="never"))
    assert (found.state, found.has_tools) == ("limited", False)
    assert "JSON" in found.advice


def test_a_question_finds_out_the_login_and_gives_the_tools_another_chance() -> None:
    found = checkup(Agent(looks="asked"), "Are you there?")
    assert (found.state, found.is_logged_in, found.has_tools) == ("ready", True, True)


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        (AgentError("Authentication required", code="login_required"), "login"),
        (AgentError("HTTP 500: no"), "broken"),
    ],
)
def test_what_fails_at_the_question_is_told_and_the_session_is_closed(problem: AgentError, state: str) -> None:
    agent = Agent(reply=problem)
    found = checkup(agent, "Are you there?")
    assert found.state == state
    assert problem.message in found.advice
    assert agent.closed == 1


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        (AgentUnavailable("There is no command.", command="agent"), "missing"),
        (ExtraMissing("Install it.", extra="local"), "missing"),
        (AgentUnavailable("It needs a model."), "broken"),
        (AgentError("Log in first", code="login_required"), "login"),
    ],
)
def test_what_fails_at_the_start_is_told(problem: Exception, state: str) -> None:
    assert checkup(Agent(opens=problem)).state == state


def test_an_agent_that_hangs_at_its_start_is_given_up() -> None:
    found = checkup(Agent(opens="never"))
    assert (found.state, found.is_logged_in) == ("broken", None)
    assert "did not start" in found.advice
