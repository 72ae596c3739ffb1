import asyncio

import pytest

from perdure.errors import GitFailed, UsageError
from perdure.host.worktrees import (
    Checkout,
    add_again,
    add_worktree,
    check_clean,
    checkout_around,
    commit_of,
    drop_branch,
    existing_worktree,
    has_branch,
    is_worktree,
    remove_worktree,
)
from tests.bed.repositories import Repository, git_in


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "repo")
    (made.folder / "sub").mkdir()
    made.commit("first", {"a.txt": "one\n", "sub/b.txt": "b\n"})
    return made


def git_folder(repository):
    return repository.folder / ".git"


def test_a_checkout_is_found_from_any_folder_in_it_through_links_too(repository, tmp_path):
    (tmp_path / "link").symlink_to(repository.folder / "sub")
    for folder in (repository.folder / "sub", tmp_path / "link"):
        found = asyncio.run(checkout_around(folder))
        assert found == Checkout(
            repository.folder, git_folder(repository), (repository.folder / "sub").relative_to(repository.folder)
        )


def test_outside_a_repository_it_is_said_what_to_do(tmp_path):
    with pytest.raises(UsageError, match="git init"):
        asyncio.run(checkout_around(tmp_path))


def test_a_base_is_a_commit_that_exists(repository):
    assert asyncio.run(commit_of(repository.folder, "main")) == repository.git("rev-parse", "HEAD")
    for name in ("nothing", "--all", "HEAD:a.txt"):
        with pytest.raises(UsageError, match="no commit"):
            asyncio.run(commit_of(repository.folder, name))


def test_a_repository_without_a_commit_has_no_base(tmp_path):
    with pytest.raises(UsageError, match="Commit something first"):
        asyncio.run(commit_of(Repository(tmp_path).folder, "HEAD"))


def test_a_tree_is_dirty_by_changed_and_staged_files_not_by_untracked_ones(repository):
    checkout = asyncio.run(checkout_around(repository.folder))
    (repository.folder / "new.txt").write_text("")
    asyncio.run(check_clean(checkout))
    repository.git("add", "new.txt")
    with pytest.raises(UsageError, match=r"not committed: new\.txt"):
        asyncio.run(check_clean(checkout))


def test_files_that_are_not_tracked_in_a_submodule_do_not_make_a_tree_dirty_but_its_changes_do(repository):
    inner = Repository(repository.folder / "inner")
    inner.commit("inside", {"work.txt": "one\n"})
    repository.commit("a submodule")
    checkout = asyncio.run(checkout_around(repository.folder))
    (inner.folder / "new.txt").write_text("")
    asyncio.run(check_clean(checkout))
    (inner.folder / "work.txt").write_text("two\n")
    with pytest.raises(UsageError, match="not committed: inner"):
        asyncio.run(check_clean(checkout))


def test_a_worktree_is_made_on_its_branch_taken_up_again_and_removed(repository, tmp_path):
    async def scenario():
        where, place = git_folder(repository), tmp_path / "data" / "place"
        await add_worktree(where, place, "HEAD", "perdure/x/fix")
        assert await is_worktree(place)
        assert not await is_worktree(place / "sub")
        (place / "work.txt").write_text("")
        await remove_worktree(where, place)
        await remove_worktree(where, place)
        assert not place.exists()
        await add_again(where, place, "perdure/x/fix")
        assert git_in(place, "branch", "--show-current") == "perdure/x/fix"

    asyncio.run(scenario())
    assert repository.git("branch", "--show-current") == "main"


def test_a_worktree_that_git_no_longer_knows_is_removed_too(repository, tmp_path):
    place = tmp_path / "place"
    asyncio.run(add_worktree(git_folder(repository), place, "HEAD"))
    (place / ".git").unlink()
    assert not asyncio.run(is_worktree(place))
    asyncio.run(remove_worktree(git_folder(repository), place))
    assert not place.exists()
    assert repository.git("worktree", "list").count("\n") == 0


def test_a_folder_that_cannot_be_removed_is_an_error_that_names_it(repository, tmp_path):
    file = tmp_path / "file"
    file.write_text("rmtree does not remove files")
    with pytest.raises(GitFailed, match="by hand"):
        asyncio.run(remove_worktree(git_folder(repository), file))


def test_a_branch_goes_only_if_its_commits_are_elsewhere_too(repository):
    async def dropped(branch):
        return await drop_branch(git_folder(repository), branch), await has_branch(git_folder(repository), branch)

    repository.git("branch", "same")
    assert asyncio.run(dropped("same")) == (True, False)
    repository.git("switch", "-q", "-c", "own")
    repository.commit("own work")
    repository.git("switch", "-q", "main")
    assert asyncio.run(dropped("own")) == (False, True)
    repository.git("tag", "kept", "own")
    assert asyncio.run(dropped("own")) == (True, False)
    assert asyncio.run(dropped("never")) == (True, False)


def test_an_existing_worktree_is_taken_by_its_real_root(repository, tmp_path):
    repository.git("worktree", "add", "-q", "--detach", "../other")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    checkout = asyncio.run(checkout_around(repository.folder))
    for path in (tmp_path / "other", tmp_path / "link"):
        assert asyncio.run(existing_worktree(checkout, path, [])) == tmp_path / "other"
    with pytest.raises(UsageError, match="isolates nothing"):
        asyncio.run(existing_worktree(checkout, tmp_path / "other", [tmp_path / "other"]))
    with pytest.raises(UsageError, match="not the root"):
        asyncio.run(existing_worktree(checkout, tmp_path / "other" / "sub", []))
