"""Which paths lie inside a stage's folder: symbolic links are followed, `..` is resolved, nothing is created.

The law: what `inside` returns holds no link out of the folder at the time it was looked at. It is a fence against an
agent's mistakes; a process of the agent could change a link between the look and the use.
"""

from __future__ import annotations

import os
from pathlib import Path


class OutsideFolder(Exception):
    """The path leads out of the stage's folder."""


def inside(path: str, folder: Path) -> Path:
    """The real path of `path`, which need not exist; relative ones start at the folder. Raises OutsideFolder."""
    if "\0" in path or not path:
        raise OutsideFolder(f"{path!r} is no path.")
    root = Path(os.path.realpath(folder))
    real = Path(os.path.realpath(root / path))  # follows links in the part that exists, resolves the rest
    if not real.is_relative_to(root):
        raise OutsideFolder(f"{path} is outside the stage's folder {root}. Use a path inside it.")
    return real


def is_inside(path: str, folder: Path) -> bool:
    """Whether a path lies inside the folder."""
    try:
        inside(path, folder)
    except OutsideFolder:
        return False
    return True
