"""Every error perdure raises, and the control signals.

A refusal says what to do next (DESIGN 2, law 10): each class has a stable `code` that travels on the wire and in
events, a default message (its docstring), and `details` with the offending values. Over a process border travel
`to_dict()` and `from_dict`, never pickles. This module imports nothing of perdure and everything may import it.

    PerdureError
    ├ UsageError            DefinitionInvalid, InputInvalid, OutputInvalid, TargetNotFound, TargetAmbiguous,
    │                       NotAllowedNow, ConfigInvalid, CallOutsideLane, UnorderedLanes, LimitReached,
    │                       PayloadInvalid, NotTrusted, NotAvailable
    ├ JournalError          StaleLease, LeaseHeld, OwnedElsewhere, SequenceConflict, AppendRefused, CounterOverflow,
    │                       RunDeleted, FormatTooNew, JournalCorrupt, JournalClosed, ExecutionRetired,
    │                       StorageUnavailable (retryable)
    ├ ReplayMismatch        the record and the code differ
    ├ TimedOut              a tool or a stage
    ├ GitFailed             a command of git, with command, cwd and exit_code
    ├ AgentError            AgentUnavailable, AgentProtocolError
    ├ OperationFailed       StageFailed, ToolFailed, ChildFailed: what a workflow body may catch
    ├ HumanInputUnavailable
    └ ControlRefused        a control verb's refusal (spec/control.md 4)
    Signal(BaseException)   ExitRun, Suspend, Fenced: never caught by author code
"""

from __future__ import annotations

from typing import Any, ClassVar


class PerdureError(Exception):
    """Something went wrong in perdure."""

    code: ClassVar[str] = "unknown"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", /, **details: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.details = details
        super().__init__(self.message)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in cls.__dict__:
            cls.code = snake(cls.__name__)

    def to_dict(self) -> dict[str, Any]:
        """The form that crosses process borders and goes into `--json` output."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, "details": self.details}


def snake(name: str) -> str:
    """`SequenceConflict` -> `sequence_conflict`: a class's default code."""
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


# --- the caller can fix it


class UsageError(PerdureError):
    """perdure was asked for something it cannot do."""


class DefinitionInvalid(UsageError):
    """The workflow definition is not valid."""


class InputInvalid(UsageError):
    """The inputs do not fit the workflow."""


class OutputInvalid(UsageError):
    """The workflow's return value does not fit its annotation."""


class TargetNotFound(UsageError):
    """Nothing has that name."""


class TargetAmbiguous(UsageError):
    """That name fits several things."""


class NotAllowedNow(UsageError):
    """That cannot be done in this state."""


class ConfigInvalid(UsageError):
    """The configuration is not valid."""


class NotTrusted(UsageError):
    """This folder's workflow files run code and the folder is not trusted yet: perdure trust."""


class NotAvailable(UsageError):
    """This version of perdure does not do that yet."""


class ExtraMissing(UsageError):
    """An optional part of perdure is not installed."""


class PayloadInvalid(UsageError):
    """The value cannot be stored as JSON."""


class LimitReached(UsageError):
    """A limit of the run was reached."""


class CallOutsideLane(UsageError):
    """A ctx call must come from the workflow function or from an asyncio task it started.

    Calls from threads, callbacks, tasks with a context of their own and tools have no place in the record. Await the
    call in the body, or start an ordinary task: asyncio.create_task(branch()).
    """

    code = "CALL_OUTSIDE_LANE"


class UnorderedLanes(UsageError):
    """asyncio.as_completed starts bare coroutines in memory order, so a resumed run could not repeat it.

    Pass tasks (asyncio.create_task(...)) or use ctx.as_completed(...).
    """

    code = "UNORDERED_LANES"


# --- the journal


class JournalError(PerdureError):
    """The journal refused."""


class StaleLease(JournalError):
    """Another process owns this run now."""


class LeaseHeld(JournalError):
    """Another process holds this run's lease."""


class OwnedElsewhere(JournalError):
    """This process no longer owns the run."""


class SequenceConflict(JournalError):
    """The journal moved on since the decision was made."""


class AppendRefused(JournalError):
    """A guard refused the append."""


class CounterOverflow(JournalError):
    """The run has used up its sequence numbers."""


class RunDeleted(JournalError):
    """The run was deleted."""


class FormatTooNew(JournalError):
    """The database was written by a newer perdure. Upgrade perdure, or name another file with --database."""


class JournalCorrupt(JournalError):
    """The journal does not add up. Do not resume it; keep a copy of the database."""

    code = "corrupt"


class JournalClosed(JournalError):
    """The journal is closed."""


class ExecutionRetired(JournalError):
    """This execution of the run was replaced."""


class StorageUnavailable(JournalError):
    """The database cannot be used right now."""

    retryable = True


# --- replay, agents, operations


class TimedOut(PerdureError):
    """It took longer than its timeout."""


class GitFailed(PerdureError):
    """A git command failed. `details` has the command, its folder and its exit code."""


class ReplayMismatch(PerdureError):
    """The code asks for something else than the record holds."""


class AgentError(PerdureError):
    """The agent failed."""


class AgentUnavailable(AgentError):
    """No such agent here."""


class AgentProtocolError(AgentError):
    """The agent broke its protocol."""

    code = "agent_protocol"


class OperationFailed(PerdureError):
    """A step of the workflow failed. `failure` says why; `position` names its place in the record."""

    def __init__(self, message: str = "", /, *, failure: Any = None, position: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.failure = failure
        self.position = position


class StageFailed(OperationFailed):
    """The stage failed."""


class ToolFailed(OperationFailed):
    """The tool failed."""


class ChildFailed(OperationFailed):
    """The child run failed."""


class HumanInputUnavailable(OperationFailed):
    """The run needs a person's answer and was told not to wait for one."""


class ControlRefused(PerdureError):
    """The run refused the request. `reason` is one of the codes of spec/control.md 4."""

    def __init__(self, reason: str, message: str, /, **details: Any) -> None:
        super().__init__(message, **details)
        self.reason = reason

    def to_dict(self) -> dict[str, Any]:
        """As every error, with the refusal's own code."""
        return {**super().to_dict(), "code": self.reason}


# --- control signals


class Signal(BaseException):
    """Ends a body from inside. A BaseException, so that `except Exception` in a workflow cannot swallow it."""


class ExitRun(Signal):
    """`ctx.exit` was called."""


class Suspend(Signal):
    """The engine stops this execution: quit, pause, drift."""


class Fenced(Signal):
    """Another process owns the run; nothing more may be written."""
