"""What happened in a run: a closed union of small records (spec/journal.md 2.2).

A run's state is the fold of these and nothing else (DESIGN 2, law 1). Each record is one row of the `events` table;
`type` and the idempotency key are columns, the rest is the JSON payload. Values of authors are kept as the exact
canonical text that values.dump made (`msgspec.Raw`), so a replay costs nothing for values nobody asks for.

Positions are text, `lane:number`: `/:3` is the fourth call of the body, `a1b2c3d4e5f60718:0` the first call of a child
lane (graph/lanes.py). `take` counts how often a position's record was set aside before this one (spec/authoring.md 2,
failures); with it a re-run has a key of its own while "the first writer wins" stays true.
"""

from __future__ import annotations

from typing import Any, Final, Union, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.errors import JournalCorrupt, snake
from perdure.states import NodeKind, NodeStatus, RunStatus


class Failure(Struct, frozen=True, omit_defaults=True):
    """Why something failed, redacted. Flags such as `retryable` are derived from `code` (failures.py)."""

    code: str
    message: str
    type: str = ""  # the exception's class name
    retry_after_ms: int | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    cause: Failure | None = None


class LaneName(Struct, frozen=True, array_like=True):
    """A lane's readable name, stored once, with the first record that mentions the lane."""

    lane: str
    parent: str
    name: str


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happened."""

    @property
    def key(self) -> str:
        """The idempotency key inside the run; the first event with a key wins."""
        raise NotImplementedError


class RunStarted(Event, frozen=True):
    """The run exists: what it runs, with which inputs. A child's carries its place."""

    name: str
    inputs: Raw
    definition: str = ""  # file path or module that holds the definition
    file_digest: str = ""
    cwd: str = ""
    options: dict[str, Any] = {}
    fingerprint: str = ""  # of a child: definition name and validated inputs

    @property
    def key(self) -> str:
        return "run"


class StatusChanged(Event, frozen=True):
    """The run moved to another status. `output` is set with `completed` and with an exit that gave one."""

    status: RunStatus
    epoch: int
    number: int  # counts the changes of this run, so a retried append has the same key
    code: str = ""
    reason: str = ""
    resumable: bool = True
    output: Raw | UnsetType = UNSET
    failure: Failure | None = None
    exited: bool = False  # ctx.exit, not a return
    failed: tuple[str, ...] = ()  # positions of the failures that ended the run
    set_aside: tuple[str, ...] = ()  # with `running`: positions whose records (and descendants') no longer count
    rerun: bool = False  # with `running`: --on-drift rerun holds from here on

    @property
    def key(self) -> str:
        return f"st:{self.number}"


class NodeStarted(Event, frozen=True):
    """A step began. `parents` are the positions of the steps it follows (spec/authoring.md 2, lanes)."""

    position: str
    kind: NodeKind
    name: str
    digest: str
    parents: tuple[str, ...] = ()
    lane: LaneName | None = None
    take: int = 0
    source: str = ""  # file:line of the author's call, for drift reports; empty when unknown
    label: str = ""
    detail: Raw | UnsetType = UNSET  # bounded, redacted view of arguments or options, for inspection only
    child_run_id: str = ""
    delay_ms: int = 0  # of a sleep: it ends at this event's time plus this

    @property
    def key(self) -> str:
        return f"s:{self.position}" + (f"~{self.take}" if self.take else "")


class NodeFinished(Event, frozen=True):
    """A step's outcome, final. `start` is set when the step was so quick that no NodeStarted was written."""

    position: str
    status: NodeStatus
    value: Raw | UnsetType = UNSET
    failure: Failure | None = None
    take: int = 0
    attempts: int = 1
    elapsed_ms: int = 0
    start: NodeStarted | None = None

    @property
    def key(self) -> str:
        return f"f:{self.position}" + (f"~{self.take}" if self.take else "")


class NodeAbandoned(Event, frozen=True):
    """The code no longer waits for this step (a sibling failed, a timeout, an exit). No outcome: shown only."""

    position: str
    status: NodeStatus
    epoch: int
    reason: str = ""
    start: NodeStarted | None = None

    @property
    def key(self) -> str:
        return f"a:{self.position}:{self.epoch}"


class NodeJoined(Event, frozen=True):
    """Many branches met: one join node stands for them, so that a node has few parents."""

    position: str
    parents: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"j:{self.position}"


class ValueRecorded(Event, frozen=True):
    """The outcome of ctx.now, random, uuid, usage: a value the code asked for. Not drawn in the graph."""

    position: str
    kind: str
    digest: str
    value: Raw
    parents: tuple[str, ...] = ()
    lane: LaneName | None = None
    take: int = 0

    @property
    def key(self) -> str:
        return f"f:{self.position}" + (f"~{self.take}" if self.take else "")


class TimerFired(Event, frozen=True):
    """A timer of the author's own code (asyncio.sleep, timeout, wait_for) fired."""

    position: str
    parents: tuple[str, ...] = ()
    lane: LaneName | None = None
    take: int = 0

    @property
    def key(self) -> str:
        return f"t:{self.position}" + (f"~{self.take}" if self.take else "")


class Patched(Event, frozen=True):
    """`ctx.patched(name)` was asked; `new` is the side this run takes for ever."""

    name: str
    new: bool

    @property
    def key(self) -> str:
        return f"p:{self.name}"


class AttemptFailed(Event, frozen=True):
    """One attempt of a step failed and another follows. For inspection."""

    position: str
    attempt: int
    failure: Failure
    epoch: int

    @property
    def key(self) -> str:
        return f"x:{self.position}:{self.epoch}:{self.attempt}"


class SessionBound(Event, frozen=True):
    """The stage talks in this agent session; durable before the first prompt (spec/authoring.md 5)."""

    position: str
    agent: str
    session_id: str
    take: int = 0
    model: str = ""

    @property
    def key(self) -> str:
        return f"b:{self.position}~{self.take}:{self.session_id}"


class UsageRecorded(Event, frozen=True):
    """What a stage has used so far: absolute counts, tokens and integer nano-dollars."""

    position: str
    number: int
    epoch: int
    tokens_in: int = 0
    tokens_out: int = 0
    cost_nanos: int | None = None  # None: unknown
    turns_unknown: int = 0  # of which the agent did not say what they used

    @property
    def key(self) -> str:
        return f"u:{self.position}:{self.epoch}:{self.number}"


class PromptAsked(Event, frozen=True):
    """A question to a person is open. `generation` counts how often it was opened."""

    position: str
    prompt_id: str
    generation: int
    kind: str
    message: str
    choices: tuple[str, ...] = ()
    initial: Raw | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET

    @property
    def key(self) -> str:
        return f"q:{self.prompt_id}:{self.generation}"


class PromptAnswered(Event, frozen=True):
    """A person answered. Of a step that is a question the value is the outcome too, in the NodeFinished after it."""

    position: str
    prompt_id: str
    generation: int
    value: Raw
    actor: str = ""

    @property
    def key(self) -> str:
        return f"qa:{self.prompt_id}"


class PromptReleased(Event, frozen=True):
    """A question was withdrawn without an answer."""

    position: str
    prompt_id: str
    generation: int
    reason: str = ""

    @property
    def key(self) -> str:
        return f"qr:{self.prompt_id}:{self.generation}"


AnyEvent = Union[
    RunStarted, StatusChanged, NodeStarted, NodeFinished, NodeAbandoned, NodeJoined, ValueRecorded, TimerFired,
    Patched, AttemptFailed, SessionBound, UsageRecorded, PromptAsked, PromptAnswered, PromptReleased,
]  # fmt: skip

TYPES: Final[dict[str, type[Event]]] = {snake(cls.__name__): cls for cls in get_args(AnyEvent)}
NAMES: Final[dict[type[Event], str]] = {cls: name for name, cls in TYPES.items()}
_DECODERS: Final = {name: msgspec.json.Decoder(cls, strict=True) for name, cls in TYPES.items()}
_ENCODER: Final = msgspec.json.Encoder()


class Stored(Struct, frozen=True):
    """An event as the journal holds it. `at` is store time in milliseconds."""

    seq: int
    run_id: str
    at: int
    event: Event


def encode(event: Event) -> str:
    """The payload text of an event."""
    return _ENCODER.encode(event).decode()


def decode(type_name: str, payload: str | bytes) -> Event:
    """The event of a row.

    Raises JournalCorrupt for an unknown type or a payload that does not fit it: such a run is shown as malformed and
    never owned.
    """
    decoder = _DECODERS.get(type_name)
    if decoder is None:
        raise JournalCorrupt(f"The journal holds an event of unknown type {type_name!r}.", type=type_name)
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise JournalCorrupt(f"The journal holds a {type_name} that cannot be read: {error}.", type=type_name) from None
