"""The recorded form of a stage's outcome, and the author's view of it: the same live and on replay."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, Final

from msgspec import UNSET, Raw

from perdure import failures
from perdure.errors import StageFailed
from perdure.events import NodeFinished
from perdure.ids import node_id
from perdure.operations.base import Call
from perdure.operations.conversation import Answer
from perdure.operations.results import TaskResult, Usage
from perdure.operations.setting import Setting, Spoken
from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_output import bounded_message, receipt_text, write_message
from perdure.values import load, raw, redact

DETAIL_CHARS_MAX: Final = 2_000  # of a prompt, for people who look at the step


def detail_of(prompt: str, options: StageOptions) -> Raw:
    """What people see of a stage that runs."""
    written = {key: value for key, value in options.written.items() if key not in {"schema", "previous"}}
    shown = redact(prompt[:DETAIL_CHARS_MAX])
    return raw({"prompt": shown, "options": written})


async def ending_of(
    answer: Answer, setting: Setting, options: StageOptions, stage: Call, *, leaves: bool
) -> dict[str, Any]:
    """Write the message where the author wants it; the outcome's fields. Raises OSError, PayloadInvalid.

    `leaves` says that the stage is over: the state of its worktree is kept, the message in it too.
    """
    text = bounded_message(answer.text, options.max_output)
    artifacts = []
    if setting.output is not None:
        node = node_id(stage.run.run_id, stage.position)
        receipt = await asyncio.to_thread(write_message, setting.output, answer.text, node)
        artifacts.append(receipt)
        text = receipt_text(receipt) if options.output_mode == "file" else text
    if leaves:
        artifacts += await setting.workplace.leave()
    stored = {
        "text": text,
        "session_id": answer.session_id,
        "agent": answer.agent,
        "usage": plain_usage(answer.usage),
        "artifacts": artifacts,
        "warnings": list(answer.warnings),
    }
    if answer.value is not UNSET:
        stored["value"] = answer.value
    return {"status": "completed", "value": raw(stored, what="stage result "), "attempts": answer.attempts}


async def failed_ending(error: Exception, setting: Setting) -> dict[str, Any]:
    """As `ending_of`, for a stage that failed: what it did in its worktree is kept as well."""
    ending = {"status": "failed", "failure": failures.classify(error, origin="engine")}
    artifacts = await setting.workplace.leave()
    return {**ending, "value": raw({"artifacts": artifacts})} if artifacts else ending


def plain_usage(usage: Usage) -> dict[str, int | None]:
    """Usage as it is stored."""
    return asdict(usage)


def result_of(call: Call, stage: str, options: StageOptions, event: NodeFinished, *, replayed: bool) -> TaskResult:
    """What the author gets. Raises StageFailed, whose details may have `artifacts`."""
    if event.status != "completed":
        assert event.failure is not None, event
        raise StageFailed(
            f"Stage {stage} failed: {event.failure.message}",
            failure=event.failure, position=call.position, run_id=call.run.run_id, stage=stage,
            **({} if event.value is UNSET else load(event.value)),
        )  # fmt: skip
    stored = load(event.value)  # type: ignore[arg-type]
    value = stored.get("value")
    return TaskResult(
        name=stage,
        text=stored["text"],
        value=value if options.typed is None else options.typed(value),
        session_id=stored["session_id"],
        artifacts=tuple(stored["artifacts"]),
        usage=Usage(**stored["usage"]),
        attempts=event.attempts,
        warnings=tuple(stored["warnings"]),
        replayed=replayed,
    )


def remember(stage: Call, options: StageOptions, event: NodeFinished) -> None:
    """From here on the author's code may fork the session of this stage's answer."""
    run: Any = stage.run
    stored = load(event.value)  # type: ignore[arg-type]
    run.spoken.append(Spoken(stage.name, stage.lane.id, options.where, stored["agent"], stored["session_id"]))
