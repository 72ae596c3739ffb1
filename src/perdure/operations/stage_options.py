"""What an author may say about a stage (spec/authoring.md 4): checked at the call, before anything is recorded.

The law: `written` holds the options exactly as the author gave them, in plain JSON, and nothing that configuration or
the engine adds. It is part of the stage's digest, so a change of the code is drift and a change of the settings is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from pathlib import PurePath
from typing import Any, Final, Literal, cast

from perdure.definitions import WORKTREE_CHOICE, is_worktree_choice, schema_of
from perdure.errors import NotAvailable, UsageError
from perdure.operations.results import TaskResult
from perdure.values import digest, dump

IDLE_TIMEOUT_S: Final = 600.0
OUTPUT_BYTES_MAX: Final = 200 * 1024  # of a stage's final message, kept inline
OUTPUT_LINES_MAX: Final = 5_000

Previous = tuple[tuple[str, str], ...]  # (name of the stage or "", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """The options of one stage. None: not given, the configuration or the engine decides."""

    agent: str | None = None
    model: str | None = None
    fallback_models: tuple[str, ...] = ()  # or "agent:NAME" for another agent
    context: Literal["fresh", "fork"] = "fresh"
    fork_from: str | None = None
    reads: tuple[str, ...] = ()
    output: str | None = None
    output_mode: Literal["inline", "file"] = "inline"
    tools: tuple[str, ...] | None = None
    cwd: str | None = None
    worktree: str | PurePath | bool = False  # False: the workflow decides
    base: str | None = None  # the commit a new worktree begins at
    timeout: float | None = None  # seconds for the whole stage
    idle_timeout: float = IDLE_TIMEOUT_S  # seconds without an event of the agent
    max_output: int = OUTPUT_BYTES_MAX
    previous: Previous = ()
    steering_contract: bool = True
    label: str = ""
    schema: dict[str, Any] | None = None  # as JSON Schema
    typed: Callable[[Any], Any] | None = None  # turns a plain answer into a value of the author's type
    written: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> StageOptions:
        """The options an author wrote. Raises UsageError for what does not fit, NotAvailable for what is to come."""
        made: dict[str, Any] = {}
        written: dict[str, Any] = {}
        for name, given in options.items():
            if name not in _READERS:
                raise UsageError(f"A stage has no option {name!r}. {_nearest(name)}", option=name)
            if given is None or (name == "worktree" and given is False):
                continue
            if name == "schema":
                made["schema"], made["typed"] = schema_of(given)
                written["schema"] = made["schema"]
                continue
            try:
                value = _READERS[name](given)
            except ValueError as problem:
                raise UsageError(f"The option {name} takes {problem}, got {given!r:.80}.", option=name) from None
            if name in _LATER:
                continue
            made[name] = value
            if name != "label":
                written[name] = _plain(value)
        if "fork_from" in made and made.get("context") != "fork":
            raise UsageError('fork_from needs context="fork".', fork_from=made["fork_from"])
        if "base" in made and not made.get("worktree"):
            raise UsageError("base= needs worktree=, the worktree that begins there.", base=made["base"])
        if made.get("output_mode") == "file" and "output" not in made:
            raise UsageError('output_mode="file" needs output=, the file to write.')
        dump(written, what="option ")
        return cls(**made, written=written)

    @property
    def where(self) -> tuple[Any, ...]:
        """Agent, cwd and worktree as they were written: sessions can be gone on with where these are the same."""
        return tuple(self.written.get(key) for key in ("agent", "cwd", "worktree"))

    def digest(self, kind: str, name: str, prompt: str | None) -> str:
        """What the call is compared by on replay."""
        return digest(kind, name, prompt, dict(self.written))


def _nearest(name: str) -> str:
    near = get_close_matches(name, _READERS, 1)
    return f"Did you mean {near[0]!r}?" if near else f"Options: {', '.join(sorted(_READERS))}."


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath):
        return {"path": str(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value


# --- readers: each gives the stored form of an option, or says in a ValueError what the option takes


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValueError("a text that is not empty")
    return given


def _texts(given: Any) -> tuple[str, ...]:
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise ValueError("a list of texts")
    items = tuple(given)
    if not all(isinstance(item, str) and item.strip() for item in items):
        raise ValueError("a list of texts that are not empty")
    return items


def _path(given: Any) -> str:
    if isinstance(given, PurePath):
        return str(given)
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise ValueError("a path")
    return given


def _paths(given: Any) -> tuple[str, ...]:
    if isinstance(given, str | bytes | PurePath) or not hasattr(given, "__iter__"):
        raise ValueError("a list of paths")
    return tuple(_path(one) for one in given)


def _worktree(given: Any) -> str | PurePath | bool:
    if not is_worktree_choice(given):
        raise ValueError(WORKTREE_CHOICE)
    return cast("str | PurePath | bool", given)


def _seconds(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given) or given <= 0:
        raise ValueError("a number of seconds above 0")
    return float(given)


def _bytes_count(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError("a number of bytes from 1 up")
    return given


def _flag(given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValueError("True or False")  # noqa: TRY004  of() turns every reader's ValueError into a UsageError
    return given


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(given: Any) -> str:
        if given not in choices:
            raise ValueError(" or ".join(f'"{choice}"' for choice in choices))
        return cast("str", given)

    return read


def _previous(given: Any) -> Previous:
    items = [given] if isinstance(given, str | TaskResult) else given
    if not isinstance(items, list | tuple) or not all(isinstance(item, str | TaskResult) for item in items):
        raise ValueError("a text, a stage's result, or a list of those")
    return tuple(("", item) if isinstance(item, str) else (item.name, item.text) for item in items)


def _to_come(what: str) -> Callable[[Any], Any]:
    def refuse(given: Any) -> Any:
        if given is False or given in ((), []):
            return None
        raise NotAvailable(f"{what} come with a later version. Leave the option out.", got=repr(given)[:80])

    return refuse


_LATER: Final = frozenset({"group", "mcp"})  # refused unless they say "none"
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "agent": _text,
    "base": _text,
    "context": _one_of("fresh", "fork"),
    "cwd": _path,
    "fallback_models": _texts,
    "fork_from": _text,
    "group": _to_come("Message groups"),
    "idle_timeout": _seconds,
    "label": _text,
    "max_output": _bytes_count,
    "mcp": _to_come("MCP servers of a stage"),
    "model": _text,
    "output": _path,
    "output_mode": _one_of("inline", "file"),
    "previous": _previous,
    "reads": _paths,
    "schema": schema_of,
    "steering_contract": _flag,
    "timeout": _seconds,
    "tools": _texts,
    "worktree": _worktree,
}
