from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config import Config, data_folder, load_config
from perdure.errors import ConfigInvalid
from perdure.trust import trust


@pytest.fixture
def place(tmp_path):
    """A user's home with a project in it."""
    return Place(tmp_path)


class Place:
    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "work" / "project"
        self.inner = self.project / "src" / "deep"
        self.inner.mkdir(parents=True)
        self.environ = {"HOME": str(self.home)}

    def user(self, text: str) -> None:
        folder = self.home / ".config" / "perdure"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)

    def load(self, **flags) -> Config:
        return load_config(self.inner, self.environ, flags)


def test_without_anything_the_defaults_hold(place):
    config = place.load()
    assert config.data_dir == place.home / ".local/share/perdure"
    assert config.config_dir == place.home / ".config/perdure"
    assert config.database == str(config.data_dir / "perdure.db")
    assert (config.agent, config.stages_max, config.project_dir) == (None, 4, None)


def test_flags_beat_environment_beats_project_beats_user(place):
    seen = []
    place.user("stages_max = 5")
    seen.append(place.load().stages_max)
    (place.project / "pyproject.toml").write_text("[tool.perdure]\nstages_max = 6")
    seen.append(place.load().stages_max)
    (place.project / "perdure.toml").write_text("stages_max = 7")
    seen.append(place.load().stages_max)
    place.environ["PERDURE_STAGES_MAX"] = "8"
    seen.append(place.load(stages_max=None).stages_max)
    seen.append(place.load(stages_max=9).stages_max)
    assert seen == [5, 6, 7, 8, 9]
    assert place.load().sources["stages_max"] == "environment"


def test_the_nearest_folder_that_looks_like_a_project_is_the_project(place):
    (place.project.parent / "perdure.toml").write_text("stages_max = 2")
    (place.inner / "pyproject.toml").write_text("[project]\nname = 'x'")
    assert place.load().project_dir == place.project.parent
    (place.project / ".git").mkdir()
    assert place.load().project_dir == place.project
    assert place.load().stages_max == 4
    (place.inner / ".perdure").mkdir()
    assert place.load().project_dir == place.inner


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stage_max = 4", ["perdure.toml", "`stage_max`", "`stages_max`"]),
        ("stages_max = 'many'", ["perdure.toml", "stages_max", "whole number", "'many'"]),
        ("stages_max = '4'", ["stages_max"]),
        ("stages_max = true", ["stages_max"]),
        ("stages_max = 0", ["stages_max"]),
        ("agent = 3", ["agent"]),
        ("workflows = 'a.py'", ["workflows"]),
        ("workflows = [1]", ["workflows"]),
        ("agents = 1", ["agents"]),
        ("[agents.x]\nkind = 1", ["agents.x.kind"]),
        ("[agents]\nx = 'y'", ["agents.x"]),
        ("stages_max =", ["perdure.toml", "TOML"]),
        ("lease_renew_ms = 80000", ["lease_renew_ms", "lease_timeout_ms"]),
    ],
)
def test_a_wrong_setting_is_refused_with_file_and_key(place, text, said):
    (place.project / "perdure.toml").write_text(text)
    with pytest.raises(ConfigInvalid) as refusal:
        place.load()
    for part in said:
        assert part in refusal.value.message


def test_all_problems_of_all_files_are_told_at_once(place):
    place.user("agnet = 'x'")
    (place.project / "perdure.toml").write_text("stages_max = -1\nmodell = 'x'")
    place.environ["PERDURE_LEASE_RENEW_MS"] = "soon"
    with pytest.raises(ConfigInvalid) as refusal:
        place.load()
    assert len(refusal.value.details["problems"]) == 4


def test_a_misspelt_variable_is_refused_and_other_variables_are_left_alone(place):
    place.environ |= {"PERDURE_GROUP": "x", "PERDURE_DATA_DIR": "/data", "PERDURE_AGENT": ""}
    assert place.load().data_dir == Path("/data")
    place.environ["PERDURE_STAGE_MAX"] = "8"
    with pytest.raises(ConfigInvalid, match="PERDURE_STAGES_MAX"):
        place.load()
    del place.environ["PERDURE_STAGE_MAX"]
    place.environ["PERDURE_AGENTS"] = "x"
    with pytest.raises(ConfigInvalid, match=r"perdure\.toml"):
        place.load()


def test_lists_in_the_environment_are_separated_like_path(place):
    place.environ["PERDURE_LINK_DIRS"] = "node_modules:.venv"
    assert place.load().link_dirs == ("node_modules", ".venv")


def test_relative_paths_belong_to_where_they_are_written(place):
    trust(place.project, data_folder(place.environ))
    (place.project / "perdure.toml").write_text("database = 'runs.db'\nworkflows = ['flows/a.py']")
    config = place.load()
    assert config.database == str(place.project / "runs.db")
    assert config.workflows == (place.project / "flows/a.py",)
    assert place.load(database="x.db").database == str(place.inner / "x.db")
    assert place.load(database="postgresql://host/db").database == "postgresql://host/db"


def test_agents_of_all_files_are_known_and_the_stronger_file_describes_a_name(place):
    trust(place.project, data_folder(place.environ))
    place.user("[agents.a]\nkind = 'command'\ncommand = ['u']\n[agents.local]\nseed = 1")
    (place.project / "perdure.toml").write_text("[agents.a]\nkind = 'command'\ncommand = ['p']")
    config = place.load()
    assert config.agents == {"a": {"kind": "command", "command": ["p"]}, "local": {"kind": "local", "seed": 1}}


def test_a_project_that_is_not_trusted_cannot_name_programs_or_move_the_journal(place):
    (place.project / "perdure.toml").write_text(
        "database = 'evil.db'\nstages_max = 3\n[agents.rehearsal]\nkind = 'command'\ncommand = ['rm']"
    )
    config = place.load()
    assert config.set_aside == ("database", "agents")
    assert (config.agents, config.stages_max, config.is_project_trusted) == ({}, 3, False)
    assert config.database == str(config.data_dir / "perdure.db")
    trust(place.project, config.data_dir)
    assert place.load().agents["rehearsal"]["command"] == ["rm"]
    assert place.load().set_aside == ()


def test_xdg_folders_are_respected_when_absolute(place):
    place.environ |= {"XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "relative"}
    config = place.load()
    assert (config.data_dir, config.config_dir) == (Path("/d/perdure"), place.home / ".config/perdure")


def test_the_setup_of_worktrees_is_a_list_of_words_and_runs_only_where_the_folder_is_trusted(place):
    (place.project / "perdure.toml").write_text('worktree_setup = ["make", "it"]')
    assert place.load().worktree_setup == ()
    assert place.load().set_aside == ("worktree_setup",)
    trust(place.project, data_folder(place.environ))
    assert place.load().worktree_setup == ("make", "it")
    (place.project / "perdure.toml").write_text('worktree_setup = "make it"')
    with pytest.raises(ConfigInvalid, match=r'worktree_setup: expected a list of words, such as \["npm", "ci"\]'):
        place.load()
