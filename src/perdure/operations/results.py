"""What operations return to the author. Frozen; `replayed` says that the value came from the record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from perdure.events import Failure

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used: tokens, and US dollars as integer nano-dollars; None when the agent does not say.

    With `turns_unknown` the counts are a lower bound: so many turns' agents did not report their tokens.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cost_nanos: int | None = None
    turns_unknown: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Both together; a cost that only one side knows counts, so None only if nobody knows."""
        known = [cost for cost in (self.cost_nanos, other.cost_nanos) if cost is not None]
        return Usage(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost_nanos=sum(known) if known else None,
            turns_unknown=self.turns_unknown + other.turns_unknown,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The outcome of a stage."""

    name: str
    text: str
    value: Any = None  # typed by `schema`
    session_id: str = ""
    artifacts: tuple[dict[str, Any], ...] = ()
    usage: Usage = field(default_factory=Usage)
    attempts: int = 1
    warnings: tuple[str, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """The outcome of a child run. `exited` tells ctx.exit from a return."""

    run_id: str
    workflow: str
    status: str
    exited: bool
    output: Any = None
    exit_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ok(Generic[T]):
    """A tool with on_error="return" worked."""

    value: T
    attempts: int = 1
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A tool with on_error="return" failed. Texts are redacted and cut to their last 16 KiB."""

    error: str
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    attempts: int = 1
    replayed: bool = False
    failure: Failure | None = None
