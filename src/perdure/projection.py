"""The fold: a run's events become the state that every surface shows.

Law 1 (DESIGN 2): state = fold(events), so a `RunTree` may be thrown away and folded again at any time. `apply` is pure
in the sense that matters here: it reads nothing but its arguments and changes nothing but the tree it is given, costs
the same for the first event and the millionth (only setting records aside walks the nodes), and ignores what it has
seen (`seq <= tree.seq`). A tree belongs to one root run and holds its child runs too.

Words that depend on the clock or on the lease (crashed, elapsed, queued) are not here: inspect.py derives them.
"""

# ruff: noqa: ARG001  every arm of the fold has the same signature

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType

from perdure import events as ev
from perdure.events import Failure, Stored
from perdure.states import NODE_TERMINAL, TERMINAL, NodeKind, NodeStatus, RunStatus


class PromptState(Struct):
    """A question to a person and, once given, its answer."""

    prompt_id: str
    generation: int
    kind: str
    message: str
    choices: tuple[str, ...]
    initial: Raw | UnsetType
    schema: Raw | UnsetType
    asked_at: int
    open: bool = True
    answer: Raw | UnsetType = UNSET
    actor: str = ""


class NodeState(Struct):
    """One step: what it is, where it stands, how it ended. Times are store milliseconds."""

    run_id: str
    position: str
    kind: NodeKind
    name: str
    status: NodeStatus = "pending"
    take: int = 0
    label: str = ""
    source: str = ""
    parents: tuple[str, ...] = ()
    detail: Raw | UnsetType = UNSET
    child_run_id: str = ""
    delay_ms: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    elapsed_ms: int = 0
    attempts: int = 0
    value: Raw | UnsetType = UNSET
    failure: Failure | None = None
    attempt_failure: Failure | None = None  # of the latest attempt that was tried again
    abandoned: str | None = None  # why the code stopped waiting for it; None: it did not
    agent: str = ""
    model: str = ""
    session_id: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_nanos: int | None = None
    turns_unknown: int = 0  # of which nobody knows what they used
    prompts: dict[str, PromptState] = {}

    @property
    def open_prompts(self) -> list[PromptState]:
        """The questions of this node that wait for an answer, oldest first."""
        return [prompt for prompt in self.prompts.values() if prompt.open]


class RunState(Struct):
    """One run of the tree, root or child."""

    run_id: str
    name: str = ""
    inputs: Raw | UnsetType = UNSET
    definition: str = ""
    file_digest: str = ""
    cwd: str = ""
    options: dict[str, Any] = {}
    status: RunStatus = "pending"
    epoch: int = 0
    code: str = ""
    reason: str = ""
    resumable: bool = True
    exited: bool = False
    output: Raw | UnsetType = UNSET
    failure: Failure | None = None
    failed: tuple[str, ...] = ()
    created_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    running_since: int | None = None
    active_ms: int = 0  # time spent running before `running_since`
    nodes: dict[str, NodeState] = {}
    links: dict[str, tuple[str, ...]] = {}  # parents of what is not drawn: values, timers
    lanes: dict[str, ev.LaneName] = {}
    patches: dict[str, bool] = {}


class RunTree(Struct):
    """A root run with its children, folded up to and including `seq`."""

    root_run_id: str
    seq: int = 0
    at: int = 0  # store time of the last folded event
    runs: dict[str, RunState] = {}
    boundaries: dict[str, tuple[str, str]] = {}  # child run id -> (run id, position)

    @property
    def root(self) -> RunState:
        """The root run; empty before its first event."""
        return self.run(self.root_run_id)

    def run(self, run_id: str) -> RunState:
        """The run with that id, made when it is first mentioned."""
        state = self.runs.get(run_id)
        if state is None:
            state = self.runs[run_id] = RunState(run_id)
        return state

    def nodes(self) -> Iterable[NodeState]:
        """Every node of the tree, run by run."""
        for run in self.runs.values():
            yield from run.nodes.values()


def fold(stored: Iterable[Stored], tree: RunTree | None = None, *, root_run_id: str = "") -> RunTree:
    """Apply events in order; a new tree takes its id from `root_run_id` or from the first event."""
    for one in stored:
        if tree is None:
            tree = RunTree(root_run_id or one.run_id)
        apply(tree, one)
    return tree if tree is not None else RunTree(root_run_id)


def apply(tree: RunTree, stored: Stored) -> RunTree:
    """Fold one event into the tree, in place, and return it. An event that was folded before changes nothing."""
    if stored.seq <= tree.seq:
        return tree
    run = tree.run(stored.run_id)
    _ARMS[type(stored.event)](tree, run, stored.event, stored.at)
    tree.seq = stored.seq
    tree.at = max(tree.at, stored.at)
    return tree


# --- the run


def _run_started(tree: RunTree, run: RunState, event: ev.RunStarted, at: int) -> None:
    run.name = event.name
    run.inputs = event.inputs
    run.definition = event.definition
    run.file_digest = event.file_digest
    run.cwd = event.cwd
    run.options = event.options
    run.created_at = at


def _status_changed(tree: RunTree, run: RunState, event: ev.StatusChanged, at: int) -> None:
    if run.running_since is not None:  # a resume after a crash does not count the time nobody ran it
        until = tree.at if event.status == "running" else at
        run.active_ms += max(0, until - run.running_since)
    run.status = event.status
    run.epoch = event.epoch
    run.code = event.code
    run.reason = event.reason
    run.resumable = event.resumable
    run.exited = event.exited
    run.output = event.output
    run.failure = event.failure
    run.failed = event.failed
    run.running_since = at if event.status == "running" else None
    if event.status == "running" and run.started_at is None:
        run.started_at = at
    run.ended_at = at if event.status in TERMINAL else None
    if event.set_aside:
        _set_aside(run, event.set_aside)


def _set_aside(run: RunState, positions: tuple[str, ...]) -> None:
    """Take back the outcomes at `positions` and of every node that follows one of them."""
    followers: dict[str, list[str]] = {}
    for position, parents in [*run.links.items(), *((n.position, n.parents) for n in run.nodes.values())]:
        for parent in parents:
            followers.setdefault(parent, []).append(position)
    waiting, reached = list(positions), set(positions)
    while waiting:
        position = waiting.pop()
        following = [f for f in followers.get(position, ()) if f not in reached]
        reached.update(following)
        waiting.extend(following)
        node_at = run.nodes.get(position)
        if node_at is not None:
            _forget_outcome(node_at)


def _forget_outcome(node: NodeState) -> None:
    if node.kind == "join":
        return
    node.status = "pending"
    node.started_at = node.ended_at = None
    node.elapsed_ms = 0
    node.attempts = 0
    node.value = UNSET
    node.failure = node.attempt_failure = None
    node.abandoned = None
    for prompt in node.prompts.values():
        prompt.open = False


# --- nodes


def _node(run: RunState, position: str) -> NodeState:
    node = run.nodes.get(position)
    if node is None:
        node = run.nodes[position] = NodeState(run.run_id, position, "tool", "")
    return node


def _name_lane(run: RunState, lane: ev.LaneName | None) -> None:
    if lane is not None:
        run.lanes[lane.lane] = lane


def _node_started(tree: RunTree, run: RunState, event: ev.NodeStarted, at: int) -> None:
    _name_lane(run, event.lane)
    node = _node(run, event.position)
    known = node.started_at is not None or node.status in NODE_TERMINAL
    if event.take < node.take or (event.take == node.take and known):
        return  # the first record of a take counts, an older take never
    if event.take > node.take:
        _forget_outcome(node)
    node.kind, node.name, node.take = event.kind, event.name, event.take
    node.label, node.source, node.parents = event.label, event.source, event.parents
    node.detail, node.child_run_id, node.delay_ms = event.detail, event.child_run_id, event.delay_ms
    node.started_at = at
    node.attempts = 1
    node.status = "awaiting_input" if node.open_prompts else "running"
    if event.child_run_id:
        tree.boundaries[event.child_run_id] = (run.run_id, event.position)


def _node_finished(tree: RunTree, run: RunState, event: ev.NodeFinished, at: int) -> None:
    if event.start is not None:
        _node_started(tree, run, event.start, at)
    node = _node(run, event.position)
    if event.take < node.take:
        return
    if event.take == node.take and node.status in NODE_TERMINAL and node.abandoned is None:
        return  # the first outcome wins
    node.take = event.take
    node.status = event.status
    node.value = event.value
    node.failure = event.failure
    node.attempts = event.attempts
    node.abandoned = None
    node.ended_at = at
    if event.start is not None:
        node.started_at = at - event.elapsed_ms
    node.elapsed_ms = event.elapsed_ms or (at - node.started_at if node.started_at is not None else 0)


def _node_abandoned(tree: RunTree, run: RunState, event: ev.NodeAbandoned, at: int) -> None:
    if event.start is not None:
        _node_started(tree, run, event.start, at)
    node = _node(run, event.position)
    if node.status in NODE_TERMINAL and node.abandoned is None:
        return
    node.status = event.status
    node.abandoned = event.reason
    node.ended_at = at
    node.elapsed_ms = at - node.started_at if node.started_at is not None else 0


def _node_joined(tree: RunTree, run: RunState, event: ev.NodeJoined, at: int) -> None:
    node = _node(run, event.position)
    node.kind, node.name, node.status, node.parents = "join", "join", "completed", event.parents
    node.started_at = node.ended_at = at


def _revive(node: NodeState) -> None:
    """An abandoned step shows signs of life: a resumed run does it again, without a second start event."""
    if node.abandoned is not None:
        node.abandoned = None
        node.status = "running"
        node.ended_at = None


def _attempt_failed(tree: RunTree, run: RunState, event: ev.AttemptFailed, at: int) -> None:
    node = _node(run, event.position)
    _revive(node)
    node.attempt_failure = event.failure
    if node.status not in NODE_TERMINAL:
        node.attempts = event.attempt + 1


def _session_bound(tree: RunTree, run: RunState, event: ev.SessionBound, at: int) -> None:
    node = _node(run, event.position)
    if event.take < node.take:
        return
    _revive(node)
    node.agent, node.session_id, node.model = event.agent, event.session_id, event.model


def _usage_recorded(tree: RunTree, run: RunState, event: ev.UsageRecorded, at: int) -> None:
    node = _node(run, event.position)
    node.tokens_in, node.tokens_out, node.cost_nanos = event.tokens_in, event.tokens_out, event.cost_nanos
    node.turns_unknown = event.turns_unknown


def _value_recorded(tree: RunTree, run: RunState, event: ev.ValueRecorded | ev.TimerFired, at: int) -> None:
    _name_lane(run, event.lane)
    run.links[event.position] = event.parents


def _patched(tree: RunTree, run: RunState, event: ev.Patched, at: int) -> None:
    run.patches[event.name] = event.new


# --- questions


def _prompt_asked(tree: RunTree, run: RunState, event: ev.PromptAsked, at: int) -> None:
    node = _node(run, event.position)
    _revive(node)
    node.prompts[event.prompt_id] = PromptState(
        event.prompt_id, event.generation, event.kind, event.message, event.choices, event.initial, event.schema, at
    )
    if node.status in {"pending", "running"}:
        node.status = "awaiting_input"


def _prompt_answered(tree: RunTree, run: RunState, event: ev.PromptAnswered, at: int) -> None:
    node = _node(run, event.position)
    prompt = node.prompts.get(event.prompt_id)
    if prompt is not None:
        prompt.open = False
        prompt.answer = event.value
        prompt.actor = event.actor
    _go_on(node)


def _prompt_released(tree: RunTree, run: RunState, event: ev.PromptReleased, at: int) -> None:
    node = _node(run, event.position)
    prompt = node.prompts.get(event.prompt_id)
    if prompt is not None and prompt.generation == event.generation:
        prompt.open = False
    _go_on(node)


def _go_on(node: NodeState) -> None:
    if node.status == "awaiting_input" and not node.open_prompts:
        node.status = "running"


_ARMS: Final[dict[type[ev.Event], Callable[[RunTree, RunState, Any, int], None]]] = {
    ev.RunStarted: _run_started,
    ev.StatusChanged: _status_changed,
    ev.NodeStarted: _node_started,
    ev.NodeFinished: _node_finished,
    ev.NodeAbandoned: _node_abandoned,
    ev.NodeJoined: _node_joined,
    ev.ValueRecorded: _value_recorded,
    ev.TimerFired: _value_recorded,
    ev.Patched: _patched,
    ev.AttemptFailed: _attempt_failed,
    ev.SessionBound: _session_bound,
    ev.UsageRecorded: _usage_recorded,
    ev.PromptAsked: _prompt_asked,
    ev.PromptAnswered: _prompt_answered,
    ev.PromptReleased: _prompt_released,
}
