"""Structured answers: the value of a turn, checked, and what to say when it does not fit (spec/authoring.md 4).

Agents give a value in one of three ways (`How`):

    given   beside the message, by themselves
    tool    by the engine's tool perdure_result (result_tool.py); if they lack or ignore it, as text
    text    as one fenced JSON block, or a message that is nothing but JSON

The law: a value counts only if the author's own schema accepts it, whoever made it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn

from msgspec import UNSET

from perdure.agents.session import Turn
from perdure.errors import PerdureError

How = Literal["given", "tool", "text"]

RESULT_TOOL: Final = "perdure_result"
CORRECTIONS_MAX: Final = 3  # of one answer, within turns and as follow-ups
QUOTED_CHARS_MAX: Final = 2_000  # of an error, in a follow-up

_FENCED: Final = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)^ {0,3}\1[ \t]*$", re.MULTILINE | re.DOTALL
)


class AnswerUnfit(Exception):
    """The answer holds no value that fits; the message says why, for the agent to read."""


def value_of(turn: Turn, typed: Callable[[Any], Any], how: How) -> Any:
    """The plain JSON value of a turn. Raises AnswerUnfit."""
    value = turn.value if how != "text" else UNSET
    if value is UNSET:
        value = _in_text(turn.text, how)
    try:
        typed(value)
    except PerdureError as problem:
        raise AnswerUnfit(problem.message) from problem
    return value


def _in_text(text: str, how: How) -> Any:
    try:
        return parse(text)
    except AnswerUnfit as unfit:
        if how != "tool":
            raise
        raise AnswerUnfit(f"No result was handed in with the tool {RESULT_TOOL}. {unfit}") from None


def parse(text: str) -> Any:
    """The one JSON value in a message: its fenced block, or the whole message. Raises AnswerUnfit."""
    blocks = [(match[2].lower(), match[3]) for match in _FENCED.finditer(text)]
    marked = [body for language, body in blocks if language == "json"]
    found = marked or [body for language, body in blocks if not language]
    if len(found) > 1:
        raise AnswerUnfit(f"The message holds {len(found)} fenced JSON blocks, it must hold exactly one.")
    if not found and not text.strip().startswith(("{", "[", '"')) and not _is_bare(text):
        raise AnswerUnfit("The message holds no fenced JSON block.")
    return _decoded(found[0] if found else text)


def correction(problem: AnswerUnfit, how: How) -> str:
    """The follow-up that asks for another answer and quotes what was wrong."""
    by = {
        "given": "",
        "tool": f" with the tool {RESULT_TOOL}; only if you have no such tool, as exactly one fenced JSON block",
        "text": " as exactly one fenced JSON block",
    }[how]
    return f"Your answer cannot be used. {str(problem)[:QUOTED_CHARS_MAX]}\nGive the corrected answer in full{by}."


def _is_bare(text: str) -> bool:
    """Whether the whole message is a JSON scalar."""
    return re.fullmatch(r"\s*(?:true|false|null|-?\d[\d.eE+-]*)\s*", text) is not None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        raise AnswerUnfit(f"The JSON cannot be parsed: {problem}.") from None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
