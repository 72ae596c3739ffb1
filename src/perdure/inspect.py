"""The read model: what a run and its steps look like right now, for every surface alike.

A view is computed from the catalog row, the open questions and, once a run is opened, its folded events. Words that
depend on the clock or on the lease are derived here and stored nowhere: `crashed`, `quit`, `awaiting_input`. Inspection
never claims a run and never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from perdure import failures
from perdure.events import Failure
from perdure.host.identity import here
from perdure.ids import node_id
from perdure.projection import NodeState, RunState, RunTree
from perdure.states import NODE_TERMINAL, TERMINAL, is_resumable_status
from perdure.store.prompts import Prompt
from perdure.store.runs import RunRow
from perdure.values import load

ACTIVE: Final = frozenset({"running", "awaiting_input"})
TEXT_CHARS_MAX: Final = 1024


class PromptView(Struct, frozen=True):
    """An open question."""

    run_id: str
    stage_id: str
    prompt_id: str
    generation: int
    kind: str
    message: str
    choices: tuple[str, ...]
    schema: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON output has it."""
        told = {"stage_id": self.stage_id, "prompt_id": self.prompt_id, "kind": self.kind, "message": self.message}
        return {**told, "choices": list(self.choices)} | ({"schema": self.schema} if self.schema else {})


class StageView(Struct, frozen=True):
    """One step. Times are store milliseconds; `depth` counts the runs above it."""

    stage_id: str
    run_id: str
    position: str
    lane: str
    name: str
    kind: str
    status: str
    display_status: str
    depth: int
    label: str
    source: str
    parents: tuple[str, ...]
    child_run_id: str
    started_at: int | None
    ended_at: int | None
    elapsed_ms: int | None
    attempts: int
    agent: str
    model: str
    session_id: str
    tokens_in: int
    tokens_out: int
    cost_nanos: int | None
    turns_unknown: int
    error: dict[str, Any] | None
    abandoned: str | None
    question: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON output has it."""
        told = {name: getattr(self, name) for name in self.__struct_fields__ if name not in {"depth", "question"}}
        return told | {"parents": list(self.parents)}


class RunView(Struct, frozen=True):
    """One run. `stages` and `output` are there once the run was opened (`open_run`), not in lists."""

    run_id: str
    name: str
    status: str
    display_status: str
    resumable: bool
    is_live: bool
    reason: str
    cwd: str
    definition: str
    created_at: int
    started_at: int | None
    ended_at: int | None
    elapsed_ms: int
    nodes_done: int
    tokens_in: int
    tokens_out: int
    cost_nanos: int
    error: dict[str, Any] | None
    awaiting_input: tuple[PromptView, ...]
    agent: str | None = None
    stages: tuple[StageView, ...] | None = None
    nodes_count: int = 0
    inputs: Any = None
    output: Any = None
    has_output: bool = False

    def to_status(self) -> dict[str, Any]:
        """The entry of `perdure status --json` (spec/control.md 10); `active_stages` is null in lists."""
        active = None
        if self.stages is not None:
            active = [s.to_dict() for s in self.stages if s.display_status in ACTIVE]
        return {
            "run_id": self.run_id,
            "name": self.name,
            "status": self.status,
            "display_status": self.display_status,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "elapsed_ms": self.elapsed_ms,
            "active_stages": active,
            "awaiting_input": [prompt.to_dict() for prompt in self.awaiting_input],
            "budget": None,
            "error": self.error,
            "resumable": self.resumable,
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything, for `perdure show --json`."""
        spend = {"tokens_in": self.tokens_in, "tokens_out": self.tokens_out, "cost_nanos": self.cost_nanos}
        return self.to_status() | {
            "reason": self.reason,
            "cwd": self.cwd,
            "definition": self.definition,
            "agent": self.agent,
            "created_at": self.created_at,
            "nodes_done": self.nodes_done,
            "spend": spend,
            "inputs": self.inputs,
            "output": self.output,
            "stages": [stage.to_dict() for stage in self.stages or ()],
        }


# --- what is derived


def is_live(row: RunRow, now_ms: int) -> bool:
    """Whether a process owns the run: the lease is in time and its process is not proven gone."""
    if row.holder is None or row.lease_until is None or now_ms > row.lease_until:
        return False
    return not row.process or not here().proves_gone(row.process, one_machine=True)


def is_resumable(row: RunRow, now_ms: int) -> bool:
    """The one predicate of every surface and of the verb itself, so that no run is offered and then refused."""
    return (
        row.parent_run_id is None
        and row.deleted_at is None
        and is_resumable_status(row.status, resumable=row.resumable)
        and not is_live(row, now_ms)
        and (not row.definition.endswith(".py") or Path(row.definition).is_file())
    )


def display_status(row: RunRow, *, live: bool) -> str:
    """The status that people see."""
    if row.status == "running" and not live:
        return "crashed"
    if row.status == "paused" and row.reason == "quit":
        return "quit"
    if row.status == "exit_blocked":
        return "blocked"
    return "awaiting_input" if row.status == "running" and row.prompts_open else row.status


def _node_status(node: NodeState, run: RunState, *, live: bool) -> str:
    """A step as people see it: nothing runs in a run that does not."""
    if node.status in NODE_TERMINAL or node.status == "pending":
        return node.status
    if run.status in TERMINAL:
        return "cancelled"
    if run.status in {"paused", "blocked"}:
        return run.status
    return node.status if live else "crashed"


def _error(row: RunRow) -> dict[str, Any] | None:
    return {"code": row.error_code, "message": row.error_message} if row.error_code else None


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {"code": failure.code, "message": failures.user_message(failure)[:TEXT_CHARS_MAX], "type": failure.type}


def _plain(value: Raw | UnsetType) -> Any:
    return None if isinstance(value, UnsetType) else load(value)


# --- views


def run_view(
    row: RunRow, now_ms: int, prompts: Sequence[Prompt] = (), tree: RunTree | None = None, *, latest: int | None = None
) -> RunView:
    """The view of a run from its row, its open questions and, if it was opened, its fold.

    `latest` bounds the steps to the newest ones, so that a live screen costs the same for any length of run.
    """
    live = is_live(row, now_ms)
    # The catalog does not know of pauses: in lists the time runs from the first start to the last change, and only an
    # opened run leaves out what it was stopped for.
    until = row.ended_at or (now_ms if live else row.updated_at)
    view = RunView(
        run_id=row.run_id,
        name=row.name,
        status=row.status,
        display_status=display_status(row, live=live),
        resumable=is_resumable(row, now_ms),
        is_live=live,
        reason=row.reason,
        cwd=row.cwd,
        definition=row.definition,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        elapsed_ms=max(0, until - row.started_at) if row.started_at is not None else 0,
        nodes_done=row.nodes_done,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        cost_nanos=row.cost_nanos,
        error=_error(row),
        awaiting_input=() if row.status in TERMINAL else tuple(_prompt_view(prompt) for prompt in prompts),
    )
    return view if tree is None else _opened(view, tree, now_ms, latest)


def _opened(view: RunView, tree: RunTree, now_ms: int, latest: int | None) -> RunView:
    run = tree.runs.get(view.run_id) or RunState(view.run_id)
    active_ms = run.active_ms
    if run.running_since is not None:
        active_ms += max(0, (now_ms if view.is_live else tree.at) - run.running_since)
    return replace(
        view,
        elapsed_ms=active_ms,
        agent=run.options.get("agent"),
        stages=tuple(stages(tree, view.run_id, now_ms if view.is_live else tree.at, live=view.is_live, latest=latest)),
        nodes_count=sum(len(one.nodes) for one in tree.runs.values()),
        inputs=_plain(run.inputs),
        error=_failure(run.failure) or view.error,
        output=_plain(run.output),
        has_output=run.output is not UNSET,
    )


def _prompt_view(prompt: Prompt) -> PromptView:
    question = prompt.question
    return PromptView(
        run_id=prompt.run_id,
        stage_id=node_id(prompt.run_id, prompt.position),
        prompt_id=prompt.prompt_id,
        generation=prompt.generation,
        kind=question.get("kind", "input"),
        message=question.get("message", ""),
        choices=tuple(question.get("choices") or ()),
        schema=question.get("schema"),
    )


def stages(tree: RunTree, run_id: str, now_ms: int, *, live: bool, latest: int | None = None) -> list[StageView]:
    """The steps of a run in the order they began, those of a child run behind the step that stands for it."""
    newest = islice(_newest_first(tree, run_id, 0), latest)
    return [_stage_view(node, run, now_ms, live=live, depth=depth) for node, run, depth in newest][::-1]


def _newest_first(tree: RunTree, run_id: str, depth: int) -> Iterator[tuple[NodeState, RunState, int]]:
    run = tree.runs.get(run_id)
    for node in reversed(run.nodes.values()) if run else ():
        if node.kind == "join":
            continue
        if node.child_run_id:
            yield from _newest_first(tree, node.child_run_id, depth + 1)
        yield node, run or RunState(run_id), depth


def _stage_view(node: NodeState, run: RunState, now_ms: int, *, live: bool, depth: int) -> StageView:
    elapsed = node.elapsed_ms if node.ended_at is not None else None
    if elapsed is None and node.started_at is not None:
        elapsed = max(0, now_ms - node.started_at)
    waiting = node.open_prompts
    return StageView(
        stage_id=node_id(node.run_id, node.position),
        run_id=node.run_id,
        position=node.position,
        lane=lane_path(run, node.position.rpartition(":")[0]),
        name=node.name,
        kind=node.kind,
        status=node.status,
        display_status=_node_status(node, run, live=live),
        depth=depth,
        label=node.label,
        source=node.source,
        parents=tuple(node_id(run.run_id, p) for p in drawn_parents(run, node.parents)),
        child_run_id=node.child_run_id,
        started_at=node.started_at,
        ended_at=node.ended_at,
        elapsed_ms=elapsed,
        attempts=node.attempts,
        agent=node.agent,
        model=node.model,
        session_id=node.session_id,
        tokens_in=node.tokens_in,
        tokens_out=node.tokens_out,
        cost_nanos=node.cost_nanos,
        turns_unknown=node.turns_unknown,
        error=_failure(node.failure),
        abandoned=node.abandoned,
        question=waiting[0].message[:TEXT_CHARS_MAX] if waiting else "",
    )


def drawn_parents(run: RunState, parents: Iterable[str]) -> tuple[str, ...]:
    """The nearest drawn steps before: values, timers and joins are looked through."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    waiting = list(parents)[::-1]
    while waiting:
        position = waiting.pop()
        if position in seen:
            continue
        seen.add(position)
        node = run.nodes.get(position)
        if node is not None and node.kind != "join":
            found[position] = None
        else:
            waiting.extend(node.parents if node is not None else run.links.get(position, ()))
    return tuple(found)


def lane_path(run: RunState, lane: str) -> str:
    """A lane's readable path: `/` for the body, `/review.0` for a branch of it."""
    parts: list[str] = []
    while lane in run.lanes and len(parts) < 32:
        parts.append(run.lanes[lane].name)
        lane = run.lanes[lane].parent
    return "/" + "/".join(reversed(parts))
