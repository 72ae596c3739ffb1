"""perdure: durable workflows of coding agents, in plain Python. These are the public names (docs/api.md).

A name's module is imported at its first use, so `import perdure` costs next to nothing and `perdure --help` does not
pay for what it does not use. The law: what is not in `__all__`, `perdure.testing` or `perdure.errors` is internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perdure.definitions import Workflow, workflow
    from perdure.errors import (
        ChildFailed,
        DefinitionInvalid,
        HumanInputUnavailable,
        InputInvalid,
        LimitReached,
        NotAvailable,
        OperationFailed,
        OutputInvalid,
        PayloadInvalid,
        PerdureError,
        StageFailed,
        ToolFailed,
        UsageError,
    )
    from perdure.host.processes import ShellResult, shell
    from perdure.operations.context import Context
    from perdure.operations.dialogue import Stage
    from perdure.operations.results import ChildResult, Failed, Ok, TaskResult, Usage
    from perdure.operations.stage_prompt import keep_context
    from perdure.tools import Retry, tool

__all__ = [
    "ChildFailed",
    "ChildResult",
    "Context",
    "DefinitionInvalid",
    "Failed",
    "HumanInputUnavailable",
    "InputInvalid",
    "LimitReached",
    "NotAvailable",
    "Ok",
    "OperationFailed",
    "OutputInvalid",
    "PayloadInvalid",
    "PerdureError",
    "Retry",
    "ShellResult",
    "Stage",
    "StageFailed",
    "TaskResult",
    "ToolFailed",
    "Usage",
    "UsageError",
    "Workflow",
    "keep_context",
    "shell",
    "tool",
    "workflow",
]

_PLACES: Final = {
    "Context": "perdure.operations.context",
    "Retry": "perdure.tools",
    "ShellResult": "perdure.host.processes",
    "Stage": "perdure.operations.dialogue",
    "Workflow": "perdure.definitions",
    "keep_context": "perdure.operations.stage_prompt",
    "shell": "perdure.host.processes",
    "tool": "perdure.tools",
    "workflow": "perdure.definitions",
    **dict.fromkeys(("ChildResult", "Failed", "Ok", "TaskResult", "Usage"), "perdure.operations.results"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  see the module docstring

    value = globals()[name] = getattr(import_module(_PLACES.get(name, "perdure.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
