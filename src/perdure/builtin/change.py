"""A change: what a range of commits does to a repository, read once and bounded.

The law: names a person typed are resolved to commit ids before anything is compared, so a branch that moves meanwhile
changes nothing, and whatever does not exist is refused with what to name instead.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import BaseModel

from perdure import ShellResult, UsageError, shell, tool

DIFF_KIB_MAX: Final = 48
SUBJECTS_MAX: Final = 20
GIT_SECONDS: Final = 60.0
_GIT: Final = ("git", "--no-pager", "--no-optional-locks", "-c", "core.quotePath=false")
_PLAIN: Final = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")  # nothing of the repository's own runs


class Change(BaseModel):
    """What lies between two commits; `base` may be git's empty tree. `diff` is cut at `DIFF_KIB_MAX`, with a mark."""

    base: str
    head: str
    subjects: list[str]  # of its newest commits
    files: list[str]
    stat: str  # "2 files changed, 5 insertions(+)"
    diff: str

    @property
    def name(self) -> str:
        """The range in short."""
        return f"{self.base[:10]}..{self.head[:10]}"


@tool(name="diff", timeout=GIT_SECONDS * 4)
async def read_change(cwd: str, target: str) -> Change:
    """What `target` changes in the repository around `cwd`: a range `A..B` or `A...B`, or one commit.

    Raises UsageError when there is no repository or no such commit.
    """
    base, head = await _ends(cwd, target.strip())
    files, stat, diff, subjects = await asyncio.gather(
        _git(cwd, *_PLAIN, "--name-only", "-z", base, head),
        _git(cwd, *_PLAIN, "--shortstat", base, head),
        _git(cwd, *_PLAIN, "--patch", base, head),
        _git(cwd, "log", "--no-color", "--format=%s", f"--max-count={SUBJECTS_MAX}", head, f"^{base}"),
    )
    return Change(
        base=base,
        head=head,
        subjects=subjects.splitlines(),
        files=[name for name in files.split("\0") if name],
        stat=stat.strip(),
        diff=cut(diff, DIFF_KIB_MAX, f"git diff {base[:10]} {head[:10]}"),
    )


def cut(text: str, kib_max: int, rest: str) -> str:
    """`text`, after `kib_max` KiB cut at the end of a line with a mark that says how to see the `rest`."""
    data = text.encode()
    if len(data) <= kib_max * 1024:
        return text
    kept = data[: kib_max * 1024].decode("utf-8", "ignore")
    kept = kept[: kept.rfind("\n") + 1] or f"{kept}\n"
    return f"{kept}[... cut: this is {len(kept.encode()) // 1024} KiB of {len(data) // 1024}. See the rest: {rest}]\n"


async def _ends(cwd: str, target: str) -> tuple[str, str]:
    """The ids of what to compare."""
    if ".." not in target:
        head = await _commit(cwd, target)
        return await _parent(cwd, head), head
    left, dots, right = target.partition("..." if "..." in target else "..")
    base, head = await _commit(cwd, left or "HEAD"), await _commit(cwd, right or "HEAD")
    if dots == "..":
        return base, head
    common = await _asked(cwd, "merge-base", base, head)
    if common.exit_code != 0:
        raise UsageError(f"{left} and {right} have no commit in common. Compare them as they are: {left}..{right}.")
    return common.stdout.strip(), head


async def _commit(cwd: str, name: str) -> str:
    """The id of the commit that `name` means. Raises UsageError."""
    if not name or name.startswith("-"):
        raise UsageError(f"{name!r} names no commit. Give a range such as HEAD~1..HEAD, or one commit.", target=name)
    found = await _asked(cwd, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if found.exit_code == 0:
        return found.stdout.strip()
    raise await _missing(cwd, name)


async def _missing(cwd: str, name: str) -> UsageError:
    """Why there is no such commit here."""
    there = await _asked(cwd, "rev-parse", "--git-dir")
    if there.exit_code != 0:
        complaint = _complaint(there)
        return UsageError(
            f"{cwd} cannot be reviewed: {complaint}. Start inside a git repository, or make one: git init."
        )
    counted = await _asked(cwd, "rev-list", "--count", "HEAD")
    if counted.exit_code != 0:
        return UsageError(f"The repository in {cwd} has no commit yet, so there is nothing to review.", target=name)
    count = int(counted.stdout)
    shallow = (await _asked(cwd, "rev-parse", "--is-shallow-repository")).stdout.strip() == "true"
    history = f"{count} commit{'s' * (count != 1)}" + ", cut off by a shallow clone (git fetch --unshallow)" * shallow
    return UsageError(
        f"There is no commit {name} in {cwd}, whose history has {history}. Name a range that exists, or review one "
        "commit: target=HEAD.",
        target=name,
        commits=count,
    )


async def _parent(cwd: str, commit: str) -> str:
    """The first parent of a commit; git's empty tree for the first commit of a history."""
    found = await _asked(cwd, "rev-parse", "--verify", "--quiet", f"{commit}^1")
    return (
        found.stdout.strip()
        if found.exit_code == 0
        else (await _git(cwd, "hash-object", "-t", "tree", "--stdin")).strip()
    )


async def _git(cwd: str, *words: str) -> str:
    """What git prints. Raises UsageError with its complaint."""
    done = await _asked(cwd, *words)
    if done.exit_code != 0:
        raise UsageError(f"`git {' '.join(words)}` failed in {cwd}: {_complaint(done)}.", exit_code=done.exit_code)
    return done.stdout


def _complaint(done: ShellResult) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.exit_code}"])[-1]


async def _asked(cwd: str, *words: str) -> ShellResult:
    return await shell([*_GIT, *words], cwd=cwd, timeout=GIT_SECONDS)
