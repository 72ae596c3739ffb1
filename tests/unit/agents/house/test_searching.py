"""Looking for lines and names in a workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.agents.house import searching
from perdure.agents.house.searching import search
from perdure.agents.house.workspace import Workspace
from perdure.errors import UsageError


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    for name, text in {
        "a.py": "import os\ndef run(): ...\n",
        "src/b.py": "def walk(): ...\n",
        "src/c.txt": "def not_python\n",
        ".git/d.py": "def hidden\n",
        "node_modules/e.py": "def foreign\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (tmp_path / "binary.py").write_bytes(b"def \0")
    return Workspace(tmp_path)


def test_lines_are_found_with_file_and_number_outside_of_foreign_folders(place: Workspace) -> None:
    assert search(place, r"def \w+\(") == "a.py:2: def run(): ...\nsrc/b.py:1: def walk(): ..."


def test_a_glob_narrows_by_name_or_path(place: Workspace) -> None:
    assert search(place, "def", glob="*.txt") == "src/c.txt:1: def not_python"
    assert search(place, "def", glob="src/*.py") == "src/b.py:1: def walk(): ..."
    assert search(place, "def", path="src", glob="*.py") == "src/b.py:1: def walk(): ..."


def test_without_a_pattern_the_names_are_listed(place: Workspace) -> None:
    assert search(place, "", glob="*.py") == "a.py\nbinary.py\nsrc/b.py"


def test_one_file_may_be_searched(place: Workspace) -> None:
    assert search(place, "import", path="a.py") == "a.py:1: import os"


def test_nothing_found_is_said(place: Workspace) -> None:
    assert search(place, "nowhere") == "Nothing matches."


def test_too_many_matches_are_cut(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MATCHES_MAX", 1)
    assert search(place, "def").endswith("[... more matches; narrow the pattern, path or glob]")


def test_links_out_of_the_folder_are_not_followed(place: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.py").write_text("def secret")
    (place.root / "link").symlink_to(outside)
    (place.root / "link.py").symlink_to(outside / "secret.py")
    assert "secret" not in search(place, "def")
    with pytest.raises(UsageError, match="outside"):
        search(place, "def", path="link")


def test_a_pattern_that_is_none_and_a_path_that_is_not_there_are_refused(place: Workspace) -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        search(place, "(")
    with pytest.raises(UsageError, match="There is no gone"):
        search(place, "x", path="gone")
