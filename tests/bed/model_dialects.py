"""Three ways to talk to a model over HTTP, each read into one `Conversation` and written from one `Reply`.

Chat is OpenAI's chat completions, Responses their successor, Messages Anthropic's. A dialect has `parse`, `whole` (the
answer in one piece) and `events` (the answer as a stream of server-sent events: name or None, data).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TOKENS_IN, TOKENS_OUT = 120, 7
PIECES_MAX = 1200  # of a slow answer

_REMINDER = re.compile(r"<(system-reminder|environment_context)>.*?</\1>", re.DOTALL)


@dataclass(frozen=True)
class Tool:
    """A tool that was offered. `namespace` is set where the dialect groups tools; `is_free_form` takes plain text."""

    name: str
    schema: dict[str, Any]
    namespace: str | None = None
    is_free_form: bool = False


@dataclass(frozen=True)
class Conversation:
    """What an agent sent: what people said, in order, and how many tools answered since they last did."""

    model: str
    prompts: tuple[str, ...]
    answered: int
    tools: tuple[Tool, ...]
    streams: bool


@dataclass(frozen=True)
class Call:
    """A tool to be called, with arguments or, if it is free-form, a text."""

    tool: Tool
    arguments: dict[str, Any] | str

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """What the model says: a text, or a tool call. A slow text goes on and on. No two have the same number."""

    text: str = ""
    call: Call | None = None
    is_slow: bool = False
    number: int = field(default_factory=itertools.count(1).__next__)

    def pieces(self) -> Iterator[str]:
        yield from re.findall(r"\S+\s*", self.text)
        yield from itertools.repeat(". ", PIECES_MAX if self.is_slow else 0)


class Said:
    """Collects a conversation from its messages."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.answered = 0

    def person(self, content: Any) -> None:
        """A user's message; what agents add to it by themselves is left out."""
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
        if text := _REMINDER.sub("", "\n".join(parts)).strip():
            self.prompts.append(text)
            self.answered = 0

    def tool(self) -> None:
        """A tool's result."""
        self.answered += 1

    def conversation(self, body: dict[str, Any], tools: list[Tool]) -> Conversation:
        streams = bool(body.get("stream"))
        return Conversation(body.get("model", ""), tuple(self.prompts), self.answered, tuple(tools), streams)


Event = tuple[str | None, dict[str, Any]]


class Chat:
    """OpenAI's chat completions."""

    path = "/chat/completions"
    ends_with = b"data: [DONE]\n\n"

    def parse(self, body: dict[str, Any]) -> Conversation:
        said = Said()
        for message in body["messages"]:
            if message["role"] == "user":
                said.person(message["content"])
            elif message["role"] == "tool":
                said.tool()
        functions = [tool["function"] for tool in body.get("tools") or ()]
        return said.conversation(body, [Tool(f["name"], f.get("parameters", {})) for f in functions])

    def whole(self, reply: Reply, said: Conversation) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.call:
            message["tool_calls"] = [self._call(reply)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(reply)}
        return {**self._frame("chat.completion", reply, said), "choices": [choice], "usage": self._usage()}

    def events(self, reply: Reply, said: Conversation) -> Iterator[Event]:
        frame = self._frame("chat.completion.chunk", reply, said)

        def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
            return None, {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": ""})
        for piece in reply.pieces():
            yield chunk({"content": piece})
        if reply.call:
            yield chunk({"tool_calls": [{"index": 0, **self._call(reply)}]})
        yield chunk({}, self._finish(reply))
        yield None, {**frame, "choices": [], "usage": self._usage()}

    def _frame(self, kind: str, reply: Reply, said: Conversation) -> dict[str, Any]:
        return {"id": f"chat-{reply.number}", "object": kind, "created": 1, "model": said.model}

    def _call(self, reply: Reply) -> dict[str, Any]:
        assert reply.call is not None
        function = {"name": reply.call.tool.name, "arguments": reply.call.text}
        return {"id": f"call_{reply.number}", "type": "function", "function": function}

    def _finish(self, reply: Reply) -> str:
        return "tool_calls" if reply.call else "stop"

    def _usage(self) -> dict[str, int]:
        total = TOKENS_IN + TOKENS_OUT
        return {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": total}


class Responses:
    """OpenAI's responses."""

    path = "/responses"
    ends_with = b""

    def parse(self, body: dict[str, Any]) -> Conversation:
        said = Said()
        given = body["input"]
        offered = list(body.get("tools") or ())
        for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
            if item.get("type") == "additional_tools":
                offered += item["tools"]
            elif item.get("role") == "user":
                said.person(item["content"])
            elif str(item.get("type")).endswith("_call_output"):
                said.tool()
        return said.conversation(body, list(self._tools(offered)))

    def _tools(self, offered: Any, namespace: str | None = None) -> Iterator[Tool]:
        for tool in offered:
            if tool["type"] == "namespace":
                yield from self._tools(tool["tools"], tool["name"])
            elif tool["type"] in {"function", "custom"}:
                yield Tool(tool["name"], tool.get("parameters") or {}, namespace, tool["type"] == "custom")

    def whole(self, reply: Reply, said: Conversation) -> dict[str, Any]:
        return self._response(reply, said, [self._item(reply, reply.text)])

    def events(self, reply: Reply, said: Conversation) -> Iterator[Event]:
        for number, event in enumerate(self._events(reply, said)):
            yield event["type"], {"sequence_number": number, **event}

    def _events(self, reply: Reply, said: Conversation) -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": self._response(reply, said, None)}
        text = ""
        part = {"type": "output_text", "text": "", "annotations": []}
        at = {"item_id": f"item-{reply.number}", "output_index": 0}
        empty = {**self._item(reply, ""), "status": "in_progress"}
        if "arguments" in empty:
            empty["arguments"] = ""  # they come in pieces
        yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
        if not reply.call:
            yield {"type": "response.content_part.added", **at, "content_index": 0, "part": part}
            for piece in reply.pieces():
                text += piece
                yield {"type": "response.output_text.delta", **at, "content_index": 0, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **at, "content_index": 0, "text": text, "logprobs": []}
            yield {"type": "response.content_part.done", **at, "content_index": 0, "part": {**part, "text": text}}
        elif not reply.call.tool.is_free_form:
            yield {"type": "response.function_call_arguments.delta", **at, "delta": reply.call.text}
            yield {"type": "response.function_call_arguments.done", **at, "arguments": reply.call.text}
        item = self._item(reply, text)
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": self._response(reply, said, [item])}

    def _item(self, reply: Reply, text: str) -> dict[str, Any]:
        if call := reply.call:
            free = call.tool.is_free_form
            number = reply.number
            item = {"id": f"item-{number}", "call_id": f"call_{number}", "name": call.tool.name, "status": "completed"}
            if call.tool.namespace:
                item["namespace"] = call.tool.namespace
            return item | ({"type": "custom_tool_call", "input": call.text} if free else
                           {"type": "function_call", "arguments": call.text})  # fmt: skip
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        return {"id": f"item-{reply.number}", **item}

    def _response(self, reply: Reply, said: Conversation, output: list[dict[str, Any]] | None) -> dict[str, Any]:
        """The response object; without output it is only beginning."""
        status = "in_progress" if output is None else "completed"
        response = {
            "id": f"response-{reply.number}", "object": "response", "created_at": 1, "model": said.model,
            "status": status, "output": output or [], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        if output is not None:
            response["usage"] = {
                "input_tokens": TOKENS_IN, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": TOKENS_OUT, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": TOKENS_IN + TOKENS_OUT,
            }  # fmt: skip
        return response


class Messages:
    """Anthropic's messages."""

    path = "/messages"
    ends_with = b""

    def parse(self, body: dict[str, Any]) -> Conversation:
        said = Said()
        for message in body["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if message["role"] == "user":
                for _ in [block for block in blocks if block["type"] == "tool_result"]:
                    said.tool()
                said.person([block for block in blocks if block["type"] == "text"])
        tools = [tool for tool in body.get("tools") or () if "input_schema" in tool]
        return said.conversation(body, [Tool(tool["name"], tool["input_schema"]) for tool in tools])

    def whole(self, reply: Reply, said: Conversation) -> dict[str, Any]:
        block = self._block(reply) if reply.call else {"type": "text", "text": reply.text}
        if reply.call:
            block["input"] = reply.call.arguments
        return {**self._message(reply, said), "content": [block], "stop_reason": self._stop(reply)}

    def events(self, reply: Reply, said: Conversation) -> Iterator[Event]:
        yield "message_start", {"type": "message_start", "message": self._message(reply, said)}
        block = self._block(reply) if reply.call else {"type": "text", "text": ""}
        yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
        if reply.call:
            deltas = iter([{"type": "input_json_delta", "partial_json": reply.call.text}])
        else:
            deltas = ({"type": "text_delta", "text": piece} for piece in reply.pieces())
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        end = {"stop_reason": self._stop(reply), "stop_sequence": None}
        usage = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT}
        yield "message_delta", {"type": "message_delta", "delta": end, "usage": usage}
        yield "message_stop", {"type": "message_stop"}

    def _message(self, reply: Reply, said: Conversation) -> dict[str, Any]:
        usage = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT}
        return {
            "id": f"message-{reply.number}", "type": "message", "role": "assistant", "model": said.model, "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip

    def _block(self, reply: Reply) -> dict[str, Any]:
        assert reply.call is not None
        return {"type": "tool_use", "id": f"call_{reply.number}", "name": reply.call.tool.name, "input": {}}

    def _stop(self, reply: Reply) -> str:
        return "tool_use" if reply.call else "end_turn"


DIALECTS = (Chat(), Responses(), Messages())
