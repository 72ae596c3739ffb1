"""What every test gets: an empty home, so that no test touches the user's files, and a repeatable Hypothesis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("perdure", derandomize=True, deadline=None, database=None)
settings.load_profile("perdure")

GIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder; settings of the shell that could change perdure or git are gone."""
    folder = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith(("PERDURE_", "XDG_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    for name, value in GIT_IDENTITY.items():
        monkeypatch.setenv(name, value)
    return folder
