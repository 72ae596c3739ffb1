"""Agents by name. A kind's module is imported when the first agent of that kind is built: no agent costs start-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final, cast

from perdure.agents.session import Agent
from perdure.errors import AgentUnavailable, ConfigInvalid

_KINDS: Final = {
    "acp": "perdure.agents.acp.agent",
    "command": "perdure.agents.command",
    "house": "perdure.agents.house.agent",
    "local": "perdure.agents.local",
    "rehearsal": "perdure.agents.rehearsal",
}

PROFILED: Final = ("claude", "codex", "gemini", "kimi", "opencode", "pi", "qwen")  # of kind acp, by their own names
BUILT_IN: Final = ("house", "local", "rehearsal", *PROFILED)  # exist by name without any configuration


def build_agent(name: str, settings: Mapping[str, Any], known: Iterable[str] = ()) -> Agent:
    """The agent called `name` with its settings from the configuration (`kind`, `fallbacks`, what that kind takes).

    `known` are the configured names, for the suggestion in the error. Raises AgentUnavailable for a name or kind nobody
    knows, ConfigInvalid for settings that do not fit the kind.
    """
    names = sorted({*known, *BUILT_IN})
    if not settings and name not in BUILT_IN:
        raise AgentUnavailable(
            f"No agent is called {name!r}.{_nearest(name, names)} Known: {', '.join(names)}. Name one under "
            f"[tool.perdure.agents.{name}] in pyproject.toml (or [agents.{name}] in perdure.toml).",
            agent=name,
            known=names,
        )
    kind = settings.get("kind", "acp" if name in PROFILED else name if name in BUILT_IN else None)
    if kind is None:
        raise ConfigInvalid(f"Agent {name!r} needs a kind: one of {', '.join(sorted(_KINDS))}.", agent=name)
    if kind not in _KINDS:
        raise AgentUnavailable(
            f"Agent {name!r} has the kind {kind!r}, which nobody knows.{_nearest(str(kind), list(_KINDS))} "
            f"Kinds: {', '.join(sorted(_KINDS))}.",
            agent=name,
            kind=kind,
        )
    rest = {key: value for key, value in settings.items() if key not in {"kind", "fallbacks"}}
    agent = import_module(_KINDS[kind]).build(name, rest)
    agent.fallbacks = _fallbacks(name, settings.get("fallbacks", []))
    return cast("Agent", agent)


def _fallbacks(name: str, given: Any) -> tuple[str, ...]:
    """Who is asked instead, by stages that name nobody: models of this agent, or "agent:NAME"."""
    if not isinstance(given, list) or not all(isinstance(word, str) and word for word in given):
        raise ConfigInvalid(
            f'Agent {name!r}: fallbacks must be a list of models or "agent:NAME", got {given!r:.80}.', agent=name
        )
    return tuple(given)


def _nearest(word: str, words: list[str]) -> str:
    found = get_close_matches(word, words, 1)
    return f" Did you mean {found[0]!r}?" if found else ""
