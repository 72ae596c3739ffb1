"""Trust: the folders whose workflow files and agent commands may run (spec/authoring.md 7).

A list of real paths in the user's data folder, never inside the project, so a cloned repository cannot trust itself.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from perdure.errors import ConfigInvalid


def is_trusted(path: Path, data_dir: Path) -> bool:
    """Whether the folder, or one above it, was trusted. Raises ConfigInvalid when the list cannot be read."""
    folders = _read(_file(data_dir))
    real = path.resolve()
    return any(str(folder) in folders for folder in (real, *real.parents))


def trust(path: Path, data_dir: Path) -> Path:
    """Trust a folder and all below it from now on; durable on return. Returns its real path."""
    real = path.resolve()
    if not real.is_dir():
        raise ConfigInvalid(f"{path} is not a folder. Trust the project's folder: perdure trust FOLDER", path=str(path))
    file = _file(data_dir)
    folders = sorted({*_read(file), str(real)})
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_suffix(f".{os.getpid()}.new")
    with open(fresh, "w", encoding="utf-8", opener=_private) as opened:
        json.dump({"folders": folders}, opened, indent=2)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
    return real


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _file(data_dir: Path) -> Path:
    return data_dir / "trust.json"


def _read(file: Path) -> frozenset[str]:
    try:
        folders = json.loads(file.read_text(encoding="utf-8"))["folders"]
        return frozenset(str(folder) for folder in folders)
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ConfigInvalid(
            f"The list of trusted folders cannot be read. Remove {file} and trust your folders again.", path=str(file)
        ) from problem
