"""A text that a regular expression matches, best effort: walks the parse tree of Python's own parser.

Look-arounds and back references are not followed; every candidate is tried against the expression, so what is
returned does match (as JSON Schema means it: anywhere, unless anchored).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from re import _constants as op  # type: ignore[attr-defined]  # the parse tree has no public name
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

Below = Callable[[int], int]

TRIES: Final = 40
REPEATS_MAX: Final = 6  # repetitions drawn beyond the least
_PLAIN: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ALL: Final = _PLAIN + "ABCDEFGHIJKLMNOPQRSTUVWXYZ_-. /:@#+=,;!?%&*()[]{}<>~'\"\\|^$\t\n\u00e9\u4e2d"
_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"[0-9]",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"[ ]",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"[a-z0-9]",
    op.CATEGORY_NOT_WORD: r"\W",
}


def text_for(pattern: str, below: Below, length_min: int = 0, length_max: int = 4000) -> str | None:
    """A text within the length bounds that `pattern` matches, or None. `below(n)` draws a number from 0 to n - 1."""
    try:
        wanted = re.compile(pattern)
        tree = parser.parse(pattern)
    except (re.error, RecursionError):
        return None
    for attempt in range(TRIES):
        # The later half tries ever longer repetitions, for a minimum length.
        extra = REPEATS_MAX if attempt < TRIES // 2 else max(REPEATS_MAX, length_min)
        text = _made(tree, below, extra)
        for candidate in (text, text.ljust(length_min, _PLAIN[0])):
            if length_min <= len(candidate) <= length_max and wanted.search(candidate):
                return candidate
    return None


def _made(tree: Any, below: Below, extra: int) -> str:
    return "".join(_piece(code, argument, below, extra) for code, argument in tree)


def _piece(code: Any, argument: Any, below: Below, extra: int) -> str:
    if code is op.LITERAL:
        return chr(argument)
    if code is op.NOT_LITERAL:
        return _one([c for c in _PLAIN if ord(c) != argument], below)
    if code is op.ANY:
        return _one(list(_PLAIN), below)
    if code is op.IN:
        return _one(_members(argument), below)
    if code is op.BRANCH:
        return _made(argument[1][below(len(argument[1]))], below, extra)
    if code is op.SUBPATTERN:
        return _made(argument[3], below, extra)
    if code is op.ATOMIC_GROUP:
        return _made(argument, below, extra)
    if code in {op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT}:
        least, most, part = argument
        times = int(least) + below(min(int(most) - int(least), extra) + 1)
        return "".join(_made(part, below, extra) for _ in range(times))
    return ""  # anchors and look-arounds take no room


def _members(items: list[tuple[Any, Any]]) -> list[str]:
    """The characters a class may give, those of a plain alphabet first."""
    inside = items[1:] if items and items[0][0] is op.NEGATE else items

    def holds(c: str) -> bool:
        return any(_is_in(c, code, argument) for code, argument in inside)

    if inside is not items:
        return [c for c in _ALL if not holds(c)]
    literal = [chr(argument) for code, argument in items if code is op.LITERAL]
    ends = [chr(n) for code, argument in items if code is op.RANGE for n in argument]
    plain = [c for c in _PLAIN if holds(c)]
    return plain or literal or ends or [c for c in _ALL if holds(c)]


def _is_in(c: str, code: Any, argument: Any) -> bool:
    if code is op.LITERAL:
        return bool(ord(c) == argument)
    if code is op.RANGE:
        return bool(argument[0] <= ord(c) <= argument[1])
    return code is op.CATEGORY and bool(re.fullmatch(_CATEGORIES[argument], c))


def _one(items: list[str], below: Below) -> str:
    return items[below(len(items))] if items else ""
