"""Configuration: flags over environment over project file over user file (spec/authoring.md 7).

Every value is checked with the file and key it came from, and every problem is told at once. A project's file comes
with a clone of somebody's repository, so until the folder is trusted the keys that could run a program or move the
journal are set aside and named in `set_aside`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perdure.errors import ConfigInvalid
from perdure.trust import is_trusted

NEEDS_TRUST: Final = ("agents", "database", "worktree_setup")
_PREFIX: Final = "PERDURE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What holds for one command. `sources` says where each key that is not a default came from."""

    config_dir: Path
    data_dir: Path
    database: str  # a path or a URL
    project_dir: Path | None = None
    is_project_trusted: bool = False
    agent: str | None = None
    model: str | None = None
    stages_max: int = 4
    workflows: tuple[Path, ...] = ()
    lease_timeout_ms: int = 90_000
    lease_renew_ms: int = 30_000
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    link_dirs: tuple[str, ...] = ()
    worktree_setup: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    set_aside: tuple[str, ...] = ()  # keys of a project that is not trusted, which do not hold until it is


@dataclass(frozen=True, slots=True)
class _Layer:
    source: str
    values: Mapping[str, Any]
    base: Path  # what its relative paths are relative to
    is_project: bool = False
    is_text: bool = False  # its values may be text for numbers and lists


def load_config(cwd: Path, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Config:
    """The configuration for a command started in `cwd`. A flag of None was not given. Raises ConfigInvalid."""
    cwd = cwd.resolve()
    config_dir, data_dir = config_folder(environ), data_folder(environ)
    project_dir, layers = _project_layers(cwd)
    if (user := config_dir / "config.toml").is_file():
        layers.append(_Layer(str(user), _read_toml(user), config_dir))
    problems: list[str] = []
    layers = [
        _Layer("flag", {key: value for key, value in (flags or {}).items() if value is not None}, cwd, is_text=True),
        _Layer("environment", _from_environment(environ, problems), cwd, is_text=True),
        *layers,
    ]
    trusted = project_dir is not None and is_trusted(project_dir, data_dir)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    set_aside: list[str] = []
    for layer in reversed(layers):
        for key, given in layer.values.items():
            value = _checked(layer, key, given, problems)
            if layer.is_project and not trusted and key in NEEDS_TRUST:
                set_aside.append(key)
            elif value is not None:
                values[key] = {**values.get(key, {}), **value} if key == "agents" else value
                sources[key] = layer.source
    config = Config(
        config_dir=config_dir, data_dir=data_dir, project_dir=project_dir, is_project_trusted=trusted, sources=sources,
        set_aside=tuple(set_aside), **{"database": str(data_dir / "perdure.db"), **values},
    )  # fmt: skip
    if not problems and config.lease_renew_ms * 2 > config.lease_timeout_ms:
        problems.append(f"lease_renew_ms ({config.lease_renew_ms}) must be at most half of lease_timeout_ms")
    if problems:
        raise ConfigInvalid("; ".join(problems) + ".", problems=problems)
    return config


def data_folder(environ: Mapping[str, str]) -> Path:
    """Where perdure keeps what it writes: `PERDURE_DATA_DIR`, else below `XDG_DATA_HOME` or ~/.local/share."""
    if given := environ.get("PERDURE_DATA_DIR"):
        return Path(given).expanduser().absolute()
    return _xdg(environ, "XDG_DATA_HOME", ".local/share")


def config_folder(environ: Mapping[str, str]) -> Path:
    """Where the user's config.toml and workflows/ are."""
    return _xdg(environ, "XDG_CONFIG_HOME", ".config")


def _xdg(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    given = Path(environ.get(variable, ""))
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (given if given.is_absolute() else home / fallback) / "perdure"


def _project_layers(cwd: Path) -> tuple[Path | None, list[_Layer]]:
    """The project's folder, the nearest that looks like one, and its layers, strongest first."""
    for folder in (cwd, *cwd.parents):
        layers = []
        if (own := folder / "perdure.toml").is_file():
            layers.append(_Layer(str(own), _read_toml(own), folder, is_project=True))
        if (shared := folder / "pyproject.toml").is_file() and "perdure" in _text(shared):
            table = _read_toml(shared).get("tool", {}).get("perdure")
            if isinstance(table, dict):
                layers.append(_Layer(f"{shared} [tool.perdure]", table, folder, is_project=True))
        if layers or (folder / ".perdure").is_dir() or (folder / ".git").exists():
            return folder, layers
    return None, []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigInvalid(f"{path} cannot be read: {problem}", path=str(path)) from problem


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  only where there is a file

    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as problem:
        raise ConfigInvalid(f"{path} is not valid TOML: {problem}", path=str(path)) from problem


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """PERDURE_STAGES_MAX=8 and so on. Variables that are near no key belong to others and are left alone."""
    given = {}
    for variable, text in environ.items():
        if not variable.startswith(_PREFIX) or not text:
            continue
        key = variable.removeprefix(_PREFIX).lower()
        if key == "agents":
            problems.append(f"environment: {variable}: agents are described in a file, such as perdure.toml")
        elif key in _KEYS:
            given[key] = text
        elif near := _nearest(key, cutoff=0.85):
            problems.append(f"environment: unknown variable {variable}, did you mean {_PREFIX}{near.upper()}?")
    return given


def _checked(layer: _Layer, key: str, given: Any, problems: list[str]) -> Any:
    """The value of a key in its final form; None, and a problem noted, if it is wrong."""
    if key not in _KEYS:
        near = _nearest(key)
        hint = f"did you mean `{near}`?" if near else f"known are {', '.join(_KEYS)}"
        problems.append(f"{layer.source}: unknown key `{key}`, {hint}")
        return None
    expected, convert = _KEYS[key]
    try:
        return convert(given, layer)
    except (ValueError, TypeError) as problem:
        said = str(problem) or f"got {given!r}"
        problems.append(f"{layer.source}: {key}: expected {expected}, {said}")
        return None


def _nearest(key: str, cutoff: float = 0.6) -> str:
    import difflib  # noqa: PLC0415  only a refusal pays for it

    return next(iter(difflib.get_close_matches(key, _KEYS, 1, cutoff)), "")


# --- how each key is read: raises ValueError when the value is wrong


def _word(given: Any, _: _Layer) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"got {given!r}")
    return given.strip()


def _count(given: Any, layer: _Layer) -> int:
    if isinstance(given, str) and layer.is_text and given.strip().isdecimal():
        given = int(given)
    if type(given) is not int or given < 1:
        raise ValueError(f"got {given!r}")
    return given


def _database(given: Any, layer: _Layer) -> str:
    text = str(given) if isinstance(given, Path) else _word(given, layer)
    return text if "://" in text else str(_path(text, layer))


def _names(given: Any, layer: _Layer) -> tuple[str, ...]:
    if isinstance(given, str) and layer.is_text:
        given = [part for part in given.split(os.pathsep) if part]
    if not isinstance(given, (list, tuple)) or not all(isinstance(item, (str, Path)) and str(item) for item in given):
        raise ValueError(f"got {given!r}")
    return tuple(str(item) for item in given)


def _command(given: Any, layer: _Layer) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ValueError(f"got {given!r}")  # noqa: TRY004  as every reader
    return _names(given, layer)


def _paths(given: Any, layer: _Layer) -> tuple[Path, ...]:
    return tuple(_path(text, layer) for text in _names(given, layer))


def _path(text: str, layer: _Layer) -> Path:
    return layer.base / Path(text).expanduser()


def _agents(given: Any, _: _Layer) -> dict[str, dict[str, Any]]:
    if not isinstance(given, dict):
        raise TypeError(f"got {given!r}")
    for name, settings in given.items():
        if not isinstance(settings, dict):
            raise TypeError(f"agents.{name} is {settings!r}")
        kind = settings.get("kind", name)
        if not isinstance(kind, str) or not kind:
            raise ValueError(f"agents.{name}.kind is {kind!r}")
    return {name: {"kind": name, **settings} for name, settings in given.items()}


_KEYS: Final[dict[str, tuple[str, Callable[[Any, _Layer], Any]]]] = {
    "database": ("a path or a URL", _database),
    "agent": ("the name of an agent", _word),
    "model": ("the name of a model", _word),
    "stages_max": ("a whole number of 1 or more", _count),
    "workflows": ("a list of paths", _paths),
    "lease_timeout_ms": ("milliseconds, 1 or more", _count),
    "lease_renew_ms": ("milliseconds, 1 or more", _count),
    "agents": ("a table for each agent, with its kind", _agents),
    "link_dirs": ("a list of folder names", _names),
    "worktree_setup": ('a list of words, such as ["npm", "ci"]', _command),
}
