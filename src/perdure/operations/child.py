"""`ctx.workflow`: another run inside this one, in the same journal, with an id of its own.

The child's id is derived from its place, so a replay finds it without a search. Its boundary node is durable before its
code runs. A child that was interrupted, or whose failure the resume set aside, is entered again under the same ids and
its own finished steps replay (spec/journal.md 7).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.definitions import Workflow
from perdure.errors import ChildFailed, LimitReached, UsageError
from perdure.ids import child_run_id
from perdure.operations.base import Call
from perdure.operations.results import ChildResult
from perdure.values import digest, load, raw

if TYPE_CHECKING:
    from perdure.engine.runner import Run


def call_child(run: Run, child: Any, inputs: dict[str, Any], label: str | None) -> Coroutine[Any, Any, ChildResult]:
    """Take the boundary's place now. Raises UsageError, InputInvalid, LimitReached before anything is recorded."""
    if not isinstance(child, Workflow):
        raise UsageError(f"ctx.workflow takes a function made with @workflow, got {child!r}.", got=repr(child))
    if run.depth >= run.workflow.max_depth:
        chain = " > ".join((*run.ancestry(), child.name))
        raise LimitReached(
            f"Runs nest at most {run.workflow.max_depth} deep: {chain}. Raise it with @workflow(max_depth=...).",
            limit=run.workflow.max_depth, chain=chain,
        )  # fmt: skip
    validated = child.validate_inputs(inputs)
    stored = child.dump_inputs(validated)
    fingerprint = digest("boundary", child.name, stored)
    call = Call(run, "boundary", child.name, fingerprint, label=label or "", depth=3)
    return _result(call, child, validated, stored)


async def _result(call: Call, child: Workflow, inputs: dict[str, Any], stored: dict[str, Any]) -> ChildResult:
    outcome = await call.outcome(partial(_perform, child=child, inputs=inputs, stored=stored))
    event = outcome.event
    if event.status == "failed":
        failure = event.failure
        raise ChildFailed(
            f"Workflow {child.name} failed: {failure.message}",
            failure=failure, position=call.position, run_id=call.run.run_id, workflow=child.name,
        )  # fmt: skip
    return ChildResult(**load(event.value))


async def _perform(call: Call, waiter: Any, *, child: Workflow, inputs: dict[str, Any], stored: dict[str, Any]) -> None:
    run: Any = call.run
    run_id = child_run_id(run.tree.root_run_id, run.run_id, call.position)
    await run.log.commit(run, call.start(child_run_id=run_id))
    ending = await run.tree.execute_child(run, call, child, inputs, stored, run_id)
    if call.abandoned or not ending.recorded or ending.status == "paused":
        return  # no terminal: a resume enters the child again
    if ending.status in {"failed", "blocked", "killed"} and not ending.exited:
        run.log.outcome(run, call.finished("failed", failure=ending.failure), waiter)
        return
    result = {
        "run_id": run_id, "workflow": child.name, "status": _public(ending.status), "exited": ending.exited,
        "output": ending.value, "exit_reason": ending.reason,
    }  # fmt: skip
    run.log.outcome(run, call.finished("completed", value=raw(result)), waiter)


def _public(status: str) -> str:
    return "blocked" if status == "exit_blocked" else status
