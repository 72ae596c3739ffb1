import asyncio

import pytest

from perdure.errors import UsageError
from perdure.host import furnishing
from perdure.host.furnishing import Furnishing, furnish
from perdure.host.worktrees import add_worktree, checkout_around
from tests.bed.repositories import Repository, git_in


class Ground:
    def __init__(self, folder):
        self.repository = Repository(folder / "repo")
        self.top, self.place = self.repository.folder, folder / "place"
        self.head = self.repository.commit("first", {".gitignore": "*.env\nnode_modules/\ncache\n", "a.txt": "a"})

    def write(self, name, content=""):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def furnish(self, *, base="HEAD", **wanted):
        async def main():
            checkout = await checkout_around(self.top)
            await add_worktree(checkout.repository, self.place, base)
            await furnish(checkout, self.place, Furnishing(**wanted))

        asyncio.run(main())

    def status(self):
        return git_in(self.place, "status", "--porcelain")


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


def test_ignored_files_that_worktreeinclude_matches_are_copied_and_no_others(ground):
    ground.write(".worktreeinclude", "*.env\nplain.txt\n")
    ground.write("deep/x.env", "secret")
    ground.write("plain.txt")  # untracked, but not ignored
    ground.write("cache", "big")
    (ground.top / "deep/x.env").chmod(0o600)
    ground.furnish()
    assert (ground.place / "deep/x.env").read_text() == "secret"
    assert (ground.place / "deep/x.env").stat().st_mode & 0o777 == 0o600
    assert not (ground.place / "plain.txt").exists()
    assert not (ground.place / "cache").exists()


def test_a_link_is_copied_as_a_link(ground):
    ground.write(".worktreeinclude", "*.env\n")
    (ground.top / "x.env").symlink_to("a.txt")
    ground.furnish()
    assert (ground.place / "x.env").readlink().name == "a.txt"


def test_what_is_tracked_at_the_base_is_never_overwritten(ground):
    ground.write(".worktreeinclude", "*.env\n")
    ground.write("x.env", "tracked")
    ground.repository.git("add", "-f", "x.env")
    base = ground.repository.commit("with it")
    ground.repository.git("rm", "-q", "--cached", "x.env")
    ground.repository.commit("without it")
    ground.write("x.env", "of the checkout")
    ground.furnish(base=base)
    assert (ground.place / "x.env").read_text() == "tracked"


def test_nothing_is_written_through_a_link_that_leads_out(ground, tmp_path):
    """At the base the folder is a link to somewhere else."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (ground.top / "conf").symlink_to(outside)
    base = ground.repository.commit("a link")
    ground.repository.git("rm", "-q", "conf")
    ground.repository.commit("no link")
    ground.write(".worktreeinclude", "*.env\n")
    ground.write("conf/x.env")
    ground.write("conf/cache/file")
    ground.furnish(base=base, link_dirs=("conf/cache",))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("bound", ["COPIED_FILES_MAX", "COPIED_BYTES_MAX"])
def test_too_much_to_copy_is_refused(ground, monkeypatch, bound):
    monkeypatch.setattr(furnishing, bound, 1)
    ground.write(".worktreeinclude", "*.env\n")
    ground.write("a.env", "12")
    ground.write("b.env", "34")
    with pytest.raises(UsageError, match="link_dirs"):
        ground.furnish()


def test_a_linked_folder_is_shared_and_stays_ignored_though_its_pattern_is_for_folders(ground):
    ground.write("node_modules/x.js", "code")
    ground.furnish(link_dirs=("node_modules",))
    assert (ground.place / "node_modules" / "x.js").read_text() == "code"
    assert ground.status() == ""
    assert ground.repository.git("status", "--porcelain") == ""


def test_a_folder_that_is_missing_or_not_ignored_is_not_linked(ground):
    ground.write("src/x.py")
    ground.furnish(link_dirs=("src", "missing"))
    assert not (ground.place / "src").exists()
    assert not (ground.place / "missing").is_symlink()


@pytest.mark.parametrize("name", ["/etc", "../other", "a/../../b", ".git", ""])
def test_a_folder_outside_the_checkout_is_refused(ground, name):
    with pytest.raises(UsageError, match="link_dirs"):
        ground.furnish(link_dirs=(name,))


def test_the_setup_command_runs_in_the_worktree(ground):
    ground.furnish(setup=("touch", "made.env"))
    assert (ground.place / "made.env").exists()


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        (("sh", "-c", "echo no >&2; exit 7"), "exit code 7: no"),
        (("no-such-command",), "cannot start"),
        (("sleep", "600"), "longer than 0.2 s"),
    ],
)
def test_a_setup_command_that_fails_says_how(ground, monkeypatch, setup, said):
    monkeypatch.setattr(furnishing, "SETUP_SECONDS", 0.2)
    with pytest.raises(UsageError, match=said):
        ground.furnish(setup=setup)
