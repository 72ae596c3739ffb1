"""What counts as an answer to a question (spec/control.md 5).

`normalise` turns what a person typed, or a program sent, into the value the workflow gets. It never guesses: what does
not fit is refused with the expected shape, and the question stays open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure import values
from perdure.errors import InputInvalid, OutputInvalid, PayloadInvalid

_YES: Final = frozenset({"true", "yes", "y", "approve", "confirm"})
_NO: Final = frozenset({"false", "no", "n", "reject", "deny"})


def normalise(kind: str, answer: Any, *, choices: Sequence[str] = (), schema: Mapping[str, Any] | None = None) -> Any:
    """The value of an answer. Raises InputInvalid that says what was expected, with the choices in its details."""
    value: bool | str | None
    match kind:
        case "confirm":
            value = _confirm(answer)
        case "select":
            value = _select(answer, choices)
        case "form":
            return _form(answer, schema or {})
        case _:
            value = answer if isinstance(answer, str) else None
    if value is None:
        raise InputInvalid(
            f"{answer!r} is no answer here: {expected(kind, choices)}.",
            got=answer,
            expected=expected(kind, choices),
            choices=list(choices),
        )
    return value


def expected(kind: str, choices: Sequence[str] = ()) -> str:
    """What to answer to a question of this kind, in words."""
    if kind == "confirm":
        return "answer yes or no"
    if kind == "select":
        return "answer one of " + ", ".join(f"{n} {label}" for n, label in enumerate(choices, 1))
    return "answer a JSON object that fits the form" if kind == "form" else "answer a text"


def _confirm(answer: Any) -> bool | None:
    if isinstance(answer, bool):
        return answer
    word = answer.strip().casefold() if isinstance(answer, str) else ""
    return True if word in _YES else False if word in _NO else None


def _select(answer: Any, choices: Sequence[str]) -> str | None:
    """A label before a number: the choice "2" is meant by "2", whatever its place."""
    if isinstance(answer, str):
        word = answer.strip().casefold()
        labelled = [choice for choice in choices if choice.strip().casefold() == word]
        if labelled:
            return answer.strip() if answer.strip() in labelled else labelled[0]
        is_number = word.isascii() and word.isdigit() and not word.startswith("0")
        number = int(word) if is_number and len(word) < 9 else 0
    else:
        number = answer if type(answer) is int else 0
    return choices[number - 1] if 1 <= number <= len(choices) else None


def _form(answer: Any, schema: Mapping[str, Any]) -> Any:
    from perdure.shapes import schema_of  # noqa: PLC0415  brings a schema validator; only forms need one

    try:
        plain = values.load(answer) if isinstance(answer, str) else answer
        values.check(plain, "answer")
        schema_of(dict(schema))[1](plain)
    except (ValueError, PayloadInvalid, OutputInvalid) as error:
        told = error.message if isinstance(error, OutputInvalid | PayloadInvalid) else "it is not JSON."
        details = error.details if isinstance(error, OutputInvalid) else {}
        raise InputInvalid(
            f"This does not fit the form: {told}", **{**details, "expected": dict(schema), "choices": []}
        ) from None
    return plain
