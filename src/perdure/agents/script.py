"""The rehearsal agent's script: what each stage answers, turn by turn. Checked in full before anything runs.

    [implement]                       # a stage's name
    text = "Done."                    # the final message
    files = { "src/fix.py" = "..." }  # written first, inside the stage's folder
    commands = [["git", "add", "-A"]]

    [["review-*"]]                    # or a pattern; doubled brackets: one table for each turn
    value = { approved = false, problems = ["no tests"] }
    [["review-*"]]
    value = { approved = true, problems = [] }

    [deploy]
    delay = 2.5                       # seconds before anything else
    fail = { code = "rate_limited", message = "try later" }
    usage = { tokens_in = 900, tokens_out = 40, cost_nanos = 1_000_000 }

The name itself goes before patterns, patterns go in the order of the file. The last table of a list serves every
further turn. A stage without an entry is answered from the seed.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final

from msgspec import UNSET

from perdure.agents.session import TurnUsage
from perdure.errors import ConfigInvalid, PayloadInvalid
from perdure.values import check

SCRIPT_BYTES_MAX: Final = 4 * 1024 * 1024
DELAY_SECONDS_MAX: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class ScriptFailure:
    """The failure a turn ends with."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ScriptTurn:
    """One turn's answer and what happens before it."""

    text: str | None = None
    value: Any = UNSET
    files: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()
    delay: float = 0.0  # seconds
    fail: ScriptFailure | None = None
    usage: TurnUsage | None = None


class Script:
    """Answers by stage name."""

    def __init__(self, turns: Mapping[str, tuple[ScriptTurn, ...]]) -> None:
        self._turns = dict(turns)

    def turn(self, stage: str, number: int) -> ScriptTurn | None:
        """What the stage answers in its turn `number` (from 0), or None if the script says nothing about it."""
        turns = self._turns.get(stage) or next((t for p, t in self._turns.items() if fnmatchcase(stage, p)), None)
        return turns[min(number, len(turns) - 1)] if turns else None


def load_script(source: str | Path | Mapping[str, Any] | None) -> Script:
    """The script in a TOML or JSON file, or in a mapping. Raises ConfigInvalid listing every problem."""
    if source is None:
        return Script({})
    where, content = ("script", source) if isinstance(source, Mapping) else _read(Path(source))
    if not isinstance(content, Mapping):
        raise ConfigInvalid(f"{where} must be a table keyed by stage name.", got=type(content).__name__)
    problems: list[str] = []
    turns = {str(stage): _turns(str(stage), entry, problems) for stage, entry in content.items()}
    if problems:
        raise ConfigInvalid(f"{where} is not a valid rehearsal script: {'; '.join(problems)}.", problems=problems)
    return Script(turns)


def _read(path: Path) -> tuple[str, Any]:
    try:
        if path.stat().st_size > SCRIPT_BYTES_MAX:
            raise ConfigInvalid(f"{path} is larger than {SCRIPT_BYTES_MAX} bytes.", path=str(path))
        text = path.read_text(encoding="utf-8")
        return str(path), json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigInvalid(f"The rehearsal script {path} cannot be read: {error.strerror}.", path=str(path)) from error
    except ValueError as error:  # of TOML, JSON and UTF-8
        raise ConfigInvalid(f"The rehearsal script {path} cannot be parsed: {error}.", path=str(path)) from error


def _turns(stage: str, entry: Any, problems: list[str]) -> tuple[ScriptTurn, ...]:
    entries = entry if isinstance(entry, list) else [entry]
    if not entries:
        problems.append(f"{stage}: the list of turns is empty")
    return tuple(
        _turn(f"{stage}[{i}]" if isinstance(entry, list) else stage, item, problems) for i, item in enumerate(entries)
    )


def _turn(at: str, entry: Any, problems: list[str]) -> ScriptTurn:
    if not isinstance(entry, Mapping):
        problems.append(f"{at}: expected a table of text, value, files, ..., got {entry!r:.60}")
        return ScriptTurn()
    made: dict[str, Any] = {}
    for key, given in entry.items():
        reader = _READERS.get(str(key))
        if reader is None:
            near = get_close_matches(str(key), list(_READERS), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_READERS)}"
            problems.append(f"{at}: unknown key {key!r} ({hint})")
            continue
        try:
            made[key] = reader(given)
        except ValueError as error:
            problems.append(f"{at}.{key}: {error}")
        except PayloadInvalid as error:
            problems.append(f"{at}.{key}: {error.message}")
    return ScriptTurn(**made)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"expected a text, got {given!r:.60}")  # noqa: TRY004  collected as a problem like the others
    return given


def _value(given: Any) -> Any:
    check(given)
    return given


def _files(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(v, str) for v in given.values()):
        raise ValueError("expected a table of path = text")
    for path in given:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"{path!r} must be a relative path inside the stage's folder")
    return dict(given)


def _commands(given: Any) -> tuple[tuple[str, ...], ...]:
    good = isinstance(given, list) and all(
        isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv) for argv in given
    )
    if not good:
        raise ValueError('expected a list of argument lists, such as [["git", "add", "-A"]]')
    return tuple(tuple(argv) for argv in given)


def _delay(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= DELAY_SECONDS_MAX:
        raise ValueError(f"expected seconds from 0 to {DELAY_SECONDS_MAX:.0f}, got {given!r:.60}")
    return float(given)


def _failure(given: Any) -> ScriptFailure:
    if not isinstance(given, Mapping) or set(given) - {"code", "message"} or not isinstance(given.get("code"), str):
        raise ValueError('expected { code = "...", message = "..." }')
    return ScriptFailure(given["code"], _text(given.get("message", "The script says so.")))


def _usage(given: Any) -> TurnUsage:
    names = ("tokens_in", "tokens_out", "cost_nanos")
    if not isinstance(given, Mapping) or set(given) - set(names):
        raise ValueError(f"expected a table of {', '.join(names)}")
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in given.values()):
        raise ValueError("expected whole numbers that are not negative")
    return TurnUsage(**given)


_READERS: Final = {
    "text": _text,
    "value": _value,
    "files": _files,
    "commands": _commands,
    "delay": _delay,
    "fail": _failure,
    "usage": _usage,
}
