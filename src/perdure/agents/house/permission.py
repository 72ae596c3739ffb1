"""Whether a tool may do what it is about to: asked of whoever runs the agent, before it is done.

In mode `ask` every write and every command is put to the client, whose policy answers at once or asks a person. In
mode `auto` nothing is asked. "Always" holds for the kind of action and for the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

Mode = Literal["ask", "auto"]
ActionKind = Literal["edit", "execute"]
Verdict = Literal["allow_once", "allow_always", "reject_once", "reject_always", "cancelled"]

MODES: Final[dict[Mode, str]] = {
    "ask": "Asks before it changes a file or runs a command",
    "auto": "Works without asking",
}
OPTIONS: Final[tuple[tuple[Verdict, str], ...]] = (
    ("allow_once", "Allow"),
    ("allow_always", "Allow for this session"),
    ("reject_once", "Deny"),
    ("reject_always", "Deny for this session"),
)


@dataclass(frozen=True, slots=True)
class Action:
    """What a tool is about to do. `before` and `after` are the texts of a changed file."""

    call_id: str
    kind: ActionKind
    title: str
    path: Path | None = None
    before: str | None = None
    after: str | None = None


Ask = Callable[[Action], Awaitable[Verdict]]


class Denied(Exception):
    """The action was not allowed; the message is for the model to read."""


class TurnCancelled(Exception):
    """The client called the question off, and with it the turn."""


@dataclass(slots=True)
class Permissions:
    """The mode of a session and what was decided for all of it."""

    ask: Ask
    mode: Mode = "ask"
    _always: dict[ActionKind, bool] = field(default_factory=dict)

    async def check(self, action: Action) -> None:
        """Return if the action may be done. Raises Denied, TurnCancelled."""
        allowed = True if self.mode == "auto" else self._always.get(action.kind)
        if allowed is None:
            verdict = await self.ask(action)
            if verdict == "cancelled":
                raise TurnCancelled
            allowed = verdict.startswith("allow")
            if verdict.endswith("always"):
                self._always[action.kind] = allowed
        if not allowed:
            raise Denied(f"Not allowed: {action.title}. Do not try it another way; go on without it, or say so.")
