"""Files that an agent reads and writes through us: every way out of the stage's folder is closed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp.files import NOT_FOUND, read_text_file, write_text_file
from perdure.agents.acp.peer import Refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stage's folder with a link to a file and to a folder outside."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (inside / "file-link").symlink_to(outside / "secret.txt")
    (inside / "folder-link").symlink_to(outside)
    (inside / "dangling-link").symlink_to(outside / "new.txt")
    (inside / "inner").mkdir()
    (inside / "inner-link").symlink_to("inner")
    return inside


ESCAPES = [
    "../out/secret.txt", "inner/../../out/secret.txt", "/etc/hostname", "file-link", "folder-link/secret.txt",
    "dangling-link", "inner/../folder-link/new.txt", "missing/../../out/secret.txt", "", "a\0b", "..",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out_by_reading(folder: Path, path: str) -> None:
    with pytest.raises(Refused, match=r"outside the stage's folder|is no path"):
        read_text_file({"path": path}, folder)


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out_by_writing(folder: Path, path: str) -> None:
    with pytest.raises(Refused, match=r"outside the stage's folder|is no path"):
        write_text_file({"path": path, "content": "x"}, folder)
    outside = folder.parent / "out"
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("secret.txt", "secret")]


def test_a_folder_that_only_begins_like_the_stages_is_outside(folder: Path) -> None:
    sibling = folder.parent / "inside"
    sibling.mkdir()
    with pytest.raises(Refused, match="outside"):
        write_text_file({"path": str(sibling / "a.txt"), "content": "x"}, folder)


@pytest.mark.parametrize("path", ["a.txt", "new/deep/a.txt", "inner-link/a.txt", "inner/../a.txt"])
def test_what_was_written_inside_is_read_back(folder: Path, path: str) -> None:
    text = "one\r\ntwo\u2028more\n\tthree"
    for given in (path, str(folder / path)):
        assert write_text_file({"path": given, "content": text}, folder) == {}
        assert read_text_file({"path": given}, folder) == {"content": text}


def test_a_stages_folder_that_is_a_link_itself_is_followed(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    write_text_file({"path": str(link / "a.txt"), "content": "x"}, link)
    assert (folder / "a.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("line", "limit", "expected"),
    [(2, 1, "two"), (2, None, "two\nthree\n"), (None, 2, "one\ntwo"), (0, 1, "one"), (9, 1, ""), (1, 0, "")],
)
def test_some_lines_of_a_file_are_read(folder: Path, line: Any, limit: Any, expected: str) -> None:
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    assert read_text_file({"path": "a.txt", "line": line, "limit": limit}, folder) == {"content": expected}


def test_a_missing_file_has_the_code_that_agents_look_for(folder: Path) -> None:
    with pytest.raises(Refused) as caught:
        read_text_file({"path": "nowhere.txt"}, folder)
    assert caught.value.rpc_code == NOT_FOUND


def test_a_file_that_is_no_text_is_refused_instead_of_damaged(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Refused, match="not a text in UTF-8"):
        read_text_file({"path": "a.bin"}, folder)


def test_a_folder_and_a_pipe_are_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(Refused, match="cannot be read"):
        read_text_file({"path": "inner"}, folder)
    with pytest.raises(Refused, match="cannot be written"):
        write_text_file({"path": "pipe", "content": "x"}, folder)


@pytest.mark.parametrize(
    "params", [None, [], {}, {"path": 1}, {"path": "a.txt", "line": "1"}, {"path": "a.txt", "limit": -1}]
)
def test_requests_that_are_none_are_refused(folder: Path, params: Any) -> None:
    with pytest.raises(Refused):
        read_text_file(params, folder)
