import asyncio

import pytest

from perdure.errors import GitFailed, UsageError
from perdure.host import git as door
from perdure.host.git import ask_git, git
from tests.bed.repositories import Repository


def test_it_gives_what_git_prints(tmp_path):
    head = Repository(tmp_path).commit("first")
    assert asyncio.run(git(tmp_path, "rev-parse", "HEAD")).strip() == head


def test_a_refusal_names_command_folder_exit_code_and_gits_own_words(tmp_path):
    Repository(tmp_path)
    with pytest.raises(GitFailed, match=r"rev-parse --verify nothing.*128.*fatal") as caught:
        asyncio.run(git(tmp_path, "rev-parse", "--verify", "nothing"))
    assert caught.value.details == {
        "command": ["git", "rev-parse", "--verify", "nothing"], "cwd": str(tmp_path), "exit_code": 128,
    }  # fmt: skip


def test_without_git_it_says_that_git_cannot_be_started(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git cannot be started"):
        asyncio.run(git(tmp_path, "version"))


def test_a_command_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(door, "GIT_SECONDS", 0.1)
    Repository(tmp_path).git("config", "alias.hang", "!exec sleep 600")
    with pytest.raises(GitFailed, match=r"longer than 0\.1 s"):
        asyncio.run(git(tmp_path, "hang"))


def test_variables_that_point_git_elsewhere_do_not_reach_it(tmp_path, monkeypatch):
    ours, theirs = Repository(tmp_path / "ours"), Repository(tmp_path / "theirs")
    monkeypatch.setenv("GIT_DIR", str(theirs.folder / ".git"))
    assert asyncio.run(git(ours.folder, "rev-parse", "--show-toplevel")).strip() == str(ours.folder)


def test_programs_that_a_repository_names_do_not_run(tmp_path):
    repository = Repository(tmp_path)
    repository.commit("first")
    for key in ("core.fsmonitor", "core.pager", "core.editor"):
        repository.git("config", key, f"touch {tmp_path}/ran; false")
    hook = tmp_path / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    (tmp_path / "a").write_text("")
    for words in (("add", "a"), ("status",), ("log", "--all"), ("update-ref", "refs/x", "HEAD")):
        asyncio.run(ask_git(tmp_path, *words))
    assert not (tmp_path / "ran").exists()
