"""The house agent's settings, and the command they become."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.registry import build_agent
from perdure.agents.session import SessionSpec
from perdure.errors import AgentUnavailable, ConfigInvalid


def house(**settings: Any) -> Any:
    return build_agent("helper", {"kind": "house", **settings})


def test_it_exists_by_its_name_without_configuration() -> None:
    agent = build_agent("house", {})
    assert (agent.kind, agent.capabilities.mcp, agent.capabilities.reopen) == ("house", True, True)


def test_the_command_names_models_in_order_and_variables_but_never_a_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERDURE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("MY_KEY", "sk-secret")
    agent = house(
        model="openai/a", fallback_models=["anthropic/b:high"], base_url="http://127.0.0.1:1/v1", api_key="MY_KEY",
        env=["SHOWN"], steps_max=9,
    )  # fmt: skip
    assert agent.settings.profile.command == (
        sys.executable, "-P", "-m", "perdure", "agent", "--sessions", str(tmp_path / "house"),
        "--model", "openai/a", "--model", "anthropic/b:high", "--env", "SHOWN",
        "--base-url", "http://127.0.0.1:1/v1", "--api-key", "MY_KEY", "--steps-max", "9",
    )  # fmt: skip
    assert agent.environment()["MY_KEY"] == "sk-secret"


def test_variables_it_does_not_need_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    seen = house(model="openai/a").environment()
    assert "AWS_SECRET_ACCESS_KEY" not in seen
    assert seen["OPENAI_API_KEY"] == "sk-1"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "gpt-5.2"}, "names no model"),
        ({"model": 5}, "names no model"),
        ({"fallback_models": "openai/a"}, "fallback_models must be a list"),
        ({"fallback_models": ["a"]}, "'a' names no model"),
        ({"base_url": 1}, "base_url must be a text"),
        ({"permissions": "perhaps"}, "permissions must be one of allow, ask, deny"),
        ({"env": [1]}, "env must be a list"),
        ({"steps_max": True}, "steps_max must be"),
        ({"steps": 3}, "unknown setting 'steps'"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_words(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        house(**settings)


@pytest.mark.parametrize(("model", "said"), [(None, "needs a model"), ("gpt", "names no model")])
def test_a_stage_without_a_model_is_told_before_anything_starts(tmp_path: Path, model: str | None, said: str) -> None:
    spec = SessionSpec("run", "node", "stage", tmp_path, tmp_path / "scratch", model=model)
    with pytest.raises(AgentUnavailable, match=said):
        asyncio.run(house().open(spec, lambda _event: None))
    assert not (tmp_path / "scratch").exists()
