"""Where the bench keeps things: environments of peers, and scratch files on a real disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Where environments of peers and scratch files live. Not the temporary folder, which is often no disk."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "perdure-bench"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    parent = cache_folder() / "scratch"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
