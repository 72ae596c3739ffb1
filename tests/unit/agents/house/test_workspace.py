"""Files below one folder, and none other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.agents.house import workspace as module
from perdure.agents.house.workspace import Change, Workspace
from perdure.errors import UsageError


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.txt").write_text("secret")
    return Workspace(root)


def escapes(place: Workspace) -> list[str]:
    (place.root / "link").symlink_to(place.root.parent)
    (place.root / "file-link").symlink_to(place.root.parent / "secret.txt")
    (place.root / "dangling").symlink_to(place.root.parent / "not-yet")
    outside = place.root.parent / "secret.txt"
    return ["../secret.txt", "src/../../secret.txt", str(outside), "link/secret.txt", "file-link", "dangling", "/etc/x"]


def test_nothing_outside_the_folder_is_read_written_or_edited(place: Workspace) -> None:
    for path in escapes(place):
        for act in (
            lambda: place.read(path),  # noqa: B023  called at once
            lambda: place.write(path, "x"),  # noqa: B023
            lambda: place.edit(path, "secret", "x"),  # noqa: B023
        ):
            with pytest.raises(UsageError, match="outside"):
                act()
    assert (place.root.parent / "secret.txt").read_text() == "secret"
    assert not (place.root.parent / "not-yet").exists()


def test_a_link_that_stays_inside_is_followed(place: Workspace) -> None:
    (place.root / "same").symlink_to("src/a.py")
    place.write("same", "new")
    assert (place.root / "same").is_symlink()
    assert (place.root / "src" / "a.py").read_text() == "new"


def test_an_absolute_path_inside_is_fine(place: Workspace) -> None:
    assert place.read(str(place.root / "src" / "a.py")).startswith("1\tone")


def test_lines_come_with_their_numbers_and_the_way_on(place: Workspace) -> None:
    assert place.read("src/a.py") == "1\tone\n2\ttwo\n3\tthree"
    assert place.read("src/a.py", 2, 1) == "2\ttwo\n[1 more lines; go on with offset=3]"
    assert "nothing from line 4" in place.read("src/a.py", 4)


def test_a_long_file_is_shown_within_bounds(place: Workspace) -> None:
    (place.root / "long").write_text(f"{'x' * 1900}\n" * 1000)
    shown = place.read("long")
    assert len(shown) < module.SHOWN_CHARS_MAX + 100
    assert "go on with offset=" in shown
    (place.root / "wide").write_text("y" * 10_000)
    assert place.read("wide") == f"1\t{'y' * module.LINE_CHARS_MAX} [... cut]"


def test_a_folder_shows_its_entries(place: Workspace) -> None:
    (place.root / "b.txt").touch()
    assert place.read(".") == "b.txt\nsrc/"
    (place.root / "empty").mkdir()
    assert place.read("empty") == "The folder is empty."


def test_what_is_no_text_is_refused(place: Workspace) -> None:
    (place.root / "binary").write_bytes(b"a\0b")
    (place.root / "latin").write_bytes(b"caf\xe9")
    os.mkfifo(place.root / "pipe")
    for path, why in (("binary", "not a text"), ("latin", "not UTF-8"), ("pipe", "regular"), ("gone", "no file gone")):
        with pytest.raises(UsageError, match=why):
            place.read(path)


def test_a_new_file_gets_its_folders_and_says_that_it_is_new(place: Workspace) -> None:
    change = place.write("deep/er/b.txt", "hi\n")
    assert change == Change(place.root / "deep/er/b.txt", None, "hi\n")
    assert place.write("deep/er/b.txt", "ho\n").before == "hi\n"
    with pytest.raises(UsageError, match="is a folder"):
        place.write("deep", "x")


def test_writing_keeps_the_mode_and_leaves_nothing_beside(place: Workspace) -> None:
    script = place.root / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    place.write("run.sh", "#!/bin/sh\necho\n")
    assert script.stat().st_mode & 0o777 == 0o755
    assert sorted(entry.name for entry in place.root.iterdir()) == ["run.sh", "src"]


def test_an_edit_needs_the_text_exactly_once(place: Workspace) -> None:
    assert place.edit("src/a.py", "two\n", "2\n").after == "one\n2\nthree\n"
    with pytest.raises(UsageError, match="does not hold"):
        place.edit("src/a.py", "two", "2")
    (place.root / "many").write_text("x x x")
    with pytest.raises(UsageError, match="3 times"):
        place.edit("many", "x", "y")
    assert place.edit("many", "x", "y", every=True).after == "y y y"
    with pytest.raises(UsageError, match="empty"):
        place.edit("many", "", "y")


def test_an_edit_keeps_line_ends_that_the_model_cannot_see(place: Workspace) -> None:
    (place.root / "dos").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    place.edit("dos", "one\ntwo", "1\n2")
    assert (place.root / "dos").read_bytes() == b"1\r\n2\r\nthree\r\n"
