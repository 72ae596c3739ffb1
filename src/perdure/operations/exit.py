"""`ctx.exit`: end the run from any depth. The first exit wins (spec/authoring.md 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

from msgspec import UNSET

from perdure.errors import UsageError
from perdure.operations.base import lane_of
from perdure.states import ExitStatus, RunStatus
from perdure.values import bounded, raw

if TYPE_CHECKING:
    from perdure.engine.runner import Run

_STATUSES: Final[dict[str, RunStatus]] = {
    "completed": "completed",
    "skipped": "skipped",
    "cancelled": "cancelled",
    "blocked": "exit_blocked",
    "failed": "failed",
}


def leave(run: Run, status: ExitStatus, reason: str, output: Any, resumable: bool) -> NoReturn:
    """End `run` with an exit. Raises UsageError for an unknown status, or a resumable end that is no failure."""
    lane_of(run)
    if status not in _STATUSES:
        raise UsageError(f"ctx.exit takes one of {', '.join(get_args(ExitStatus))}, got {status!r}.", got=repr(status))
    if resumable and status != "failed":
        raise UsageError('Only ctx.exit("failed") can be resumable.', status=status)
    stored = UNSET if output is None else raw(output, what="output")
    run.leave(_STATUSES[status], bounded(reason), stored, resumable=resumable or status != "failed")
