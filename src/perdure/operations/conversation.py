"""The conversation of one stage with its agent: one session, one turn at a time, every turn with an end.

A turn counts only with evidence: the agent's own end of turn with a final message or a value that fits. Whatever goes
wrong leaves as `StageFailed` with its classified failure, and the session is closed, so no process is left.

    no session --(open; its id is durable)--> open --(turn)--> open ... --(close, failure, cancellation)--> closed
    interrupted before --(the agent can reopen)--> open, told to go on
                       --(it cannot)--> one new session, same node

What the engine adds to a prompt is in stage_prompt.py, what a value must be in structured.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from perdure import failures
from perdure.agents.session import AgentEvent, AgentSession, SessionSpec, Turn
from perdure.errors import AgentError, JournalError, PerdureError, StageFailed, TimedOut
from perdure.events import AttemptFailed, Failure, SessionBound, UsageRecorded
from perdure.ids import node_id
from perdure.operations import structured
from perdure.operations.base import Call
from perdure.operations.results import Usage
from perdure.operations.setting import Setting
from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_prompt import continuation, earlier, stage_prompt
from perdure.operations.structured import AnswerUnfit
from perdure.values import bounded

TRY_NEXT: Final = frozenset(
    {"rate_limited", "quota_limited", "provider_unavailable", "login_required", "missing_api_key", "invalid_api_key",
     "forbidden_config", "unknown_model", "timed_out"}
)  # fmt: skip  # failures after which another model may do better

_STOPS: Final = {
    "cancelled": "ended its turn as cancelled, although nobody cancelled it",
    "refusal": "refused to answer",
    "max_tokens": "ran out of tokens before it had finished",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is to be asked. `call` is the step that the answer is recorded at."""

    call: Call
    text: str
    is_first: bool = True  # the stage's own prompt, with everything the engine puts around it
    was_asked: bool = False  # an earlier execution may have asked it already
    exchanges: tuple[tuple[str, str], ...] = ()  # what was said before, for a session that did not hear it


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A turn that counts. `value` is plain JSON, UNSET without a schema."""

    text: str
    value: Any = UNSET
    session_id: str
    usage: Usage
    attempts: int = 1
    warnings: tuple[str, ...] = ()


class Conversation:
    """One stage's session. Only engine tasks may await it."""

    def __init__(self, stage: Call, options: StageOptions, setting: Setting) -> None:
        """Opens nothing yet."""
        run: Any = stage.run
        self.usage = used_before(run.record.usage.get(stage.position))
        self.listeners: list[Callable[[AgentEvent], None]] = []
        self._run, self._stage, self._options, self._setting = run, stage, options, setting
        self._agent = agent = setting.agent
        self._bound: SessionBound | None = run.record.sessions.get(stage.position)
        self._session: AgentSession | None = None
        self._knows: bool = agent.capabilities.schema
        self._transcript = run.tree.transcript(run.run_id, stage.position, stage.take)
        self._turn = asyncio.Lock()
        self._idle: asyncio.Timeout | None = None
        self._aborted = False
        self._counted = 0
        self._warnings: list[str] = []

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer to a prompt. Raises StageFailed with the classified failure; the session is closed then."""
        async with self._turn:
            self._aborted = False
            self._warnings = []
            try:
                async with asyncio.timeout(self._options.timeout) as limit:
                    return await self._tried(prompt)
            except BaseException as error:
                await self.close()
                if isinstance(error, TimeoutError) and limit.expired():
                    wait = f"{self._options.timeout:g} s"
                    raise self._failed(f"took longer than its timeout of {wait}", TimedOut) from error
                raise

    async def abort(self) -> None:
        """End the running turn, if there is one; its prompt fails."""
        if self._session is not None:
            self._aborted = True
            await self._session.cancel()

    async def close(self) -> None:
        """End the session and write down what was said. Returns when everything is gone; safe twice."""
        session, self._session = self._session, None
        try:
            if session is not None:
                await session.close()
        finally:
            await self._transcript.flush()

    # --- models

    async def _tried(self, prompt: Prompt) -> Answer:
        """The answer of the first model that gives one."""
        models = self._options.models
        for attempt, model in enumerate(models, 1):
            try:
                return await self._answered(prompt, model, attempt)
            except StageFailed as failed:
                if failed.failure.code not in TRY_NEXT or attempt == len(models):
                    raise
                self._warnings.append(f"Model {model or 'of the agent'} failed: {failed.failure.message}")
                await self.close()
                self._bound = None
                event = AttemptFailed(
                    position=prompt.call.position, attempt=attempt, failure=failed.failure, epoch=self._run.epoch
                )
                self._run.log.note(self._run, event)
        raise AssertionError(models)

    async def _answered(self, prompt: Prompt, model: str | None, attempt: int) -> Answer:
        text = await self._opened(prompt, model)
        assert self._session is not None
        turn = await self._turned(text)
        value: Any = UNSET
        if self._options.typed is not None:
            turn, value = await self._corrected(turn, self._options.typed)
        elif not turn.text.strip():
            raise self._failed("ended its turn without a final message")
        return Answer(
            text=turn.text, value=value, session_id=self._session.session_id, usage=self.usage, attempts=attempt,
            warnings=tuple(self._warnings),
        )  # fmt: skip

    async def _corrected(self, turn: Turn, typed: Callable[[Any], Any]) -> tuple[Turn, Any]:
        """The turn whose value fits, after at most CORRECTIONS_MAX follow-ups."""
        for correction in range(structured.CORRECTIONS_MAX + 1):
            try:
                value = structured.value_of(turn, typed, knows_schemas=self._knows)
            except AnswerUnfit as unfit:
                problem = unfit
            else:
                if correction:
                    self._warnings.append(f"The answer had to be corrected, times: {correction}.")
                return turn, value
            if correction < structured.CORRECTIONS_MAX:
                turn = await self._turned(structured.correction(problem, knows_schemas=self._knows))
        raise self._failed(
            f"gave no answer that fits the schema, with {structured.CORRECTIONS_MAX} corrections: {problem}",
            code="schema_unmet",
        )

    # --- the session

    async def _opened(self, prompt: Prompt, model: str | None) -> str:
        """Have a session, and the text to say in it."""
        if self._session is not None:
            return self._wording(prompt)
        bound = self._bound
        if bound is not None and self._agent.capabilities.reopen and await self._reopened(bound):
            return continuation(self._options, knows_schemas=self._knows) if prompt.was_asked else self._wording(prompt)
        if bound is not None:
            self._warnings.append("The stage was interrupted and went on in a new session.")
        await self._open(model, self._setting.forked)
        wording = self._wording(prompt, with_frame=True)
        return f"{earlier(prompt.exchanges)}\n\n{wording}" if prompt.exchanges else wording

    def _wording(self, prompt: Prompt, *, with_frame: bool = False) -> str:
        """The prompt with what the engine puts around it, the first time a session hears of the stage."""
        if prompt.is_first or with_frame:
            return stage_prompt(self._options, prompt.text, knows_schemas=self._knows)
        return prompt.text

    async def _reopened(self, bound: SessionBound) -> bool:
        try:
            await self._open(bound.model or None, bound.session_id)
        except StageFailed as failed:
            self._warnings.append(f"Session {bound.session_id} could not be reopened: {failed.failure.message}")
            return False
        return True

    async def _open(self, model: str | None, reopen_id: str | None) -> None:
        run, stage = self._run, self._stage
        spec = SessionSpec(
            run_id=run.run_id,
            node_id=node_id(run.run_id, stage.position),
            stage=stage.name,
            cwd=self._setting.cwd,
            scratch=run.tree.scratch(run.run_id, stage.position),
            model=model,
            schema=self._options.schema if self._knows else None,
            reopen_id=reopen_id,
            options={"seed": run.tree.options.seed, "script": run.tree.options.script, "tools": self._options.tools},
        )
        self._session = session = await self._guarded(self._agent.open(spec, self._heard))
        if self._bound is not None and self._bound.session_id == session.session_id:
            return
        self._bound = SessionBound(
            position=stage.position,
            agent=self._agent.name,
            session_id=session.session_id,
            take=stage.take,
            model=model or "",
        )
        await run.log.commit(run, self._bound)

    async def _turned(self, text: str) -> Turn:
        """One turn that ended by itself."""
        assert self._session is not None
        lease = self._run.check_lease()
        if lease is not None:
            await lease
        self._transcript.prompted(text)
        turn: Turn = await self._guarded(self._session.prompt(text))
        self._count(turn)
        if self._aborted:
            raise self._failed("was aborted by the workflow", code="aborted")
        if turn.stop != "end_turn":
            raise self._failed(_STOPS[turn.stop])
        return turn

    async def _guarded(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """What the agent gives, within the idle timeout; whatever it raises is the stage's failure."""
        try:
            async with asyncio.timeout(self._options.idle_timeout) as idle:
                self._idle = idle
                return await doing
        except TimeoutError as error:
            if not idle.expired():
                raise self._broken(error) from error
            wait = f"{self._options.idle_timeout:g} s"
            raise self._failed(f"said nothing for {wait}, its idle timeout", TimedOut) from error
        except JournalError:
            raise
        except Exception as error:  # agent boundary: whatever an agent raises is the stage's failure
            raise self._broken(error) from error
        finally:
            self._idle = None

    def _heard(self, event: AgentEvent) -> None:
        """The agent said or did something."""
        if self._idle is not None and not self._idle.expired():
            self._idle.reschedule(asyncio.get_running_loop().time() + self._options.idle_timeout)
        self._transcript.add(event)
        for listener in self.listeners:
            listener(event)

    # --- what it cost, why it failed

    def _count(self, turn: Turn) -> None:
        used = turn.usage
        if used is None:
            return
        run = self._run
        turned = Usage(tokens_in=used.tokens_in or 0, tokens_out=used.tokens_out or 0, cost_nanos=used.cost_nanos)
        self.usage, run.usage = self.usage + turned, run.usage + turned
        self._counted += 1
        run.log.note(
            run,
            UsageRecorded(
                position=self._stage.position, number=self._counted, epoch=run.epoch, tokens_in=self.usage.tokens_in,
                tokens_out=self.usage.tokens_out, cost_nanos=self.usage.cost_nanos,
            ),
        )  # fmt: skip

    def _broken(self, error: BaseException) -> StageFailed:
        if isinstance(error, StageFailed):
            return error
        failure = failures.classify(error, origin="provider")
        return StageFailed(failure.message, failure=failure)

    def _failed(self, what: str, kind: type[PerdureError] = AgentError, *, code: str = "") -> StageFailed:
        message = bounded(f"Agent {self._agent.name} {what}.")
        return StageFailed(message, failure=Failure(code=code or kind.code, message=message, type=kind.__name__))


def used_before(recorded: UsageRecorded | None) -> Usage:
    """What earlier executions of the stage have used."""
    if recorded is None:
        return Usage()
    return Usage(tokens_in=recorded.tokens_in, tokens_out=recorded.tokens_out, cost_nanos=recorded.cost_nanos)
