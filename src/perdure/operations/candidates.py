"""Who may answer a stage: an agent and a model, and those that are tried when they fail for reasons of their own.

    model= of the stage's agent -> each of fallback_models= in order: a model of the same agent, or "agent:NAME"

A stage that names none takes the `fallbacks` of its agent's settings. What failed because of the stage itself (a
refusal, an answer that does not fit, a cancellation) fails with everybody, so nobody else is tried (spec/control.md 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perdure.agents.session import Agent
from perdure.events import Failure, SessionBound
from perdure.operations.stage_options import StageOptions

AGENT: Final = "agent:"

_TRY_NEXT: Final = frozenset(
    {"rate_limited", "quota_limited", "provider_unavailable", "login_required", "missing_api_key", "invalid_api_key",
     "forbidden_config", "unknown_model", "timed_out"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent with one of its models; None leaves the choice to the agent."""

    agent: Agent
    model: str | None

    def __str__(self) -> str:
        return f"{self.agent.name} with {self.model}" if self.model else self.agent.name


def candidates_of(run: Any, options: StageOptions, agent: Agent) -> tuple[Candidate, ...]:
    """In order, each once. Raises AgentUnavailable for an agent nobody knows, before anybody is asked."""
    words: Iterable[str] = options.fallback_models or getattr(agent, "fallbacks", ())
    named = [
        Candidate(run.tree.agent(word.removeprefix(AGENT)), None) if word.startswith(AGENT) else Candidate(agent, word)
        for word in words
    ]
    return tuple(dict.fromkeys([Candidate(agent, options.model), *named]))


def bound_to(candidates: Sequence[Candidate], bound: SessionBound | None) -> Candidate:
    """The one whose session was bound last; the first if that is none of them."""
    if bound is not None:
        for one in candidates:
            if (one.agent.name, one.model or "") == (bound.agent, bound.model):
                return one
    return candidates[0]


def after(failed: Candidate, failure: Failure, left: Sequence[Candidate]) -> list[Candidate]:
    """Those of `left` that may do better."""
    if failure.code in _TRY_NEXT:
        return list(left)
    if failure.code == "agent_unavailable":
        return [one for one in left if one.agent is not failed.agent]
    return []
