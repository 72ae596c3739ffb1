"""`ctx.stage`: a stage that is talked with, one session for several prompts (spec/authoring.md 3).

The stage is one node. Its prompts are steps with positions below it, counted in a lane of the stage's own, so each
replays by itself and code between them may change without shifting the rest. The stage's outcome is recorded when the
block is left in the ordinary way; left by an exception it has none, and a resume enters it again.

    entered --(first prompt that is not recorded)--> session open, kept by an engine task --(block left)--> closed

After a crash the next prompt reopens the session by its id if the agent can, else a new session is told what was said.
Nothing here waits for the agent in the author's lane: an unrecorded wait would change the order of other outcomes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from perdure import failures
from perdure.agents.session import AgentEvent
from perdure.errors import JournalError, NotAvailable, PerdureError, StageFailed, UsageError
from perdure.events import NodeAbandoned
from perdure.operations.base import Call
from perdure.operations.conversation import Conversation, Prompt, used_before
from perdure.operations.results import TaskResult
from perdure.operations.setting import Setting, check_names, set_up, spoken_before
from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_result import detail_of, ending_of, plain_usage, remember, result_of
from perdure.operations.workplace import enter
from perdure.values import bounded, digest, raw

if TYPE_CHECKING:
    from perdure.engine.runner import Run

_logger = logging.getLogger("perdure.run")


class Stage:
    """A stage that is talked with, inside `async with`."""

    def __init__(self, run: Run, name: str, options: StageOptions) -> None:
        """Take the stage's place. Raises UsageError before anything is recorded."""
        check_names(name, "given in prompt()")
        self._spoken = spoken_before(run, name, options)
        self._run: Any = run
        self._name, self._options = name, options
        self._call = Call(run, "stage", name, options.digest("stage", name, None), label=options.label, depth=3)
        self._lane = self._call.lane.child(f"stage:{name}")
        self._entered = self._left = False
        self._asked = 0
        self._results: list[tuple[str, TaskResult]] = []  # (prompt, result)
        self._positions: set[str] = set()
        self._listeners: list[Callable[[AgentEvent], None]] = []
        self._opening = asyncio.Lock()
        self._setting: Setting | None = None
        self._talk: Conversation | None = None
        self._keeper: asyncio.Task[None] | None = None

    # --- what the author may ask

    def prompt(self, text: str) -> Coroutine[Any, Any, TaskResult]:
        """Say something and get the answer; prompts queue. Raises StageFailed, UsageError."""
        check_names(self._name, text)
        if not self._entered or self._left:
            raise UsageError(f"Stage {self._name} is prompted inside its block: async with ctx.stage(...) as stage.")
        if self._options.schema is not None and self._asked:
            raise UsageError(f"Stage {self._name} has a schema, so it takes one prompt. Use another stage.")
        self._asked += 1
        name = f"{self._name} {self._asked}"
        call = Call(self._run, "value", name, digest("turn", self._name, text), depth=2, below=self._lane)
        if call.position not in self._run.record.starts:
            call.parents = (*call.parents, self._call.position)
        self._positions.add(call.position)
        return self._answered(call, text, is_first=self._asked == 1)

    async def abort(self) -> None:
        """End the running turn, if there is one: its prompt fails."""
        if self._talk is not None:
            self._run.spawn(self._talk.abort(), f"abort {self._name}")

    def subscribe(self, listener: Callable[[AgentEvent], None]) -> Callable[[], None]:
        """Hear what the agent says, live only: a replay is silent. Gives what ends it. No ctx calls inside."""

        def hear(event: AgentEvent) -> None:
            try:
                listener(event)
            except Exception:  # author callback: it may raise anything
                _logger.exception("A listener of stage %s failed", self._name)

        self._listeners.append(hear)
        return partial(self._unsubscribe, hear)

    @property
    def messages(self) -> tuple[dict[str, str], ...]:
        """What was said so far: prompts as "user", answers as "agent"."""
        pairs = (({"role": "user", "text": asked}, {"role": "agent", "text": r.text}) for asked, r in self._results)
        return tuple(message for pair in pairs for message in pair)

    @property
    def session_id(self) -> str:
        """The agent's session, once a prompt is answered; else empty."""
        return self._results[-1][1].session_id if self._results else ""

    def steer(self, text: str) -> NoReturn:
        """Text for the running turn comes with a later version."""
        self._not_yet("steer", text)

    def follow_up(self, text: str) -> NoReturn:
        """Text for when the turn ends comes with a later version."""
        self._not_yet("follow_up", text)

    def send(self, text: str, deliver_as: str | None = None) -> NoReturn:
        """Messages come with a later version."""
        self._not_yet("send", text, deliver_as=deliver_as)

    def compact(self) -> NoReturn:
        """Compaction comes with a later version."""
        self._not_yet("compact")

    def run_bash(self, command: str) -> NoReturn:
        """Commands in the stage's folder come with a later version."""
        self._not_yet("run_bash", command)

    def _not_yet(self, verb: str, text: str = "", **details: Any) -> NoReturn:
        raise NotAvailable(f"stage.{verb} is not in this version of perdure; use stage.prompt.", text=text, **details)

    def _unsubscribe(self, listener: Callable[[AgentEvent], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    # --- the block

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError(f"Stage {self._name} was entered already; call ctx.stage again.")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        if error is not None:
            self._abandon(error)
            return
        try:
            await self._call.outcome(self._finish)
        finally:
            self._release()

    def _abandon(self, error: BaseException) -> None:
        """The block is left by an exception: close the session, and say so in the graph."""
        call, run = self._call, self._run
        if self._keeper is None:
            return
        self._release()
        if isinstance(error, StageFailed) and error.position in self._positions:
            call.abandoned = True
            event = NodeAbandoned(
                position=call.position, status="failed", epoch=run.epoch, reason=bounded(error.message, 1024)
            )
            run.log.note(run, event)
        else:
            run.abandon(call, error)

    def _release(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            self._run.open_calls.pop(self._call.position, None)

    # --- the engine's side

    async def _answered(self, call: Call, text: str, *, is_first: bool) -> TaskResult:
        replayed = call.has_outcome
        outcome = await call.outcome(partial(self._perform, text=text, is_first=is_first))
        result = result_of(call, self._name, self._options, outcome.event, replayed=replayed)
        self._results.append((text, result))
        remember(self._call, self._options, outcome.event)
        return result

    async def _perform(self, call: Call, waiter: Any, *, text: str, is_first: bool) -> None:
        """Ask the agent and journal what it said."""
        run = self._run
        detail = detail_of(text, self._options)
        async with run.tree.slots:
            try:
                talk, setting = await self._opened(text)
            except JournalError:
                raise
            except PerdureError as error:
                run.log.start_lazily(run, call.start(detail=detail))
                run.log.outcome(run, call.finished("failed", failure=failures.classify(error, origin="engine")), waiter)
                return
            was_asked = call.position in run.record.starts
            await run.log.commit(run, call.start(detail=detail))
            said = tuple((asked, result.text) for asked, result in self._results)
            prompt = Prompt(call=call, text=text, is_first=is_first, was_asked=was_asked, exchanges=said)
            began = asyncio.get_running_loop().time()
            try:
                answer = await talk.ask(prompt)
                ending = await ending_of(answer, setting, self._options, self._call, leaves=False)
            except JournalError:
                raise
            except (PerdureError, OSError) as error:
                ending = {"status": "failed", "failure": failures.classify(error, origin="engine")}
        if not call.abandoned:
            elapsed_ms = int((asyncio.get_running_loop().time() - began) * 1000)
            run.log.outcome(run, call.finished(**ending, elapsed_ms=elapsed_ms), waiter)

    async def _opened(self, text: str) -> tuple[Conversation, Setting]:
        """The conversation; with the first prompt that is not recorded the stage starts and a task keeps it."""
        async with self._opening:
            if self._talk is None or self._setting is None:
                setting = await set_up(self._call, self._options, self._spoken)
                await self._run.log.commit(self._run, self._call.start(detail=detail_of(text, self._options)))
                self._setting, self._talk = setting, Conversation(self._call, self._options, setting)
                self._talk.listeners = self._listeners
                self._keeper = self._call.task = self._run.spawn(self._keep(self._talk, setting), self._name)
                self._run.open_calls[self._call.position] = self._call
            return self._talk, self._setting

    async def _keep(self, talk: Conversation, setting: Setting) -> None:
        """Hold the session until the block is left, however that comes about."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await talk.close()
            await setting.workplace.leave()

    async def _finish(self, call: Call, waiter: Any) -> None:
        """The block was left in the ordinary way: close the session and record the stage's outcome."""
        run, last = self._run, self._results[-1][1] if self._results else None
        if self._talk is not None:
            await self._talk.close()
        elif call.position not in run.record.starts:
            run.log.start_lazily(run, call.start())
        used = used_before(run.record.usage.get(call.position)) if self._talk is None else self._talk.usage
        stored = {
            "text": "" if last is None else last.text,
            "session_id": self.session_id,
            "prompts": len(self._results),
            "artifacts": await self._left_behind(),
            "usage": plain_usage(used),
        }
        run.log.outcome(run, call.finished("completed", value=raw(stored)), waiter)

    async def _left_behind(self) -> list[dict[str, Any]]:
        """The stage's artifacts. If its prompts are all recorded, it may have been killed before it left its place."""
        try:
            if self._setting is not None:
                return await self._setting.workplace.leave()
            if self._call.position in self._run.record.sessions:
                return await (await enter(self._call, self._options)).leave()
        except JournalError:
            raise
        except PerdureError as error:
            self._run.tree.warn(f"The state of stage {self._name}'s folder could not be kept. {error}")
        return []
