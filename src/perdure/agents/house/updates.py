"""What the agent tells its client while it works, in the words of the Agent Client Protocol (`session/update`).

Plain dictionaries: tests hold them against the protocol's own schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from perdure.agents.house.tools import KINDS
from perdure.agents.house.workspace import Change
from perdure.ids import new_id

Update = dict[str, Any]
Tell = Callable[[Update], None]

RESULT_CHARS_MAX: Final = 20_000  # of a tool's result, as shown
TITLE_CHARS_MAX: Final = 200


def said(text: str) -> Update:
    """A piece of the answer."""
    return {"sessionUpdate": "agent_message_chunk", "content": _text(text)}


def thought(text: str) -> Update:
    """A piece of the model's thinking, or a word of the agent about itself."""
    return {"sessionUpdate": "agent_thought_chunk", "content": _text(text)}


def retried(notice: str, *, is_shown: bool) -> Update:
    """A model failed and one is asked again. `is_shown`: a part of its answer was, and does not count."""
    if not is_shown:
        return thought(f"[{notice}]")
    step = {"sessionUpdate": "tool_call", "toolCallId": f"retry-{new_id()}", "title": notice}
    return {**step, "kind": "think", "status": "failed"}


def tool_started(part: ToolCallPart) -> Update:
    """A tool is about to run."""
    arguments = _arguments(part)
    update: Update = {
        "sessionUpdate": "tool_call",
        "toolCallId": part.tool_call_id,
        "title": title_of(part.tool_name, arguments),
        "kind": KINDS.get(part.tool_name, "other"),
        "status": "in_progress",
        "rawInput": arguments,
    }
    path = arguments.get("path")
    if part.tool_name in KINDS and isinstance(path, str):
        update["locations"] = [{"path": path}]
    return update


def tool_ended(part: ToolReturnPart) -> Update:
    """A tool has run, or failed."""
    text = part.content if isinstance(part.content, str) else part.model_response_str()
    shown = text if len(text) <= RESULT_CHARS_MAX else f"{text[:RESULT_CHARS_MAX]}\n[... cut]"
    update = _progress(part.tool_call_id, "completed" if part.outcome == "success" else "failed")
    if part.tool_name not in {"write", "edit"} or part.outcome != "success":  # those have shown the change itself
        update["content"] = [_content(shown)]
    return update


def changed(call_id: str, change: Change) -> Update:
    """A file was changed by a tool that still runs."""
    diff = {"type": "diff", "path": str(change.path), "newText": change.after}
    if change.before is not None:
        diff["oldText"] = change.before
    return {**_progress(call_id, "in_progress"), "content": [diff]}


def printed(call_id: str, output: str) -> Update:
    """A command has printed this, or nothing but still runs."""
    update = _progress(call_id, "in_progress")
    return {**update, "content": [_content(output)]} if output else update


def used(context_tokens: int, window_tokens: int, cost_usd: float | None) -> Update:
    """How full the context is and what the session has cost so far."""
    update: Update = {"sessionUpdate": "usage_update", "used": context_tokens, "size": window_tokens}
    if cost_usd is not None:
        update["cost"] = {"amount": cost_usd, "currency": "USD"}
    return update


def replayed(messages: Sequence[ModelMessage]) -> Iterator[Update]:
    """What was said before, for a client that loads the session."""
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=str(text)):
                    yield {"sessionUpdate": "user_message_chunk", "content": _text(text)}
                case TextPart(content=text) if text:
                    yield said(text)
                case ThinkingPart(content=text) if text:
                    yield thought(text)
                case ToolCallPart():
                    yield tool_started(part)
                case ToolReturnPart() if isinstance(message, ModelRequest):
                    yield tool_ended(part)
                case _:
                    pass


def title_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """One line that says what a call does."""
    subject = next((arguments[key] for key in ("command", "path", "pattern") if arguments.get(key)), "")
    if tool == "search":
        subject = " in ".join(str(arguments[key]) for key in ("pattern", "path") if arguments.get(key))
    line = f"{tool} {subject}".strip().replace("\n", " ")
    return line if len(line) <= TITLE_CHARS_MAX else f"{line[:TITLE_CHARS_MAX]}..."


def _arguments(part: ToolCallPart) -> dict[str, Any]:
    try:
        return part.args_as_dict()
    except (ValueError, AssertionError):  # the model wrote no JSON object; the library tells it so
        return {}


def _progress(call_id: str, status: str) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}


def _content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": _text(text)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
