"""What reaches a running engine from outside: answers to its questions and requests in its mailbox.

One poll serves every run of the process: when the store changed (a cheap counter), the open questions and the mailbox
are read in one go. A wake-up is a hint; a slow look happens even without one (DESIGN 2, law 7).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct

from perdure.errors import PerdureError
from perdure.events import PromptReleased
from perdure.operations.ask import Question, asked_event
from perdure.store import prompts, requests
from perdure.store.database import Database, Tx
from perdure.store.prompts import Prompt
from perdure.store.requests import Request
from perdure.values import raw

if TYPE_CHECKING:
    from perdure.engine.runner import Run
    from perdure.operations.base import Call

_logger = logging.getLogger("perdure.engine")

POLL_S: Final = 0.1
RECHECK_S: Final = 5.0
_ASIDE: Final = "!"  # in a question's key: beside the outcome of its step


class Answer(Struct, frozen=True):
    """A person's answer, as stored."""

    prompt_id: str
    generation: int
    value: Raw
    actor: str


class Attention:
    """Polls the store on behalf of the runs of this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open: dict[str, asyncio.Future[Prompt]] = {}
        self._seen = -1

    async def watch(self, owned: Callable[[], Iterable[str]], apply: Callable[[Request], Awaitable[None]]) -> None:
        """Look for ever; `apply` is called, in the order of posting, for each request to one of the `owned` roots."""
        quiet_s, is_troubled = 0.0, False
        while True:
            await asyncio.sleep(POLL_S)
            quiet_s += POLL_S
            try:
                changes = self._database.changes()
                if changes == self._seen and quiet_s < RECHECK_S:
                    continue
                self._seen, quiet_s = changes, 0.0
                await self.look(list(owned()), apply)
                is_troubled = False
            except PerdureError as error:  # nobody else would look: try again
                self._seen = -1
                if not is_troubled:
                    _logger.warning("The store could not be asked for answers and requests, trying again: %s", error)
                is_troubled = True

    async def look(self, roots: list[str], apply: Callable[[Request], Awaitable[None]]) -> None:
        """Take in what is there now."""
        if not roots:
            return
        waiting = list(self._open)

        def unit(tx: Tx) -> tuple[list[Prompt], list[Request]]:
            return prompts.get_many(tx, waiting) if waiting else [], requests.pending(tx, roots)

        answered, asked = await self._database.read(unit)
        for prompt in answered:
            future = self._open.get(prompt.prompt_id)
            if prompt.state == "answered" and future is not None and not future.done():
                future.set_result(prompt)
        for request in asked:
            await apply(request)

    async def ask(self, run: Run, call: Call, question: Question, aside: str = "") -> Answer:
        """Show a question and wait for its answer; a question that was open before the crash is the same one.

        The reservation is durable before the question shows, and the question before anybody may answer it. `aside`
        names a question beside the step's outcome: several may be open, and each ends with whoever waits for it.
        """
        lease = run.tree.lease
        key = call.position + (f"~{call.take}" if call.take else "") + (f"{_ASIDE}{aside}" if aside else "")
        prompt = await self._database.write(lambda tx: prompts.reserve(tx, lease, run.run_id, call.position, key))
        if prompt.state == "answered":
            return _answer(prompt)
        future = self._open[prompt.prompt_id] = asyncio.get_running_loop().create_future()
        try:
            await run.log.commit(run, asked_event(call, question, prompt.prompt_id, prompt.generation))
            shown = {
                "kind": question.kind, "message": question.message, "choices": list(question.choices),
                "initial": question.initial, "schema": question.schema, "name": call.name,
            }  # fmt: skip
            if prompt.state == "reserved":
                await self._database.write(
                    lambda tx: prompts.open_prompt(tx, lease, prompt.prompt_id, prompt.generation, shown)
                )
            self._seen = -1  # it may have been answered while nobody looked
            return _answer(await future)
        except asyncio.CancelledError:
            if aside or not _goes_on(run):
                await self._withdraw(run, call, prompt)
            raise
        finally:
            self._open.pop(prompt.prompt_id, None)

    async def withdraw_asides(self, run: Run, call: Call) -> None:
        """Withdraw what an earlier execution of a step had asked aside: nobody waits for it any more."""
        place = (run.run_id, call.position)
        asked = await self._database.read(lambda tx: prompts.open_prompts(tx, run.run_id))
        for prompt in asked:
            if (prompt.run_id, prompt.position) == place and _ASIDE in prompt.prompt_key:
                await self._withdraw(run, call, prompt)

    async def _withdraw(self, run: Run, call: Call, prompt: Prompt) -> None:
        """Nobody waits for the answer any more."""
        if run.log.lost is not None:
            return
        lease = run.tree.lease
        run.log.note(
            run,
            PromptReleased(
                position=call.position, prompt_id=prompt.prompt_id, generation=prompt.generation, reason="not needed"
            ),
        )
        await self._database.write(
            lambda tx: prompts.release(tx, lease, prompt.prompt_id, prompt.generation, "not needed")
        )


def _goes_on(run: Run) -> bool:
    """Whether the run was stopped in a way after which it goes on: its own questions stay open then."""
    return run.verdict is not None and run.verdict.status in {"paused", "blocked", "running"}


def _answer(prompt: Prompt) -> Answer:
    return Answer(prompt.prompt_id, prompt.generation, raw(prompt.answer), prompt.actor)
