"""The loop of a turn: ask a model, do what it wants, give it the results, until it has answered.

The law: the prompt and every finished step are in the history before the next thing happens, and stand in it once,
whatever fails in between. A model's answer that broke off is dropped and asked for again. If some of it was shown by
then, a failed step is shown too, so that whoever puts the answer together begins anew. Which model is asked again is
the chain's decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

from genai_prices.types import PriceCalculation
from pydantic_ai import Agent, Tool, UsageLimits
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelContextWindowExceededError,
    OutputTokenLimitExceeded,
    UsageLimitExceeded,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import RunUsage

from perdure.agents.house import updates
from perdure.agents.house.candidate import Candidate
from perdure.agents.house.chain import Chain, Try
from perdure.agents.house.history import History
from perdure.agents.house.model import code_of, settings_for, trouble_of
from perdure.agents.house.tools import Surroundings, build_tools
from perdure.agents.house.updates import Tell

STEPS_MAX: Final = 200  # requests to models in one turn
TOOL_RETRIES: Final = 5  # of one tool whose arguments do not fit

wait: Final = asyncio.sleep  # between two tries

StopReason = Literal["end_turn", "max_tokens", "refusal", "max_turn_requests"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended. Tokens are those of the turn, failed requests included; a cost of None is not known."""

    stop: StopReason
    tokens_in: int
    tokens_out: int
    cache_read: int  # of the tokens in, as is the next
    cache_write: int
    context_tokens: int
    window_tokens: int | None  # of the model that answered last; None if it is not known
    cost_usd: Decimal | None


@dataclass(slots=True)
class _Turn:
    """What is known of the turn that runs."""

    prompt: str
    usage: RunUsage = field(default_factory=RunUsage)
    responses: list[ModelResponse] = field(default_factory=list)
    is_asked: bool = False  # the prompt stands in the history
    has_shown: bool = False  # some text of the answer that is being given


class AgentLoop:
    """The turns of one session. One at a time."""

    def __init__(
        self,
        *,
        history: History,
        chain: Chain,
        build: Callable[[Candidate], Model],
        surroundings: Surroundings,
        tell: Tell,
        instructions: str,
        tools: Sequence[Tool[Any]] = (),
        steps_max: int = STEPS_MAX,
    ) -> None:
        """`build` makes the model of a candidate; `tools` come on top of the five."""
        self.history = history
        self.chain = chain
        self._build = build
        self._models: dict[Candidate, Model] = {}
        self._turn = _Turn("")
        self._surroundings = surroundings
        self._tell = tell
        self._steps_max = steps_max
        self._agent = Agent(
            deps_type=Surroundings,
            instructions=instructions,
            tools=[*build_tools(), *tools],
            retries=TOOL_RETRIES,
            name="house",
        )

    async def run(self, prompt: str) -> Ended:
        """One turn to its end. Raises what the last model raised when no model answers."""
        self.history.settle()
        self.chain.restart()
        self._turn = turn = _Turn(prompt)
        try:
            await self._answered(turn)
            stop = _stop_of(turn.responses[-1])
        except ContentFilterError:
            stop = "refusal"
        except OutputTokenLimitExceeded:
            stop = "max_tokens"
        except UsageLimitExceeded:
            stop = "max_turn_requests"
        last = turn.responses[-1] if turn.responses else None
        return Ended(
            stop,
            turn.usage.input_tokens,
            turn.usage.output_tokens,
            turn.usage.cache_read_tokens,
            turn.usage.cache_write_tokens,
            last.usage.input_tokens + last.usage.output_tokens if last else 0,
            _window_of(last),
            cost_of(turn.responses),
        )

    async def _answered(self, turn: _Turn) -> None:
        """Return once a model has answered; down the chain until one does."""
        while True:
            try:
                await self._attempt(turn)
                return
            except Exception as error:
                failed = self.chain.current
                following = self._following(error)
                if following is None:
                    raise
                self._tell(updates.retried(_notice(failed, error, following), is_shown=turn.has_shown))
                await wait(following.wait)

    def _following(self, error: Exception) -> Try | None:
        """Who is asked next; the same again if it only had too much to read and that can be helped."""
        if isinstance(error, ModelContextWindowExceededError) and self.history.shrink():
            return Try(self.chain.current)
        return self.chain.after(trouble_of(error), getattr(error, "retry_after", None))

    async def _attempt(self, turn: _Turn) -> None:
        candidate = self.chain.current
        if candidate not in self._models:  # importing a provider's client takes half a second
            self._models[candidate] = await asyncio.to_thread(self._build, candidate)
        async with self._agent.iter(
            None if turn.is_asked else turn.prompt,
            model=self._models[candidate],
            message_history=list(self.history.messages),
            deps=self._surroundings,
            usage=turn.usage,
            usage_limits=UsageLimits(request_limit=self._steps_max),
            model_settings=settings_for(candidate),
        ) as run:
            async for node in run:
                await self._step(turn, run, node)

    async def _step(self, turn: _Turn, run: AgentRun[Surroundings, str], node: Any) -> None:
        """Ask the model, or do what it wants; before either, what led to it is kept."""
        events: AsyncIterable[AgentStreamEvent]
        if Agent.is_model_request_node(node):
            turn.has_shown = False
            self.history.keep([*_without(run, node.request), node.request])
            turn.is_asked = True
            async with node.stream(run.ctx) as events:
                await self._show_all(events)
        elif Agent.is_call_tools_node(node):
            self.chain.answered()
            turn.responses.append(node.model_response)
            self.history.keep(run.all_messages())
            async with node.stream(run.ctx) as events:
                await self._show_all(events)

    async def _show_all(self, events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            self._show(event)

    def _show(self, event: AgentStreamEvent) -> None:
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                if text:
                    self._turn.has_shown = True
                    self._tell(updates.said(text))
            case PartStartEvent(part=ThinkingPart(content=text)):
                if text:
                    self._tell(updates.thought(text))
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)):
                if text:
                    self._tell(updates.thought(text))
            case FunctionToolCallEvent(part=call):
                self._tell(updates.tool_started(call))
            case FunctionToolResultEvent(part=result):
                self._tell(updates.tool_ended(result))
            case _:
                pass


def _without(run: AgentRun[Any, Any], request: Any) -> list[Any]:
    """The messages before a request that the library may or may not have put among them yet."""
    messages = run.all_messages()
    return messages[:-1] if messages and messages[-1] is request else list(messages)


def _stop_of(last: ModelResponse) -> StopReason:
    if last.finish_reason == "length":
        return "max_tokens"
    return "refusal" if last.finish_reason == "content_filter" else "end_turn"


def _notice(failed: Candidate, error: BaseException, following: Try) -> str:
    why = code_of(error) or type(error).__name__
    when = f" in {following.wait:g} s" if following.wait else ""
    who = "asking it again" if following.candidate == failed else f"asking {following.candidate}"
    return f"{failed} failed: {why}; {who}{when}"


def _window_of(response: ModelResponse | None) -> int | None:
    price = _price_of(response) if response else None
    return None if price is None else price.model.context_window


def cost_of(responses: Sequence[ModelResponse]) -> Decimal | None:
    """What answers cost in US dollars by the public price list; None if one of them is not on it."""
    prices = [_price_of(response) for response in responses]
    known = [price.total_price for price in prices if price is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(prices) else None


def _price_of(response: ModelResponse) -> PriceCalculation | None:
    """What the public price list says of an answer and its model."""
    try:
        return response.cost()
    except (LookupError, ValueError, AssertionError):
        return None
