from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib

import pytest

from perdure.config import load_config
from perdure.discovery import declared_workflows
from perdure.errors import DefinitionInvalid, NotAllowedNow
from perdure.loading import load_definition
from perdure.templates import init, new


def test_init_writes_a_commented_config_and_a_workflow(tmp_path):
    written = init(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == ["perdure.toml", ".perdure/workflows/hello.py"]
    assert load_config(tmp_path, {"HOME": str(tmp_path)}).project_dir == tmp_path.resolve()
    made = load_definition(str(written[1]), "hello")
    assert [field.description for field in made.input_fields()] == ["who is greeted"]


def test_every_example_in_the_config_is_a_setting_that_loads(tmp_path):
    config, _ = init(tmp_path)
    lines = config.read_text().splitlines()
    shown = [line.removeprefix("# ") for line in lines if line.startswith("# ") and ("= " in line or line[2] == "[")]
    settings = "\n".join(line for line in shown if not line.startswith(("Stronger", "Weaker")))
    assert set(tomllib.loads(settings)) >= {"agent", "model", "stages_max", "workflows", "database", "agents"}
    config.write_text(settings)
    load_config(tmp_path, {"HOME": str(tmp_path)})


def test_new_writes_a_workflow_and_its_test(tmp_path):
    workflow, test = new("Fix it", tmp_path)
    assert (workflow.name, test.name) == ("fix_it.py", "test_fix_it.py")
    assert [name for name, _ in declared_workflows(workflow)] == ["fix-it"]
    assert load_definition(str(workflow), "fix-it").parse_text(["goal=x"]) == {"goal": "x", "rounds": 2}
    assert "example" not in workflow.read_text() + test.read_text()


def test_generated_files_are_clean(tmp_path):
    init(tmp_path)
    new("fix-it", tmp_path)
    ruff = [sys.executable, "-m", "ruff"]
    lint = [
        *ruff,
        "check",
        "--isolated",
        "--line-length=120",
        "--select=E,F,W,UP,B,D1,RET,SIM,PT,PL,RUF,ANN",
        "--ignore=D10",
    ]
    subprocess.run([*lint, str(tmp_path)], check=True, capture_output=True)
    subprocess.run([*ruff, "format", "--isolated", "--line-length=120", "--check", str(tmp_path)], check=True)


def test_the_generated_test_passes(tmp_path, monkeypatch):
    new("made-flow", tmp_path)
    monkeypatch.syspath_prepend(tmp_path / ".perdure" / "workflows")
    module = importlib.import_module("test_made_flow")
    for name in [name for name in vars(module) if name.startswith("test_")]:
        getattr(module, name)()


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path):
    (tmp_path / "perdure.toml").write_text("mine")
    with pytest.raises(NotAllowedNow, match=r"perdure\.toml"):
        init(tmp_path)
    assert (tmp_path / "perdure.toml").read_text() == "mine"
    assert not (tmp_path / ".perdure").exists()


@pytest.mark.parametrize("name", ["", "1st", "class", "queue", "ÄÖ"])
def test_a_name_that_no_module_can_have_is_refused(tmp_path, name):
    with pytest.raises(DefinitionInvalid):
        new(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
