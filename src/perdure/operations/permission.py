"""An agent asks whether it may: the question goes to a person by the way of `ctx.ask` (spec/control.md 5).

The question hangs at the stage's own step. Unlike a question of the author's code it dies with the agent's turn: an
agent that was interrupted asks anew, and an answer given to a question of then would be a yes to something else. So
every question has a key of its own, and what an earlier execution left open is withdrawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from perdure.agents.session import PermissionAsked, PermissionChosen, PermissionOption
from perdure.events import PromptAnswered
from perdure.operations.ask import Question
from perdure.operations.base import Call
from perdure.values import load, redact

MESSAGE_CHARS_MAX: Final = 2_000
PATHS_MAX: Final = 10  # shown


class Permissions:
    """The questions of one stage's agent."""

    def __init__(self, stage: Call, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        """`waiting()` is entered while a person thinks, who is not the agent's silence."""
        self._run: Any = stage.run
        self._stage, self._waiting = stage, waiting
        self._asked = 0

    @property
    def can_ask(self) -> bool:
        """Whether the run may wait for a person."""
        return bool(self._run.tree.options.on_prompt == "wait")

    async def choose(self, asked: PermissionAsked) -> PermissionChosen:
        """What a person chooses. Cancelled, it withdraws the question."""
        self._asked += 1
        labels = _labels(asked.options)
        question = Question(kind="select", message=_message(self._stage.name, asked), choices=tuple(labels))
        run, stage = self._run, self._stage
        with self._waiting():
            answer = await run.tree.attention.ask(run, stage, question, f"permission-{run.epoch}-{self._asked}")
        event = PromptAnswered(
            position=stage.position, prompt_id=answer.prompt_id, generation=answer.generation, value=answer.value,
            actor=answer.actor,
        )  # fmt: skip
        run.log.note(run, event)
        return PermissionChosen(labels[load(answer.value)])

    async def withdraw(self) -> None:
        """Nobody waits any more for what an earlier execution of this stage has asked, if it asked."""
        if self._stage.position in self._run.record.prompts:
            await self._run.tree.attention.withdraw_asides(self._run, self._stage)


def _labels(options: tuple[PermissionOption, ...]) -> dict[str, str]:
    """The options by what a person reads; names that are alike are told apart by their kind, then by a number."""
    counts = Counter(_folded(option.name) for option in options)
    found: dict[str, str] = {}
    for number, option in enumerate(options, 1):
        label = option.name.strip() or option.kind.replace("_", " ")
        if counts[_folded(option.name)] > 1:
            label = f"{label} ({option.kind.replace('_', ' ')})"
        if _folded(label) in {_folded(known) for known in found}:
            label = f"{label} {number}"
        found[label] = option.option_id
    return found


def _folded(label: str) -> str:
    return label.strip().casefold()


def _message(stage: str, asked: PermissionAsked) -> str:
    paths = [path for path in asked.paths if path not in asked.title]
    more = f" and {len(paths) - PATHS_MAX} more" if len(paths) > PATHS_MAX else ""
    where = f"\nFiles: {', '.join(paths[:PATHS_MAX])}{more}" if paths else ""
    text = redact(f"The agent of stage {stage} asks for permission ({asked.kind}): {asked.title}{where}")
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[:MESSAGE_CHARS_MAX]} [... cut]"
