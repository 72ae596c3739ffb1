"""The recorded form of a stage's outcome, and the author's view of it: the same live and on replay."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import UNSET, Raw

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


async def ending_of(answer: Answer, setting: Setting, options: StageOptions, stage: Call) -> dict[str, Any]:
    """Write the message where the author wants it; the outcome's fields. Raises OSError, PayloadInvalid."""
    text = bounded_message(answer.text, options.max_output)
    artifacts = []
    if setting.output is not None:
        node = node_id(stage.run.run_id, stage.position)
        receipt = await asyncio.to_thread(write_message, setting.output, answer.text, node)
        artifacts.append(receipt)
        text = receipt_text(receipt) if options.output_mode == "file" else text
    stored = {
        "text": text,
        "session_id": answer.session_id,
        "agent": setting.agent.name,
        "usage": plain_usage(answer.usage),
        "artifacts": artifacts,
        "warnings": list(answer.warnings),
    }
    if answer.value is not UNSET:
        stored["value"] = answer.value
    return {"status": "completed", "value": raw(stored, what="stage result "), "attempts": answer.attempts}


def plain_usage(usage: Usage) -> dict[str, int | None]:
    """Usage as it is stored."""
    return {"tokens_in": usage.tokens_in, "tokens_out": usage.tokens_out, "cost_nanos": usage.cost_nanos}


def result_of(call: Call, stage: str, options: StageOptions, event: NodeFinished, *, replayed: bool) -> TaskResult:
    """What the author gets. Raises StageFailed."""
    if event.status != "completed":
        assert event.failure is not None, event
        raise StageFailed(
            f"Stage {stage} failed: {event.failure.message}",
            failure=event.failure, position=call.position, run_id=call.run.run_id, stage=stage,
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
    written = (options.agent, options.cwd)
    run.spoken.append(Spoken(stage.name, stage.lane.id, written, stored["agent"], stored["session_id"]))
