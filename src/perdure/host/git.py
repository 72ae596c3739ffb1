"""git is the command of that name, run so that a repository can surprise nobody (spec/authoring.md 6).

The law: hooks and monitors of the repository do not run, nothing asks a question, nothing takes longer than a minute,
and no variable of ours points git at another repository. A refusal says which command failed, where and how.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from perdure.errors import GitFailed, UsageError
from perdure.host.processes import ShellResult, environment, shell
from perdure.values import bounded

GIT_SECONDS: Final = 60.0
COMPLAINT_CHARS_MAX: Final = 600

_NAMES: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "XDG_CONFIG_HOME")
_QUIET: Final = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_EDITOR": "true", "LC_ALL": "C"}
_SETTINGS: Final = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false", "core.safecrlf=false",
    "advice.addEmbeddedRepo=false", "commit.gpgSign=false", "gc.auto=0", "maintenance.auto=false",
)  # fmt: skip
_OPTIONS: Final = ("--no-pager", *(word for setting in _SETTINGS for word in ("-c", setting)))


async def git(folder: Path, *words: str, env: Mapping[str, str] | None = None, text: str = "") -> str:
    """What git prints. Raises GitFailed when it refuses, UsageError when it is not installed."""
    done = await ask_git(folder, *words, env=env, text=text)
    if done.exit_code != 0:
        raise _failed(folder, words, done)
    return done.stdout


async def ask_git(folder: Path, *words: str, env: Mapping[str, str] | None = None, text: str = "") -> ShellResult:
    """As `git`, for a command whose exit code is its answer."""
    given = environment(_NAMES, {**_QUIET, **(env or {})})
    try:
        return await shell(["git", *_OPTIONS, *words], cwd=folder, timeout=GIT_SECONDS, env=given, input=text)
    except FileNotFoundError as error:
        raise UsageError(f"git cannot be started in {folder}: {error}", cwd=str(folder)) from error
    except TimeoutError as error:
        raise GitFailed(
            f"`git {' '.join(words)}` in {folder} took longer than {GIT_SECONDS:g} s and was ended.",
            command=["git", *words], cwd=str(folder), exit_code=None,
        ) from error  # fmt: skip


def complaint(done: ShellResult) -> str:
    """What git says is wrong, on one line."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines[-1:]
    return bounded(" ".join(told), COMPLAINT_CHARS_MAX) or "no reason given"


def _failed(folder: Path, words: tuple[str, ...], done: ShellResult) -> GitFailed:
    return GitFailed(
        f"`git {' '.join(words)}` failed in {folder} with exit code {done.exit_code}: {complaint(done)}",
        command=["git", *words], cwd=str(folder), exit_code=done.exit_code,
    )  # fmt: skip
