"""Agents by name: some exist without configuration, the unknown is named with what comes near."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from perdure.agents.registry import build_agent
from perdure.errors import AgentUnavailable, ConfigInvalid


def test_the_rehearsal_agent_exists_without_configuration() -> None:
    agent = build_agent("rehearsal", {})
    assert (agent.name, agent.kind, agent.capabilities.schema) == ("rehearsal", "rehearsal", True)


def test_a_configured_agent_keeps_its_name() -> None:
    agent = build_agent("claude", {"kind": "command", "command": ["claude", "-p"]})
    assert (agent.name, agent.kind) == ("claude", "command")


def test_an_unknown_name_is_refused_with_the_nearest_and_the_way_on() -> None:
    with pytest.raises(AgentUnavailable) as caught:
        build_agent("cluade", {}, known=["claude"])
    assert "Did you mean 'claude'?" in caught.value.message
    assert "[tool.perdure.agents.cluade]" in caught.value.message
    assert {"claude", "house", "local", "rehearsal"} <= set(caught.value.details["known"])


def test_an_unknown_kind_is_refused_with_the_nearest() -> None:
    with pytest.raises(AgentUnavailable, match="Did you mean 'command'"):
        build_agent("x", {"kind": "comand"})


def test_settings_without_a_kind_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="needs a kind"):
        build_agent("x", {"command": ["true"]})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "rehearsal", "sead": 1}, "sead"),
        ({"kind": "rehearsal", "seed": "1"}, "whole number"),
        ({"kind": "rehearsal", "fallbacks": "small"}, "fallbacks must be a list"),
        ({"kind": "command"}, "command must be a list"),
        ({"kind": "command", "command": "claude -p"}, "command must be a list"),
        ({"kind": "command", "command": ["x"], "prompt": "file"}, '"argument" or "stdin"'),
        ({"kind": "command", "command": ["x"], "env": "HOME"}, "list of names"),
        ({"kind": "command", "command": ["x"], "timeout": 0}, "seconds above 0"),
        ({"kind": "command", "command": ["x"], "model": 3}, "model must be a name"),
        ({"kind": "command", "command": ["x"], "commands": []}, "unknown setting 'commands'"),
        ({"kind": "local", "threads": 0}, "threads must be a whole number"),
        ({"kind": "local", "weights": "nowhere.gguf"}, "no weights file"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        build_agent("x", settings)
    assert said in caught.value.message


def test_the_registry_imports_no_kind_by_itself() -> None:
    code = "import sys, perdure.agents.registry; print([m for m in sys.modules if m.startswith('perdure.agents.')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "['perdure.agents.session', 'perdure.agents.registry']"


def test_whom_to_ask_instead_is_a_setting_of_every_kind() -> None:
    assert build_agent("rehearsal", {"fallbacks": ["agent:local"]}).fallbacks == ("agent:local",)  # type: ignore[attr-defined]
