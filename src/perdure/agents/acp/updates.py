"""What an agent tells while it works, as entries of the transcript and as the turn's final message.

Pure: an update goes in, events come out. The laws:

- Nothing is lost: an update of a kind that this file does not know becomes a note with the update in it, whole.
- Nothing is believed: an update may come after its turn's end, twice, or half filled in.
- The final message is what the agent said after its last tool call; if it said nothing then, what it said before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.agents.session import AgentEvent, TurnUsage

TEXT_CHARS_MAX: Final = 16 * 1024  # of a text inside a tool call's record
MESSAGE_CHARS_MAX: Final = 8 * 1024 * 1024  # of a final message; what comes after is dropped from it
CALLS_MAX: Final = 1_000  # tool calls remembered in a session; then all are forgotten
PROGRESS_SECONDS: Final = 30.0  # between two signs of life of one tool call
NANOS: Final = 1_000_000_000

_DONE: Final = frozenset({"completed", "failed"})
_SILENT: Final = frozenset(
    {"user_message_chunk", "available_commands_update", "config_option_update", "session_info_update"}
)  # kept among the frames; in a transcript they would only be in the way

Update = Mapping[str, Any]


class Hearing:
    """What was heard of one session so far."""

    def __init__(self, *, is_reopened: bool = False) -> None:
        """A reopened session has had a cost before, which is not known until the agent tells it."""
        self._pieces: list[str] = []
        self._chars = 0
        self._before = ""
        self._calls: dict[str, _Call] = {}
        self.is_broken = False  # the agent says of itself that the turn failed; its message is why
        self._context: dict[str, Any] = {}  # as last told
        self._cost_nanos: int | None = None if is_reopened else 0  # of the whole session, as last told
        self._cost_before = self._cost_nanos
        self._is_cost_told = False  # in this turn

    @property
    def message(self) -> str:
        """The turn's final message so far."""
        return "".join(self._pieces).strip() or self._before

    def call(self, call_id: Any) -> Update:
        """What was told of a tool call so far; nothing if it is not known."""
        known = self._calls.get(str(call_id))
        return {} if known is None else known.told

    def begin_turn(self) -> None:
        """Forget the last turn's message, not its tool calls: they may still be told of."""
        self._pieces, self._chars, self._before = [], 0, ""
        self.is_broken = False
        self._cost_before, self._is_cost_told = self._cost_nanos, False

    def usage(self, answer: Any) -> TurnUsage | None:
        """What the turn cost, from the answer to its prompt and the updates; None if the agent says nothing."""
        told = answer if isinstance(answer, Mapping) else {}
        read = [n for key in ("inputTokens", "cachedReadTokens", "cachedWriteTokens") if (n := _count(told, key))]
        tokens_in = sum(read) if read or _count(told, "inputTokens") == 0 else None
        cost = None
        if self._is_cost_told and self._cost_nanos is not None and self._cost_before is not None:
            cost = max(0, self._cost_nanos - self._cost_before)
        usage = TurnUsage(tokens_in, _count(told, "outputTokens"), cost)
        return None if usage == TurnUsage() else usage

    def hear(self, update: Any, now: float) -> tuple[AgentEvent, ...]:
        """The events of one update. `now` in seconds, of any clock that does not go back."""
        if not isinstance(update, Mapping):
            return (AgentEvent("note", "An update that is no object.", {"update": _short(update)}),)
        kind = update.get("sessionUpdate")
        if kind == "session_info_update" and (status := _thread_status(update)):
            self._took(status)
        if kind in _SILENT:
            return ()
        if kind in {"agent_message_chunk", "agent_thought_chunk"}:
            return self._said(update, is_thought=kind == "agent_thought_chunk")
        if kind in {"tool_call", "tool_call_update"}:
            return self._did(update, now, is_new=kind == "tool_call")
        if kind == "plan":
            return (_plan(update),)
        if kind == "usage_update":
            return self._used(update)
        if kind == "current_mode_update":
            return (AgentEvent("note", f"The agent is in mode {update.get('currentModeId')} now."),)
        return (AgentEvent("note", f"The agent told of {kind}.", {"update": _short(update)}),)

    # --- kinds

    def _said(self, update: Update, *, is_thought: bool) -> tuple[AgentEvent, ...]:
        text = _text_of(update.get("content"))
        if text is None:
            return (AgentEvent("note", "The agent showed something that is no text.", {"update": _short(update)}),)
        if not text:
            return ()
        if is_thought:
            return (AgentEvent("thought", text),)
        if self._chars < MESSAGE_CHARS_MAX:
            self._pieces.append(text)
            self._chars += len(text)
        return (AgentEvent("text", text),)

    def _took(self, status: str) -> None:
        """Codex ends a turn that its model has failed as any other, with the failure as its message."""
        if status == "systemError" and not self.is_broken:
            self._pieces, self._chars = [], 0
        self.is_broken = status == "systemError" or (self.is_broken and status != "active")

    def _did(self, update: Update, now: float, *, is_new: bool) -> tuple[AgentEvent, ...]:
        call_id = str(update.get("toolCallId"))
        call = self._calls.get(call_id)
        if call is None:
            if len(self._calls) >= CALLS_MAX:
                self._calls.clear()
            call = self._calls[call_id] = _Call(call_id, now)
            if is_new and self._pieces:
                self._before = self.message
                self._pieces, self._chars = [], 0
        return call.hear(update, now)

    def _used(self, update: Update) -> tuple[AgentEvent, ...]:
        told = {key: update[key] for key in ("used", "size", "cost") if update.get(key) is not None}
        cost = update.get("cost")
        if isinstance(cost, Mapping) and cost.get("currency") == "USD" and _is_number(cost.get("amount")):
            self._cost_nanos, self._is_cost_told = round(cost["amount"] * NANOS), True
        if told == self._context:
            return ()
        self._context = told
        text = f"{told.get('used', '?')} of {told.get('size', '?')} tokens in context"
        return (AgentEvent("usage", text, told),)


class _Call:
    """One tool call, from the first word of it to its end."""

    def __init__(self, call_id: str, now: float) -> None:
        self._id = call_id
        self.told: dict[str, Any] = {}
        self._shown: dict[str, Any] = {}
        self._ended: AgentEvent | None = None
        self._sign_at = now

    def hear(self, update: Update, now: float) -> tuple[AgentEvent, ...]:
        """What is new: the call itself, when its title or input becomes known or changes; its end, the same way."""
        self.told |= {key: _short(value) for key, value in update.items() if value is not None}
        title = str(self.told.get("title") or "tool call")
        status = self.told.get("status")
        events: list[AgentEvent] = []
        what = {"id": self._id, "kind": self.told.get("kind", "other"), "input": self.told.get("rawInput")}
        if (paths := _paths(self.told)) != []:
            what["paths"] = paths
        if {"title": title, **what} != self._shown:
            self._shown = {"title": title, **what}
            events.append(AgentEvent("tool_call", title, what))
        if status in _DONE and (ended := self._result(title, str(status))) != self._ended:
            self._ended = ended
            events.append(ended)
        elif not events and now - self._sign_at >= PROGRESS_SECONDS:
            events.append(AgentEvent("note", f"{title} goes on.", {"id": self._id}))
        if events:
            self._sign_at = now
        return tuple(events)

    def _result(self, title: str, status: str) -> AgentEvent:
        content = self.told.get("content")
        blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
        texts = [_text_of(b.get("content")) or "" for b in blocks if b.get("type") == "content"]
        data: dict[str, Any] = {"id": self._id, "title": title, "status": status}
        diffs = [
            {"path": str(b.get("path")), "old": b.get("oldText"), "new": b.get("newText")}
            for b in blocks
            if b.get("type") == "diff"
        ]
        if diffs:
            data["diffs"] = diffs
        text = "\n".join(filter(None, texts))
        if not text and self.told.get("rawOutput") is not None:
            data["output"] = self.told["rawOutput"]
        return AgentEvent("tool_result", text, data)


# --- reading


def _plan(update: Update) -> AgentEvent:
    entries = update.get("entries")
    told = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    lines = [f"[{entry.get('status', '?')}] {entry.get('content', '')}" for entry in told]
    steps = [{key: entry.get(key) for key in ("content", "status", "priority")} for entry in told]
    return AgentEvent("plan", "\n".join(lines), {"entries": _short(steps)})


def _thread_status(update: Update) -> str:
    """The state of the conversation in Codex's own words; empty for other agents."""
    found: Any = update
    for key in ("_meta", "codex", "threadStatus", "type"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else ""


def _text_of(content: Any) -> str | None:
    """The text of a content block; a link as its address; None for other kinds."""
    if not isinstance(content, Mapping):
        return None
    if content.get("type") == "text":
        return str(content.get("text") or "")
    if content.get("type") == "resource_link":
        return str(content.get("uri") or "")
    return None


def _paths(told: Update) -> list[str]:
    places = told.get("locations")
    found = [place.get("path") for place in places if isinstance(place, Mapping)] if isinstance(places, list) else []
    return [path for path in found if isinstance(path, str)]


def _count(told: Update, key: str) -> int | None:
    value = told.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124  not NaN


def _short(value: Any, left: int = 8) -> Any:
    """The value with its long texts cut, its long lists too, and what is nested deeper than 8 left out."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS_MAX else value[:TEXT_CHARS_MAX] + "\n[... cut]"
    if isinstance(value, Mapping):
        return {str(key): _short(inner, left - 1) for key, inner in list(value.items())[:200]} if left else "[...]"
    if isinstance(value, list):
        return [_short(inner, left - 1) for inner in value[:200]] if left else "[...]"
    return value
