"""The conversation of one stage with its agent: one session, one turn at a time, every turn with an end.

A turn counts only with evidence: the agent's own end of turn with a final message, or a value that fits. Whatever goes
wrong leaves as `StageFailed` with its classified failure, and the session is closed, so no process is left. A value
that was handed in counts even if the agent fails after it.

    no session --(open; its id is durable)--> open --(turn)--> open ... --(close, failure, cancellation)--> closed
    interrupted before --(the agent can reopen)--> open, told to go on
                       --(it cannot)--> one new session, same node

What the engine adds to a prompt is in stage_prompt.py, what a value must be in structured.py, who is asked instead of
an agent that failed in candidates.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import UNSET

from perdure import failures
from perdure.agents.session import AgentEvent, AgentSession, SessionSpec, Turn, TurnUsage
from perdure.errors import AgentError, JournalError, PerdureError, StageFailed, TimedOut
from perdure.events import AttemptFailed, Failure, SessionBound, UsageRecorded
from perdure.ids import node_id
from perdure.operations import candidates, structured
from perdure.operations.base import Call
from perdure.operations.permission import Permissions
from perdure.operations.result_tool import ResultTool
from perdure.operations.results import Usage
from perdure.operations.setting import Setting
from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_prompt import continuation, earlier, stage_prompt
from perdure.operations.structured import CORRECTIONS_MAX, AnswerUnfit, How
from perdure.values import bounded, dump

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
    agent: str  # that gave it
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
        self._bound: SessionBound | None = run.record.sessions.get(stage.position)
        self._chosen = candidates.bound_to(setting.candidates, self._bound)
        self._session: AgentSession | None = None
        self._tools: Any = None  # the engine's, served to this session
        self._result: ResultTool | None = None  # one of them
        self._permissions = Permissions(stage, self._person_thinks)
        self._transcript = run.tree.transcript(run.run_id, stage.position, stage.take)
        self._turn = asyncio.Lock()
        self._idle: asyncio.Timeout | None = None
        self._thinking = 0  # people
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
        tools, self._tools = self._tools, None
        try:
            if session is not None:
                await session.close()
        finally:
            if tools is not None:
                await tools.close()
            await self._transcript.flush()

    # --- candidates

    async def _tried(self, prompt: Prompt) -> Answer:
        """The answer of the first candidate that gives one: who talked last, then the others in their order."""
        left = list(dict.fromkeys((self._chosen, *self._setting.candidates)))
        attempt = 0
        while True:
            attempt += 1
            self._chosen = left.pop(0)
            try:
                return await self._answered(prompt, attempt)
            except StageFailed as failed:
                left = candidates.after(self._chosen, failed.failure, left)
                if not left:
                    raise
                self._warnings.append(f"{self._chosen} failed: {failed.failure.message}")
                await self.close()
                self._bound = None
                event = AttemptFailed(
                    position=prompt.call.position, attempt=attempt, failure=failed.failure, epoch=self._run.epoch
                )
                self._run.log.note(self._run, event)

    async def _answered(self, prompt: Prompt, attempt: int) -> Answer:
        text = await self._opened(prompt)
        assert self._session is not None
        session_id = self._session.session_id
        turn = await self._turned(text, CORRECTIONS_MAX)
        value: Any = UNSET
        if self._options.typed is not None:
            turn, value = await self._corrected(turn, self._options.typed)
        elif not turn.text.strip():
            raise self._failed("ended its turn without a final message")
        said = turn.text if turn.text.strip() else dump(value)
        return Answer(
            text=said, value=value, agent=self._chosen.agent.name, session_id=session_id, usage=self.usage,
            attempts=attempt, warnings=tuple(self._warnings),
        )  # fmt: skip

    async def _corrected(self, turn: Turn, typed: Callable[[Any], Any]) -> tuple[Turn, Any]:
        """The turn whose value fits, after at most CORRECTIONS_MAX corrections, those within turns included."""
        failed = 0  # tries; what a tool refused within a turn is one, a turn that ends without any is one
        while True:
            unfit = 0 if self._result is None else self._result.unfit
            try:
                value = structured.value_of(turn, typed, self._how)
            except AnswerUnfit as error:
                problem = error
            else:
                if failed + unfit:
                    self._warnings.append(f"The answer had to be corrected, times: {failed + unfit}.")
                return turn, value
            failed += unfit or 1
            if failed > CORRECTIONS_MAX:
                break
            turn = await self._turned(structured.correction(problem, self._how), CORRECTIONS_MAX - failed)
        raise self._failed(
            f"gave no answer that fits the schema, with {CORRECTIONS_MAX} corrections: {problem}", code="schema_unmet"
        )

    # --- the session

    @property
    def _how(self) -> How:
        can = self._chosen.agent.capabilities
        return "given" if can.schema else "tool" if can.mcp else "text"

    async def _opened(self, prompt: Prompt) -> str:
        """Have a session, and the text to say in it."""
        if self._session is not None:
            return self._wording(prompt)
        bound, agent = self._bound, self._chosen.agent
        if bound is not None:
            await self._permissions.withdraw()
            if bound.agent == agent.name and agent.capabilities.reopen and await self._reopened(bound):
                return continuation(self._options, self._how) if prompt.was_asked else self._wording(prompt)
            self._warnings.append("The stage was interrupted and went on in a new session.")
        await self._open(self._chosen.model, self._setting.forked)
        wording = self._wording(prompt, with_frame=True)
        return f"{earlier(prompt.exchanges)}\n\n{wording}" if prompt.exchanges else wording

    def _wording(self, prompt: Prompt, *, with_frame: bool = False) -> str:
        """The prompt with what the engine puts around it, the first time a session hears of the stage."""
        if prompt.is_first or with_frame:
            return stage_prompt(self._options, prompt.text, self._how)
        return prompt.text

    async def _reopened(self, bound: SessionBound) -> bool:
        try:
            await self._open(bound.model or None, bound.session_id)
        except StageFailed as failed:
            self._warnings.append(f"Session {bound.session_id} could not be reopened: {failed.failure.message}")
            return False
        return True

    async def _open(self, model: str | None, reopen_id: str | None) -> None:
        run, stage, agent = self._run, self._stage, self._chosen.agent
        await self._serve_tools()
        spec = SessionSpec(
            run_id=run.run_id,
            node_id=node_id(run.run_id, stage.position),
            stage=stage.name,
            cwd=self._setting.cwd,
            scratch=run.tree.scratch(run.run_id, stage.position),
            model=model,
            schema=self._options.schema if self._how == "given" else None,
            reopen_id=reopen_id,
            options={"seed": run.tree.options.seed, "script": run.tree.options.script, "tools": self._options.tools},
            tools=self._tools,
            permit=self._permissions.choose if self._permissions.can_ask else None,
        )
        self._session = session = await self._guarded(agent.open(spec, self._heard))
        if self._bound is not None and self._bound.session_id == session.session_id:
            return
        self._bound = SessionBound(
            position=stage.position, agent=agent.name, session_id=session.session_id, take=stage.take, model=model or ""
        )
        await run.log.commit(run, self._bound)

    async def _serve_tools(self) -> None:
        """Have the engine's tools ready for a session that is to hand in a value by one of them."""
        schema, typed = self._options.schema, self._options.typed
        if self._how != "tool" or schema is None or typed is None:
            self._result = None
        elif self._tools is None:
            self._result = ResultTool(schema, typed)
            self._tools = await self._guarded(self._run.tree.serve_tools([self._result]))

    # --- turns

    async def _turned(self, text: str, corrections_left: int) -> Turn:
        """One turn that ended by itself, or handed in a value."""
        assert self._session is not None
        lease = self._run.check_lease()
        if lease is not None:
            await lease
        self._transcript.prompted(text)
        if self._result is not None:
            self._result.unfit_max = corrections_left
            self._result.begin_turn()
        try:
            turn: Turn = await self._guarded(self._session.prompt(text))
        except StageFailed as failed:
            return await self._rescued(failed)
        self._count(turn.usage)
        if self._aborted:
            raise self._failed("was aborted by the workflow", code="aborted")
        has_value = self._result is not None and self._result.value is not UNSET
        if turn.stop != "end_turn" and (turn.stop == "cancelled" or not has_value):
            raise self._failed(_STOPS[turn.stop])
        return replace(turn, value=self._result.value) if self._result is not None and has_value else turn

    async def _rescued(self, failed: StageFailed) -> Turn:
        """The turn of an agent that failed after it had handed in its value, which counts. Else raises `failed`."""
        self._count(None)
        if self._result is None or self._result.value is UNSET or self._aborted:
            raise failed
        self._warnings.append(f"The agent failed after it had handed in its result: {failed.failure.message}")
        await self.close()
        return Turn("end_turn", "", self._result.value)

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
        self._stir()
        self._transcript.add(event)
        for listener in self.listeners:
            listener(event)

    def _stir(self) -> None:
        """The idle time begins anew; it stands still while a person thinks."""
        if self._idle is not None and not self._idle.expired():
            until = asyncio.get_running_loop().time() + self._options.idle_timeout
            self._idle.reschedule(None if self._thinking else until)

    @contextmanager
    def _person_thinks(self) -> Iterator[None]:
        """The agent is silent because it waits for a person."""
        self._thinking += 1
        self._stir()
        try:
            yield
        finally:
            self._thinking -= 1
            self._stir()

    # --- what it cost, why it failed

    def _count(self, used: TurnUsage | None) -> None:
        """Add up what a turn used; what the agent does not say is marked unknown, never taken for nothing."""
        run, used = self._run, used or TurnUsage()
        is_known = used.tokens_in is not None or used.tokens_out is not None
        turned = Usage(
            tokens_in=used.tokens_in or 0, tokens_out=used.tokens_out or 0, cost_nanos=used.cost_nanos,
            turns_unknown=0 if is_known else 1,
        )  # fmt: skip
        self.usage, run.usage = self.usage + turned, run.usage + turned
        self._counted += 1
        run.log.note(
            run,
            UsageRecorded(
                position=self._stage.position, number=self._counted, epoch=run.epoch, tokens_in=self.usage.tokens_in,
                tokens_out=self.usage.tokens_out, cost_nanos=self.usage.cost_nanos,
                turns_unknown=self.usage.turns_unknown,
            ),
        )  # fmt: skip

    def _broken(self, error: BaseException) -> StageFailed:
        if isinstance(error, StageFailed):
            return error
        failure = failures.classify(error, origin="provider")
        return StageFailed(failure.message, failure=failure)

    def _failed(self, what: str, kind: type[PerdureError] = AgentError, *, code: str = "") -> StageFailed:
        message = bounded(f"Agent {self._chosen.agent.name} {what}.")
        return StageFailed(message, failure=Failure(code=code or kind.code, message=message, type=kind.__name__))


def used_before(recorded: UsageRecorded | None) -> Usage:
    """What earlier executions of the stage have used."""
    if recorded is None:
        return Usage()
    return Usage(
        tokens_in=recorded.tokens_in, tokens_out=recorded.tokens_out, cost_nanos=recorded.cost_nanos,
        turns_unknown=recorded.turns_unknown,
    )  # fmt: skip
