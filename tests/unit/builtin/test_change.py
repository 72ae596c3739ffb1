"""Reading a change from real repositories."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import UsageError
from perdure.builtin.change import DIFF_KIB_MAX, Change, cut, read_change
from tests.bed.repositories import Repository


def read(repository: Repository | Path, target: str) -> Change:
    folder = repository if isinstance(repository, Path) else repository.folder
    return asyncio.run(read_change(str(folder), target))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit("Begin", {"a.py": "a = 1\n"})
    made.commit("Add b", {"b.py": "b = 2\n", "näme ü.txt": "x\n"})
    return made


def test_a_range_gives_ids_files_subjects_and_the_diff(repository: Repository) -> None:
    change = read(repository, "HEAD~1..HEAD")
    assert (change.base, change.head) == (repository.git("rev-parse", "HEAD~1"), repository.git("rev-parse", "HEAD"))
    assert change.files == ["b.py", "näme ü.txt"]
    assert change.subjects == ["Add b"]
    assert change.stat == "2 files changed, 2 insertions(+)"
    assert "+b = 2" in change.diff
    assert change.name == f"{change.base[:10]}..{change.head[:10]}"


@pytest.mark.parametrize("target", ["HEAD", "main", "HEAD~1..", " HEAD^..HEAD "])
def test_one_commit_means_what_it_did_to_its_parent(repository: Repository, target: str) -> None:
    assert read(repository, target) == read(repository, "HEAD~1..HEAD")


def test_the_first_commit_is_compared_with_nothing(repository: Repository) -> None:
    change = read(repository, "HEAD~1")
    assert change.files == ["a.py"]
    assert change.subjects == ["Begin"]
    assert "+a = 1" in change.diff


def test_three_dots_compare_with_what_both_have_in_common(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "side", "HEAD~1")
    repository.commit("Add c", {"c.py": "c = 3\n"})
    assert read(repository, "main...side").files == ["c.py"]
    assert set(read(repository, "main..side").files) == {"b.py", "c.py", "näme ü.txt"}


def test_a_range_longer_than_the_history_says_how_long_that_is(repository: Repository) -> None:
    with pytest.raises(UsageError, match=r"no commit HEAD~2 .* has 2 commits\. .*target=HEAD"):
        read(repository, "HEAD~2..HEAD")


def test_a_shallow_clone_is_named_as_the_reason(repository: Repository, tmp_path: Path) -> None:
    repository.git("clone", "-q", "--depth=1", f"file://{repository.folder}", str(tmp_path / "clone"))
    with pytest.raises(UsageError, match=r"1 commit, cut off by a shallow clone"):
        read(tmp_path / "clone", "HEAD~1..HEAD")


@pytest.mark.parametrize("target", ["", "-p", "--output=x..HEAD"])
def test_an_option_is_no_commit(repository: Repository, target: str) -> None:
    with pytest.raises(UsageError, match="names no commit"):
        read(repository, target)


def test_a_folder_outside_any_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a git repository.*git init"):
        read(tmp_path, "HEAD")


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no commit yet"):
        read(Repository(tmp_path / "empty"), "HEAD~1..HEAD")


def test_branches_without_a_common_commit_are_refused_for_three_dots(repository: Repository) -> None:
    repository.git("switch", "-q", "--orphan", "other")
    repository.commit("Begin again")
    with pytest.raises(UsageError, match=r"no commit in common.*main\.\.other"):
        read(repository, "main...other")


def test_a_filter_that_the_repository_configures_is_not_run(repository: Repository, tmp_path: Path) -> None:
    repository.git("config", "diff.external", f"touch {tmp_path}/ran; echo")
    assert "+b = 2" in read(repository, "HEAD").diff
    assert not (tmp_path / "ran").exists()


def test_a_long_diff_is_cut_with_a_mark(repository: Repository) -> None:
    repository.commit("Grow", {"big.txt": "".join(f"line {n}\n" for n in range(20_000))})
    diff = read(repository, "HEAD").diff
    assert len(diff.encode()) < DIFF_KIB_MAX * 1024 + 200
    assert diff.splitlines()[-1].startswith(f"[... cut: this is {DIFF_KIB_MAX - 1} KiB of ")


def test_a_cut_falls_between_lines_and_never_inside_a_letter() -> None:
    assert cut("short\n", 1, "-") == "short\n"
    assert cut("x\n" * 1024, 1, "there") == "x\n" * 512 + "[... cut: this is 1 KiB of 2. See the rest: there]\n"
    assert cut("é" * 1024, 1, "there").startswith("é" * 512 + "\n[... cut")
