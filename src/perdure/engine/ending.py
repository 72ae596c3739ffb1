"""How an execution of a run ended, and which failures an exception that ended it carries. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from perdure import failures
from perdure.errors import OperationFailed
from perdure.events import Failure
from perdure.states import RunStatus
from perdure.values import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an execution ended. `output` is the stored JSON text; `value` decodes it."""

    status: RunStatus
    output: Raw | UnsetType = UNSET
    failure: Failure | None = None
    code: str = ""
    reason: str = ""
    resumable: bool = True
    exited: bool = False
    failed: tuple[str, ...] = ()  # positions of the failures that ended the run
    replayed: int = 0  # recorded outcomes that were handed out again
    recorded: bool = True  # False: nothing more could be written; the journal still says `running`

    @property
    def value(self) -> Any:
        """The output as plain JSON; None when there is none."""
        return None if self.output is UNSET else load(self.output)


def carried(error: BaseException, run_id: str) -> tuple[str, ...]:
    """The positions of the failures that an exception carries: itself, its causes and contexts, members of groups."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    stack: list[tuple[BaseException, int]] = [(error, 0)]
    while stack:
        current, depth = stack.pop()
        if id(current) in seen or depth > failures.DEPTH_MAX:
            continue
        seen.add(id(current))
        if isinstance(current, OperationFailed) and current.position and current.details.get("run_id") == run_id:
            found[current.position] = None
        if isinstance(current, BaseExceptionGroup):
            stack.extend((member, depth + 1) for member in current.exceptions)
        if current.__cause__ is not None:
            stack.append((current.__cause__, depth + 1))
        elif current.__context__ is not None and not current.__suppress_context__:
            stack.append((current.__context__, depth + 1))
    return tuple(found)


def is_ours(error: BaseException) -> bool:
    """Whether an assertion failed in perdure itself, not in the author's code."""
    trace = error.__traceback__
    module = ""
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        trace = trace.tb_next
    return str(module).startswith("perdure.") and not str(module).startswith("perdure.builtin")
