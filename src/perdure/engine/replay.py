"""The record of one run: what its journal says about each position, and the order of the outcomes.

A pure fold over the run's events. A call is looked up here by position and compared by digest; the order decides when
its outcome is released (engine/order.py).

Set aside (spec/authoring.md 2, failures): a resume drops the failures that ended the run and every record that has
one of them among its ancestors. What is re-run then writes under the next `take` of its position, so "the first writer
wins" stays true for each take.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from perdure.events import (
    Event,
    LaneName,
    NodeFinished,
    NodeJoined,
    NodeStarted,
    Patched,
    PromptAnswered,
    PromptAsked,
    RunStarted,
    SessionBound,
    StatusChanged,
    Stored,
    TimerFired,
    UsageRecorded,
    ValueRecorded,
)
from perdure.graph.lanes import BODY


class Outcome(Struct):
    """A recorded outcome. `at` is store time in milliseconds."""

    position: str
    seq: int
    at: int
    event: NodeFinished | ValueRecorded | TimerFired

    @property
    def is_timer(self) -> bool:
        """Whether it is a timer of the author's own code; one that is not set again is skipped, not drift."""
        return type(self.event) is TimerFired


@dataclass(slots=True)
class Record:
    """What is recorded of one run."""

    run_id: str
    started: RunStarted | None = None
    started_at: int = 0
    status: str = "pending"
    resumable: bool = True
    epoch: int = 0
    changes: int = 0  # how many StatusChanged there are
    failed: tuple[str, ...] = ()  # positions of the failures that ended the run
    rerun: bool = False
    last_at: int = 0
    starts: dict[str, NodeStarted] = field(default_factory=dict)
    started_times: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    takes: dict[str, int] = field(default_factory=dict)
    patches: dict[str, bool] = field(default_factory=dict)
    sessions: dict[str, SessionBound] = field(default_factory=dict)
    usage: dict[str, UsageRecorded] = field(default_factory=dict)  # kept when a record is set aside: it was spent
    prompts: dict[str, PromptAsked] = field(default_factory=dict)
    answers: dict[str, PromptAnswered] = field(default_factory=dict)
    lanes: dict[str, LaneName] = field(default_factory=dict)
    passed: dict[str, None] = field(default_factory=dict)  # outcomes already released in this execution
    _unasked: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, run_id: str, events: Iterable[Stored]) -> Record:
        """Fold the events of one run; those of other runs are skipped."""
        record = cls(run_id)
        for stored in events:
            if stored.run_id == run_id:
                record.apply(stored)
        record.ready()
        return record

    def apply(self, stored: Stored) -> None:
        """Take one event in."""
        event = stored.event
        self.last_at = stored.at
        kind = type(event)
        if kind is NodeFinished:
            if event.start is not None:  # type: ignore[attr-defined]
                self._start(event.start, stored.at)  # type: ignore[attr-defined]
            self._outcome(event, stored)  # type: ignore[arg-type]
        elif kind is NodeStarted:
            self._start(event, stored.at)  # type: ignore[arg-type]
        elif kind in {ValueRecorded, TimerFired}:
            self.parents[event.position] = event.parents  # type: ignore[attr-defined]
            self._outcome(event, stored)  # type: ignore[arg-type]
        else:
            self._other(event, stored.at)

    def _other(self, event: Event, at: int) -> None:
        match event:
            case NodeJoined():
                self.parents[event.position] = event.parents
            case RunStarted():
                self.started, self.started_at = event, at
            case StatusChanged():
                self._status(event)
            case Patched():
                self.patches[event.name] = event.new
            case SessionBound():
                self.sessions[event.position] = event
            case UsageRecorded():
                self.usage[event.position] = event
            case PromptAsked():
                self.prompts[event.position] = event
            case PromptAnswered():
                self.answers[event.position] = event
            case _:
                pass  # for inspection only

    def _start(self, event: NodeStarted, at: int) -> None:
        if event.lane is not None:
            self.lanes[event.lane.lane] = event.lane
        known = self.starts.get(event.position)
        if known is None or event.take > known.take:
            self.starts[event.position] = event
            self.started_times[event.position] = at
            self.parents[event.position] = event.parents

    def _outcome(self, event: NodeFinished | ValueRecorded | TimerFired, stored: Stored) -> None:
        known = self.outcomes.get(event.position)
        if known is None or event.take > known.event.take:
            self.outcomes[event.position] = Outcome(event.position, stored.seq, stored.at, event)

    def _status(self, event: StatusChanged) -> None:
        self.status, self.epoch, self.resumable = event.status, event.epoch, event.resumable
        self.changes += 1
        self.failed = event.failed
        self.rerun = self.rerun or event.rerun
        if event.set_aside:
            self.set_aside(event.set_aside)

    def set_aside(self, failures: tuple[str, ...]) -> None:
        """Drop these records and all that have one of them among their ancestors."""
        dropped = set(failures)
        for position, parents in self.parents.items():  # parents were recorded before their children
            if not dropped.isdisjoint(parents):
                dropped.add(position)
        for position in dropped:
            if position in self.starts or position in self.outcomes:
                self.takes[position] = self.takes.get(position, 0) + 1
            self.forget(position)

    def forget(self, position: str) -> None:
        """Nothing is recorded at this position any more."""
        for records in (
            self.starts,
            self.started_times,
            self.outcomes,
            self.parents,
            self.sessions,
            self.prompts,
            self.answers,
        ):
            records.pop(position, None)

    def ready(self) -> None:
        """Sort the outcomes into event order; the record is complete."""
        self.order = [o.position for o in sorted(self.outcomes.values(), key=lambda o: o.seq)]
        self._unasked = {**dict.fromkeys(self.starts), **dict.fromkeys(self.outcomes)}

    def call(self, position: str) -> None:
        """The code makes the call at this position."""
        self._unasked.pop(position, None)

    def describe(self, position: str) -> str:
        """What is recorded at a position, in words: `tool build in lane /review.0 (flow.py:12)`."""
        start = self.starts.get(position)
        outcome = self.outcomes.get(position)
        if start is None:
            what = getattr(outcome.event, "kind", "a timer") if outcome is not None else "nothing"
            source = ""
        else:
            what, source = f"{start.kind} {start.name}", f" ({start.source})" if start.source else ""
        return f"{what} in lane {self.lane_path(position.partition(':')[0])}{source}"

    def lane_path(self, lane: str) -> str:
        """The readable name of a lane, as far as the record knows it."""
        parts: list[str] = []
        while lane != BODY and (known := self.lanes.get(lane)) is not None:
            parts.append(known.name)
            lane = known.parent
        return BODY + "/".join(reversed(parts))

    @property
    def is_open(self) -> bool:
        """Whether anything recorded has not been asked for yet."""
        return bool(self._unasked)

    @property
    def unasked(self) -> tuple[str, ...]:
        """What is recorded and has not been asked for yet, in order."""
        return tuple(sorted(self._unasked))

    def is_passed(self, position: str) -> bool:
        """Whether the order has gone past this outcome."""
        return position in self.passed

    def take(self, position: str) -> int:
        """Which take of this position is being written now."""
        return self.takes.get(position, 0)
