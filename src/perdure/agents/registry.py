"""Agents by name. A kind's module is imported when the first agent of that kind is built: no agent costs start-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final, cast

from perdure.agents.session import Agent
from perdure.errors import AgentUnavailable, ConfigInvalid, NotAvailable

_KINDS: Final = {
    "command": "perdure.agents.command",
    "local": "perdure.agents.local",
    "rehearsal": "perdure.agents.rehearsal",
}
_LATER: Final = ("acp", "house")  # the Agent Client Protocol: their modules go beside these and into _KINDS

BUILT_IN: Final = ("local", "rehearsal")  # exist by name without any configuration


def build_agent(name: str, settings: Mapping[str, Any], known: Iterable[str] = ()) -> Agent:
    """The agent called `name` with its settings from the configuration (`kind` and what that kind takes).

    `known` are the configured names, for the suggestion in the error. Raises AgentUnavailable for a name or kind nobody
    knows, NotAvailable for kinds to come, ConfigInvalid for settings that do not fit the kind.
    """
    names = sorted({*known, *BUILT_IN})
    if not settings and name not in BUILT_IN:
        raise AgentUnavailable(
            f"No agent is called {name!r}.{_nearest(name, names)} Known: {', '.join(names)}. Name one under "
            f"[tool.perdure.agents.{name}] in pyproject.toml (or [agents.{name}] in perdure.toml).",
            agent=name,
            known=names,
        )
    kind = settings.get("kind", name if name in BUILT_IN else None)
    if kind is None:
        raise ConfigInvalid(f"Agent {name!r} needs a kind: one of {', '.join(sorted(_KINDS))}.", agent=name)
    if kind in _LATER:
        raise NotAvailable(
            f"Agent {name!r} is of kind {kind!r}: coding agents over the Agent Client Protocol come with a later "
            "version. Until then use kind = 'command' with a command line that prints its answer.",
            agent=name,
            kind=kind,
        )
    if kind not in _KINDS:
        raise AgentUnavailable(
            f"Agent {name!r} has the kind {kind!r}, which nobody knows.{_nearest(str(kind), list(_KINDS))} "
            f"Kinds: {', '.join(sorted(_KINDS))}.",
            agent=name,
            kind=kind,
        )
    rest = {key: value for key, value in settings.items() if key != "kind"}
    return cast("Agent", import_module(_KINDS[kind]).build(name, rest))


def _nearest(word: str, words: list[str]) -> str:
    found = get_close_matches(word, words, 1)
    return f" Did you mean {found[0]!r}?" if found else ""
