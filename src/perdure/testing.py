"""Rehearsals: run a workflow to its end in a test, with no model, no cost and no network.

    result = rehearse(fix, issue="...", script={"review-*": {"value": {"approved": True}}}, answers={"Keep *": True})
    assert result.status == "completed"

The engine, the journal and the record are the real ones; only the agents (agents/rehearsal.py) and the person who
answers questions are played. The law: the same workflow, inputs, script, seed and answers give the same course, and a
question without an answer ends the rehearsal with an error instead of waiting for somebody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from perdure.agents.rehearsal import RehearsalAgent
from perdure.agents.script import Script, load_script
from perdure.answers import normalise
from perdure.config import Config
from perdure.definitions import Workflow
from perdure.engine.attention import Answer, Attention
from perdure.engine.engine import Ending, Engine, RunOptions
from perdure.engine.loop import LaneLoop
from perdure.errors import HumanInputUnavailable, InputInvalid, PerdureError, Suspend, UsageError
from perdure.ids import node_id
from perdure.operations.ask import Question, asked_event
from perdure.projection import NodeState, fold
from perdure.store import Database, open_database
from perdure.store.journal import Journal
from perdure.values import load, raw

if TYPE_CHECKING:
    from perdure.engine.runner import Run
    from perdure.operations.base import Call

__all__ = ["Rehearsal", "RehearsedNode", "rehearse"]

AGENT = "rehearsal"


@dataclass(frozen=True, slots=True)
class RehearsedNode:
    """One step. `value` is plain JSON: a stage's value (its text without a schema), a tool's result, an answer."""

    kind: str
    name: str
    status: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """How a rehearsal ended. `output` is plain JSON; `error` says `code: message`, `reason` is what `ctx.exit` gave."""

    status: str
    output: Any
    run_id: str
    nodes: tuple[RehearsedNode, ...]  # in the order they began, those of child runs after their parent's
    error: str = ""
    reason: str = ""


def rehearse(
    workflow: Workflow,
    /,
    *,
    script: str | Path | Mapping[str, Any] | None = None,
    seed: int = 0,
    answers: Mapping[str, Any] | None = None,
    cwd: str | Path | None = None,
    database: str | Path | None = None,
    **inputs: Any,
) -> Rehearsal:
    """Run a workflow to its end with every agent replaced by the rehearsal agent; blocks until then.

    `answers` maps a question, or a pattern of it such as "Deploy *", to its answer; a list answers one asking after the
    other, its last item every further one. Stages work in `cwd`, else in an empty folder that is removed afterwards; so
    is the database unless `database` names a file. Git worktrees are not made: stages that want one work in `cwd` too.
    Works inside a running event loop too, in a thread of its own.

    Raises InputInvalid and ConfigInvalid before anything runs; HumanInputUnavailable for a question without an answer,
    InputInvalid for an answer that does not fit. A workflow that fails is a result with status "failed".
    """
    if not isinstance(workflow, Workflow):
        raise UsageError(f"rehearse takes a function made with @workflow, got {workflow!r}.", got=repr(workflow))
    play = _Play(workflow, workflow.validate_inputs(inputs), load_script(script), seed, dict(answers or {}))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perdure-rehearsal-", ignore_cleanup_errors=True)))
        (folder / "work").mkdir()
        place = (folder / "work" if cwd is None else Path(cwd).absolute(), database or folder / "rehearsal.db", folder)
        begin = partial(_run_on_loop, play, *place)
        if not _is_inside_a_loop():
            return begin()
        return stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="rehearsal")).submit(begin).result()


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Play:
    """What is played."""

    workflow: Workflow
    inputs: dict[str, Any]
    script: Script
    seed: int
    answers: dict[str, Any]

    def agent(self, name: str) -> RehearsalAgent:
        """Whatever agent a stage names is played."""
        return RehearsalAgent(name, self.seed, self.script)


def _run_on_loop(play: _Play, cwd: Path, database: str | Path, scratch: Path) -> Rehearsal:
    with asyncio.Runner(loop_factory=LaneLoop) as runner:
        return runner.run(_rehearsed(play, cwd, database, scratch))


async def _rehearsed(play: _Play, cwd: Path, place: str | Path, scratch: Path) -> Rehearsal:
    database = open_database(place)
    try:
        config = Config(config_dir=scratch, data_dir=scratch, database=str(place))
        person = _Person(database, play.answers)
        async with Engine(database, config, agents=play.agent) as engine:
            options = RunOptions(cwd=cwd, agent=AGENT, seed=play.seed, worktrees=False)
            execution = await engine.start(play.workflow, play.inputs, options)
            execution.tree.attention = person  # before the body's first turn of the loop
            ending = await execution.wait()
        if person.problem is not None:
            raise person.problem
        return await _told(database, execution.run_id, ending)
    finally:
        await database.close()


class _Person(Attention):
    """Answers every question at once, from what the test gave."""

    def __init__(self, database: Database, answers: dict[str, Any]) -> None:
        super().__init__(database)
        self.problem: PerdureError | None = None
        self._answers = answers
        self._given: dict[str, int] = {}  # how often each entry was used

    async def ask(self, run: Run, call: Call, question: Question, aside: str = "") -> Answer:
        """The answer, recorded as a person's. Without one the run ends here, and `problem` says why."""
        try:
            value = self._value(question)
        except PerdureError as problem:
            self.problem = self.problem or problem
            run.tree.stop(Ending(status="cancelled", reason="unanswered"), Suspend("unanswered"))
            await asyncio.get_running_loop().create_future()  # until the run takes this step down
        prompt_id = node_id(run.run_id, call.position + aside)
        await run.log.commit(run, asked_event(call, question, prompt_id, 1))
        return Answer(prompt_id, 1, raw(value), AGENT)

    def _value(self, question: Question) -> Any:
        message = question.message
        entry = (
            message if message in self._answers else next((p for p in self._answers if fnmatchcase(message, p)), None)
        )
        given = None if entry is None else self._answers[entry]
        if entry is None or given == []:
            if question.has_default:
                return question.default
            raise HumanInputUnavailable(
                f"The rehearsal was asked {message!r} ({question.kind}) and nobody answers. "
                f"Give rehearse(..., answers={{{message.splitlines()[0] if message else '*'!r}: ...}}).",
                question=message, kind=question.kind, answers=list(self._answers),
            )  # fmt: skip
        number = self._given[entry] = self._given.get(entry, 0) + 1
        value = given[min(number, len(given)) - 1] if isinstance(given, list) else given
        try:
            return normalise(question.kind, value, choices=question.choices, schema=question.schema)
        except InputInvalid as unfit:
            raise InputInvalid(f"Question {message!r}: {unfit.message}", **unfit.details) from unfit


async def _told(database: Database, run_id: str, ending: Ending) -> Rehearsal:
    tree = fold(await Journal(database).load(run_id), root_run_id=run_id)
    failure = ending.failure
    return Rehearsal(
        status="blocked" if ending.status == "exit_blocked" else ending.status,
        output=ending.value,
        run_id=run_id,
        nodes=tuple(_node(node) for node in tree.nodes() if node.kind != "join"),
        error="" if failure is None else f"{failure.code}: {failure.message}",
        reason=ending.reason,
    )


def _node(node: NodeState) -> RehearsedNode:
    value = None if node.value is UNSET else load(node.value)
    if node.kind == "stage" and value is not None:
        value = value.get("value", value.get("text"))
    return RehearsedNode(node.kind, node.name, node.status, value)
