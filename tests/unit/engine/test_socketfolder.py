"""Folders for sockets: private, short, and not left behind for ever."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from perdure.engine.socketfolder import LEFT_ALONE_MS, NAME, PATH_BYTES_MAX, PREFIX, SocketFolder


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A temporary folder whose path leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="t", dir=os.path.realpath(os.sep + "tmp")) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def folder_with_socket(short, name, *, listens, old):
    folder = short / f"{PREFIX}{name}"
    folder.mkdir()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(folder / NAME))
    if listens:
        server.listen()
    else:
        server.close()
    if old:
        then = folder.stat().st_mtime - 2 * LEFT_ALONE_MS / 1000
        os.utime(folder, (then, then))
    return folder, server


def test_a_folder_is_for_this_user_and_gone_after_its_removal():
    made = SocketFolder.make()
    folder = Path(made.socket).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made.remove()
    made.remove()
    assert not folder.exists()


def test_what_a_killed_process_left_is_removed_and_nothing_else(short):
    dead, _ = folder_with_socket(short, "dead", listens=False, old=True)
    young, _ = folder_with_socket(short, "young", listens=False, old=False)
    alive, server = folder_with_socket(short, "alive", listens=True, old=True)
    other = short / "perdure-doctor-x"
    other.mkdir()
    SocketFolder.make()
    server.close()
    assert not dead.exists()
    assert young.exists()
    assert alive.exists()
    assert other.exists()


def test_a_long_temporary_folder_is_not_used(short, monkeypatch):
    long = short / ("x" * PATH_BYTES_MAX)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    made = SocketFolder.make()
    assert len(made.socket.encode()) <= PATH_BYTES_MAX
    made.remove()
    assert not list(long.iterdir())
