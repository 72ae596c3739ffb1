"""The runtime of the local agent: llama.cpp by way of xllamacpp, one reply at a time, in whatever thread calls it.

What was learned of it: the callback's truth stops a reply at the next token; during the prompt it is called only with
`return_progress`, once a batch, hence the small batch. An exception in the callback is swallowed, so it raises none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from perdure.errors import AgentError, AgentUnavailable
from perdure.ids import new_id

WINDOW_TOKENS: Final = 2048
BATCH_TOKENS: Final = 64  # about a second of one thread: how long a cancelled reply may go on
SEED: Final = 1
REPEAT_PENALTY: Final = 1.15  # without it a model this small repeats one line to the limit
SHRINKS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Request:
    """What to answer. Setting `stopped` ends the reply early; `on_text` gets it in pieces, in the model's thread."""

    messages: list[dict[str, str]]
    max_tokens: int
    schema: dict[str, Any] | None
    stopped: threading.Event
    on_text: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of it. `finish` is "stop", or "length" if the limit cut it."""

    text: str
    finish: str
    tokens_in: int
    tokens_out: int


class Model:
    """A loaded model. Loading takes about a second and 250 MB."""

    def __init__(self, weights: Path, threads: int) -> None:
        runtime: Any = import_module("xllamacpp")
        params = runtime.CommonParams()
        params.model.path = str(weights)
        params.n_ctx = WINDOW_TOKENS
        params.n_batch = BATCH_TOKENS
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = 0
        params.warmup = False
        params.verbosity = -1
        params.offline = True
        # The runtime opens a port on loopback whether one wants it or not: nobody else shall use it.
        params.api_keys = [new_id()]
        params.ui = params.endpoint_slots = False
        params.n_threads_http = 1
        try:
            self._server = runtime.Server(params)
        except Exception as error:  # a foreign library raises what it likes
            raise AgentUnavailable(
                f"The model {weights.name} cannot be loaded: {error}", weights=weights.name
            ) from error

    def reply(self, request: Request) -> Reply:
        """The model's reply. A prompt that does not fit is shortened until it does."""
        error: dict[str, Any] = {}
        for _ in range(SHRINKS_MAX):
            chunks = self._chunks(request)
            error = next((chunk["error"] for chunk in chunks if "error" in chunk), {})
            if not error:
                return _reply_of(chunks)
            if error.get("type") != "exceed_context_size_error":
                break
            room = (WINDOW_TOKENS - request.max_tokens) / max(1, error.get("n_prompt_tokens", 2 * WINDOW_TOKENS))
            request = replace(request, messages=_shortened(request.messages, 0.9 * room))
        raise AgentError(f"The local model refused the prompt: {error.get('message', error)}.")

    def _chunks(self, request: Request) -> list[dict[str, Any]]:
        body: dict[str, Any] = {
            "messages": request.messages,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "seed": SEED,
            "repeat_penalty": REPEAT_PENALTY,
            "cache_prompt": False,  # a warm cache changes roundings, and with them the answer
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }
        if request.schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"schema": request.schema}}
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            if request.stopped.is_set():
                return True
            if text := _text_of(chunk):
                request.on_text(text)
            return False

        try:
            self._server.handle_chat_completions(body, take)
        except ValueError as error:
            raise AgentError(f"The local model cannot answer by this schema: {error}") from error
        return chunks


def _reply_of(chunks: list[dict[str, Any]]) -> Reply:
    choices = [chunk["choices"][0] for chunk in chunks if chunk.get("choices")]
    text = "".join(_text_of(chunk) for chunk in chunks)
    finish = next((choice["finish_reason"] for choice in reversed(choices) if choice.get("finish_reason")), "stop")
    usage: dict[str, int] = next((chunk["usage"] for chunk in chunks if "usage" in chunk), {})
    return Reply(text.strip(), finish, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))


def _text_of(chunk: dict[str, Any]) -> str:
    choices = chunk.get("choices")
    return str(choices[0]["delta"].get("content") or "") if choices else ""


def _shortened(messages: list[dict[str, str]], share: float) -> list[dict[str, str]]:
    """The first and the last message, the last with its middle cut to `share` of its length."""
    text = messages[-1]["content"]
    half = int(len(text) * max(0.0, min(share, 1.0)) / 2)
    return [*messages[:-1][:1], {**messages[-1], "content": text[:half] + "\n[...]\n" + text[len(text) - half :]}]
