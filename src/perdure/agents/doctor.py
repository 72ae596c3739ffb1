"""What an agent can really do here, found out by starting it once.

    configured -> installed -> started -> logged in -> the engine's tools answer

A checkup ends at the first of these that is not so and says what to do about it. Nothing is prompted, so it costs
nothing, unless a question is given; an agent that logs in only when it is prompted is found out by that alone. The law:
whatever happens, the session is closed and the checkup has a bound.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from perdure.agents.acp.agent import AcpAgent
from perdure.agents.acp.session import AcpSession
from perdure.agents.session import Agent, AgentSession, EngineTools, SessionSpec
from perdure.errors import AgentUnavailable, ExtraMissing, PerdureError, TimedOut
from perdure.failures import classify

START_SECONDS: Final = 90.0  # more than an agent's own bound, whose error says more
TOOLS_SECONDS: Final = 15.0  # from the start of the session to the first sign that its agent sees our tools
ANSWER_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.05

State = Literal["ready", "limited", "login", "missing", "broken"]

_LOGIN_CODES: Final = frozenset({"login_required", "missing_api_key", "invalid_api_key"})
_NO_TOOLS: Final = (
    "It started, but did not look at the engine's tools: stages with a schema fall back to JSON in its answer."
)


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found. None: not found out, or there is nothing to find out."""

    name: str
    kind: str
    state: State
    advice: str = ""  # what is wrong, and what to do about it
    version: str | None = None
    is_logged_in: bool | None = None
    has_tools: bool | None = None
    can_reopen: bool | None = None


async def check_up(agent: Agent, spec: SessionSpec, question: str | None = None) -> Checkup:
    """Start the agent, see what it can do, ask it the question if there is one, and end it. Raises no PerdureError."""
    try:
        async with asyncio.timeout(START_SECONDS):
            session = await agent.open(spec, lambda _event: None)
    except TimeoutError:
        why = f"It did not start within {START_SECONDS:g} s. Start its command by hand to see what it waits for."
        return Checkup(agent.name, agent.kind, "broken", why)
    except PerdureError as error:
        return failed(agent.name, agent.kind, error, _login(agent))
    try:
        try:
            return await _seen(agent, session, spec.tools, question)
        finally:
            await session.close()
    except PerdureError as error:
        return failed(agent.name, agent.kind, error, _login(agent))


def failed(name: str, kind: str, error: PerdureError, login: str = "") -> Checkup:
    """The checkup of an agent that could not be built, started or asked. `login` says how to log in."""
    if classify(error, "provider").code in _LOGIN_CODES:
        return Checkup(name, kind, "login", f"{error.message.rstrip('.')}. {login}".strip(), is_logged_in=False)
    is_missing = isinstance(error, ExtraMissing) or (isinstance(error, AgentUnavailable) and "command" in error.details)
    return Checkup(name, kind, "missing" if is_missing else "broken", error.message)


async def _seen(agent: Agent, session: AgentSession, tools: EngineTools | None, question: str | None) -> Checkup:
    version, can_reopen = None, agent.capabilities.reopen
    if isinstance(session, AcpSession):
        said = session.agreed
        version, can_reopen = said.version or None, can_reopen and (said.resume or said.load)
    is_logged_in = None
    if question is not None:
        await _asked(session, question)
        is_logged_in = True
    has_tools = await _answered(tools) if tools is not None and agent.capabilities.mcp else None
    state: State = "limited" if has_tools is False else "ready"
    return Checkup(
        agent.name,
        agent.kind,
        state,
        _NO_TOOLS if state == "limited" else "",
        version=version,
        is_logged_in=is_logged_in,
        has_tools=has_tools,
        can_reopen=can_reopen,
    )


def _login(agent: Agent) -> str:
    return agent.settings.profile.login if isinstance(agent, AcpAgent) else ""


async def _answered(tools: EngineTools) -> bool:
    """Whether the agent has looked at the engine's tools; it does so by itself once its session is open."""
    for _ in range(round(TOOLS_SECONDS / LOOK_SECONDS)):
        if tools.answered:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return tools.answered


async def _asked(session: AgentSession, question: str) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await session.prompt(question)
    except TimeoutError as error:
        raise TimedOut(f"It did not answer a short question within {ANSWER_SECONDS:g} s.") from error
