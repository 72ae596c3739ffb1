"""An agent's settings: profiles, what changes them, and what does not fit."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp.agent import _READERS, build
from perdure.agents.acp.profiles import FOLDER, PROFILES, Endpoint
from perdure.agents.registry import PROFILED, build_agent
from perdure.errors import ConfigInvalid
from tests.bed.acp import Bed

ENDPOINT = Endpoint(base_url="http://127.0.0.1:8080", key="the-key", model="tiny")


def test_every_profile_is_an_agent_by_its_own_name() -> None:
    assert tuple(sorted(PROFILES)) == PROFILED
    for name in PROFILED:
        agent = build_agent(name, {})
        assert (agent.name, agent.kind) == (name, "acp")
        assert agent.capabilities.reopen
        assert agent.capabilities.mcp == (name != "pi")


def test_the_page_about_agents_has_every_profile_and_every_setting() -> None:
    page = (Path(__file__).parents[4] / "docs" / "agents.md").read_text()
    for name, profile in PROFILES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert f"`{' '.join(profile.command)}`" in row
        assert f"`{profile.install}`" in row
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    settings = tomllib.loads(block)["agents"]["mine"]
    assert build_agent("mine", settings).kind == "acp"
    assert settings.keys() | {"profile"} == {"kind", *_READERS}


def test_every_profile_says_how_to_install_and_log_in_and_which_command_runs() -> None:
    for name, profile in PROFILES.items():
        assert profile.command, name
        assert profile.install.startswith("npm install -g "), name
        assert profile.login.startswith("Run: "), name


def test_a_profile_is_named_or_taken_from_the_agents_name_and_changed_by_the_settings() -> None:
    agent = build("mine", {"profile": "claude", "env": ["MORE"], "set": {"A": "b"}, "mode": "plan", "model": "opus"})
    profile = agent.settings.profile
    assert profile.command == ("claude-agent-acp",)
    assert {"ANTHROPIC_API_KEY", "MORE"} <= set(profile.env)
    assert (profile.set["A"], profile.set["ENABLE_TOOL_SEARCH"]) == ("b", "false")
    assert (profile.mode, agent.settings.model) == ("plan", "opus")


def test_an_agent_that_is_to_ask_starts_in_a_mode_that_does() -> None:
    assert build("codex", {}).settings.profile.mode == "agent-full-access"
    assert build("codex", {"permissions": "ask"}).settings.profile.mode == "read-only"
    assert build("codex", {"permissions": "ask", "mode": "agent"}).settings.profile.mode == "agent"


def test_a_command_needs_no_profile() -> None:
    profile = build("other", {"command": ["other", "--acp"]}).settings.profile
    assert (profile.command, profile.mode, profile.env) == (("other", "--acp"), None, ())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "command is missing, and no profile is named"),
        ({"profile": "claud"}, "profile must be one of opencode"),
        ({"command": "claude"}, "command must be a list of words"),
        ({"command": []}, "command must be a list of words"),
        ({"command": ["x"], "comand": 1}, "unknown setting 'comand' (did you mean 'command'?)"),
        ({"command": ["x"], "env": "HOME"}, "env must be a list"),
        ({"command": ["x"], "set": {"A": 1}}, "set must be a table of texts"),
        ({"command": ["x"], "files": {"../a": ""}}, "files names '../a'"),
        ({"command": ["x"], "permissions": "yes"}, "permissions must be allow, ask or deny"),
        ({"command": ["x"], "fs": "no"}, "fs must be true or false"),
        ({"command": ["x"], "start_timeout": 0}, "start_timeout must be seconds above 0"),
        ({"command": ["x"], "endpoint": {}}, "endpoint must be a table with base_url"),
        ({"command": ["x"], "endpoint": {"base_url": "u", "api": "x"}}, "must be openai or anthropic"),
        ({"command": ["x"], "endpoint": {"base_url": "u", "key": "NOT_SET_ANYWHERE"}}, "which is not set"),
    ],
)
def test_settings_that_do_not_fit_are_told(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        build("mine", settings)
    assert said in caught.value.message


def test_all_that_does_not_fit_is_told_at_once() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        build("mine", {"command": [], "fs": 1, "x": 2})
    assert len(caught.value.details["problems"]) == 3


# --- endpoints


def test_no_profile_changes_anything_without_an_endpoint() -> None:
    for profile in PROFILES.values():
        arranged = profile.arrange(None, False)
        assert (arranged.set, arranged.files, arranged.by_protocol) == ({}, {}, False)


@pytest.mark.parametrize("name", PROFILED)
def test_every_profile_can_be_pointed_at_an_endpoint(name: str) -> None:
    arranged = PROFILES[name].arrange(ENDPOINT, False)
    told = " ".join([*arranged.set.values(), *arranged.files.values()])
    assert arranged.by_protocol or "http://127.0.0.1:8080" in told
    assert "tiny" in told


def test_opencode_is_told_of_its_endpoint_and_to_ask_in_one_file() -> None:
    arranged = PROFILES["opencode"].arrange(ENDPOINT, True)
    config = json.loads(arranged.files["opencode.json"])
    assert config["provider"]["endpoint"]["options"]["baseURL"] == "http://127.0.0.1:8080/v1"
    assert config["permission"]["edit"] == "ask"
    assert arranged.set["OPENCODE_CONFIG"] == f"{FOLDER}/opencode.json"
    assert "the-key" not in arranged.files["opencode.json"]


def test_the_stages_model_is_the_one_an_endpoint_is_asked_for(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    told = {"profile": "qwen", "endpoint": {"base_url": "http://127.0.0.1:1", "model": "tiny"}}
    answer = bed.say("RUN env", spec={"model": "huge:high"}, **told)
    assert "OPENAI_MODEL=huge" in answer.splitlines()
    assert bed.notes() == []


def test_a_key_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "of-mine")
    agent = build("claude", {"endpoint": {"base_url": "http://x", "api": "anthropic", "key": "A_KEY"}})
    assert agent.settings.endpoint == Endpoint(base_url="http://x", api="anthropic", key="of-mine")


def test_no_import_of_this_package_is_heavy() -> None:
    source = Path(build.__code__.co_filename).parent
    imported = {line.split()[1].split(".")[0] for file in source.glob("*.py") for line in file.read_text().splitlines()
                if line.startswith(("import ", "from "))}  # fmt: skip
    assert not imported & {"acp", "mcp", "pydantic", "httpx"}
