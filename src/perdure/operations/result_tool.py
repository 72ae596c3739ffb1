"""`perdure_result`: the tool by which an agent hands in the value of its stage (spec/authoring.md 4).

It takes one value a turn, and only one that the author's own schema accepts: an unfit one is answered with what is
wrong, so that the agent corrects itself within the turn.

    begin_turn -> waiting -(fits)-> taken: `value` is set, every further call of the turn is refused
                  waiting -(unfit)-> waiting, `unfit` + 1; beyond the bound the agent is told to stop

A schema of an object is the tool's own schema: the value's fields are its arguments. Any other is wrapped as `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET

from perdure.errors import PerdureError
from perdure.operations.engine_tool import Reply
from perdure.operations.structured import CORRECTIONS_MAX, QUOTED_CHARS_MAX, RESULT_TOOL
from perdure.values import check

_SHARED: Final = ("$defs", "definitions")  # what references of a schema point to, from its root
_DESCRIPTION: Final = (
    "Hand in the result of your task. Call it exactly once, when the work is done; then end your turn. "
    "A result that does not fit is refused with the reason: correct it and call again."
)


class ResultTool:
    """`perdure_result` of one session. `typed` is the author's schema: it raises PerdureError for what does not fit."""

    name = RESULT_TOOL
    description = _DESCRIPTION

    def __init__(self, schema: Mapping[str, Any], typed: Callable[[Any], Any]) -> None:
        self.value: Any = UNSET  # plain JSON, as handed in
        self.unfit = 0  # values refused in this turn
        self.unfit_max = CORRECTIONS_MAX  # one more is the last of a turn
        self._typed = typed
        self._is_wrapped = schema.get("type") != "object"
        self.input_schema: Mapping[str, Any] = _wrapped(schema) if self._is_wrapped else schema

    def begin_turn(self) -> None:
        """Take one value in the coming turn."""
        self.value, self.unfit = UNSET, 0

    async def call(self, arguments: Mapping[str, Any]) -> Reply:
        """Take a value, or say why not."""
        if self.value is not UNSET:
            return Reply("A result was handed in already, and it counts. End your turn now.", is_error=True)
        if self.unfit > self.unfit_max:
            return Reply("No further correction is taken. End your turn now.", is_error=True)
        if self._is_wrapped and arguments.keys() != {"value"}:
            return self._refused('Call it with one argument, "value", that holds the result.')
        value = arguments["value"] if self._is_wrapped else dict(arguments)
        try:
            check(value, "result")
            self._typed(value)
        except PerdureError as problem:
            return self._refused(problem.message)
        self.value = value
        return Reply("The result is taken. End your turn now.")

    def _refused(self, why: str) -> Reply:
        self.unfit += 1
        what_next = "Correct it and call again." if self.unfit <= self.unfit_max else "That was the last correction."
        return Reply(f"The result cannot be used. {why[:QUOTED_CHARS_MAX]}\n{what_next}", is_error=True)


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key not in _SHARED}
    shared = {key: schema[key] for key in _SHARED if key in schema}
    root = {"type": "object", "properties": {"value": inner}, "required": ["value"], "additionalProperties": False}
    return root | shared
