"""Small git repositories for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Repository:
    """A repository in a folder of its own. The names of people come from the environment (conftest)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        return git_in(self.folder, *words)

    def commit(self, subject: str, files: dict[str, str] | None = None) -> str:
        """Write files and commit everything; the commit's id."""
        for name, content in (files or {}).items():
            (self.folder / name).write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")


def git_in(folder: Path, *words: str) -> str:
    """What git prints in a folder."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
