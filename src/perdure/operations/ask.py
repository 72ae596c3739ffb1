"""`ctx.ask`: a question to a person, answered from any process (spec/control.md 5).

The question is durable before it is shown, and its answer's home is a row that any process may write; the owner, or
the next one, turns it into the step's outcome. So it is never asked twice, whoever dies in between.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from perdure import failures
from perdure.answers import normalise
from perdure.definitions import schema_of
from perdure.errors import HumanInputUnavailable, InputInvalid, UsageError
from perdure.events import PromptAnswered, PromptAsked
from perdure.operations.base import Call
from perdure.values import digest, load, raw

if TYPE_CHECKING:
    from perdure.engine.runner import Run

_NO_DEFAULT: Final = object()


class Question(Struct, frozen=True, kw_only=True):
    """What is asked. `initial` and `default` are plain JSON; `default` answers when nobody may be asked."""

    kind: str
    message: str
    choices: tuple[str, ...] = ()
    initial: Any = None
    schema: dict[str, Any] | None = None
    default: Any = _NO_DEFAULT

    @property
    def has_default(self) -> bool:
        """Whether the author said what holds when nobody may be asked."""
        return self.default is not _NO_DEFAULT


class Ask:
    """`ctx.ask`."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        """Asks on behalf of one run."""
        self._run = run

    def input(self, message: str, *, initial: str = "", default: Any = _NO_DEFAULT) -> Coroutine[Any, Any, str]:
        """A line of text, verbatim."""
        return self._ask(Question(kind="input", message=message, initial=initial, default=default))

    def editor(self, message: str, *, initial: str = "", default: Any = _NO_DEFAULT) -> Coroutine[Any, Any, str]:
        """A longer text, verbatim."""
        return self._ask(Question(kind="editor", message=message, initial=initial, default=default))

    def confirm(self, message: str, *, default: Any = _NO_DEFAULT) -> Coroutine[Any, Any, bool]:
        """Yes or no."""
        return self._ask(Question(kind="confirm", message=message, default=default))

    def select(self, message: str, choices: Sequence[str], *, default: Any = _NO_DEFAULT) -> Coroutine[Any, Any, str]:
        """One of `choices`. Raises UsageError when there are none or when two are alike."""
        labels = tuple(choices)
        if not labels or len({label.strip().casefold() for label in labels}) < len(labels):
            raise UsageError("ctx.ask.select needs choices, each different.", choices=list(labels))
        return self._ask(Question(kind="select", message=message, choices=labels, default=default))

    def form(self, model: Any, message: str = "", *, default: Any = _NO_DEFAULT) -> Coroutine[Any, Any, Any]:
        """A form described by a pydantic model or a JSON Schema; the answer is of that type."""
        schema, typed = schema_of(model)
        return self._ask(Question(kind="form", message=message, schema=schema, default=default), typed)

    def _ask(self, question: Question, typed: Any = None) -> Coroutine[Any, Any, Any]:
        if question.has_default:
            question = replace(question, default=_fitting_default(question))
        asked = digest(
            "prompt", question.kind, question.message, list(question.choices), question.initial, question.schema
        )
        name = question.message.strip().splitlines()[0][:60] if question.message.strip() else question.kind
        call = Call(self._run, "prompt", name, asked, label=question.kind, depth=3)
        return _answer(call, question, typed)


def _fitting_default(question: Question) -> Any:
    try:
        return normalise(question.kind, question.default, choices=question.choices, schema=question.schema)
    except InputInvalid as unfit:
        raise UsageError(
            f"The default of the question {question.message!r} is no answer to it: {unfit.message}", **unfit.details
        ) from unfit


async def _answer(call: Call, question: Question, typed: Any) -> Any:
    outcome = await call.outcome(partial(_perform, question=question))
    event = outcome.event
    if event.status == "failed":
        raise HumanInputUnavailable(
            event.failure.message, failure=event.failure, position=call.position, run_id=call.run.run_id
        )
    value = load(event.value)
    return value if typed is None else typed(value)


async def _perform(call: Call, waiter: Any, *, question: Question) -> None:
    run: Any = call.run
    policy = run.tree.options.on_prompt
    if policy != "wait":
        if policy == "default" and question.has_default:
            run.log.start_lazily(run, call.start())
            run.log.outcome(run, call.finished("completed", value=raw(question.default)), waiter)
            return
        error = HumanInputUnavailable(
            f"The run asks {question.message!r} and was told not to wait for a person. Run it without --no-input, "
            "or give the question a default."
        )
        run.log.start_lazily(run, call.start())
        run.log.outcome(run, call.finished("failed", failure=failures.classify(error, origin="engine")), waiter)
        return
    await run.log.commit(run, call.start())
    answer = await run.tree.attention.ask(run, call, question)
    event = PromptAnswered(
        position=call.position,
        prompt_id=answer.prompt_id,
        generation=answer.generation,
        value=answer.value,
        actor=answer.actor,
    )
    run.log.note(run, event)
    run.log.outcome(run, call.finished("completed", value=answer.value), waiter)


def asked_event(call: Call, question: Question, prompt_id: str, generation: int) -> PromptAsked:
    """The event that says the question is open."""
    return PromptAsked(
        position=call.position,
        prompt_id=prompt_id,
        generation=generation,
        kind=question.kind,
        message=question.message,
        choices=question.choices,
        initial=UNSET if question.initial is None else raw(question.initial),
        schema=UNSET if question.schema is None else raw(question.schema),
    )
