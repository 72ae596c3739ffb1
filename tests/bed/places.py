"""Folders that refuse: full, read-only, or below a file. Real ones, so most need root and are skipped without it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(*words: object) -> None:
    """Mount something; skips the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A disk of so many KiB at a new folder."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def grow(folder: Path, kib: int) -> None:
    """Give a small disk more room."""
    mount("-o", f"remount,size={kib}k", folder)


def make_read_only(folder: Path) -> None:
    """Take the right to write from a small disk, root's too."""
    mount("-o", "remount,ro", folder)
