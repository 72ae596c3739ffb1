"""The statuses of runs, nodes and prompts, and which moves between them are legal (spec/control.md 1).

Derived words such as `crashed`, `quit` and `awaiting_input` are never stored; the read model computes them.
"""

from __future__ import annotations

from typing import Final, Literal

RunStatus = Literal[
    "pending", "running", "paused", "blocked", "completed", "skipped", "cancelled", "exit_blocked", "failed", "killed"
]
NodeStatus = Literal[
    "pending", "running", "awaiting_input", "paused", "blocked", "completed", "failed", "skipped", "cancelled"
]
NodeKind = Literal["stage", "tool", "prompt", "boundary", "sleep", "value", "join"]
PromptKind = Literal["input", "confirm", "select", "editor", "form"]
ExitStatus = Literal["completed", "skipped", "cancelled", "blocked", "failed"]

RUN_STATUSES: Final[tuple[RunStatus, ...]] = (
    "pending", "running", "paused", "blocked", "completed", "skipped", "cancelled", "exit_blocked", "failed", "killed",
)  # fmt: skip
TERMINAL: Final = frozenset({"completed", "skipped", "cancelled", "exit_blocked", "failed", "killed"})
ABSORBING: Final = frozenset({"completed", "skipped", "cancelled", "exit_blocked", "killed"})
NODE_TERMINAL: Final = frozenset({"completed", "failed", "skipped", "cancelled"})

_AFTER: Final[dict[str, frozenset[str]]] = {
    "pending": frozenset({"running", "paused"}) | TERMINAL,
    "running": frozenset({"paused", "blocked"}) | TERMINAL,
    "paused": frozenset({"running"}) | TERMINAL,
    "blocked": frozenset({"running"}) | TERMINAL,
    "failed": frozenset({"running"}),
}


def may_move(before: str, after: str, *, resumable: bool = True) -> bool:
    """Whether a run may go from one status to the other. `failed` reopens only if it is resumable."""
    if before == "failed" and not resumable:
        return False
    return after in _AFTER.get(before, frozenset())


def is_resumable_status(status: str, *, resumable: bool) -> bool:
    """Whether a run in this status may be resumed, once no live process owns it."""
    return status in {"pending", "running", "paused", "blocked", "failed"} and resumable
