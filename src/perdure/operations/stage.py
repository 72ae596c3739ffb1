"""`ctx.task` and `ctx.chain`: a stage is one session of an agent that is asked one thing (spec/authoring.md 3 to 5).

    checked     options in the author's lane, the machine (agent, files) in the engine, before anybody is asked
    started     with a slot of the run-wide limit; the start, then the session's id are durable before the first prompt
    answered    with evidence, else failed with a classified failure (conversation.py)
    recorded    the outcome, first writer wins; only then does the author's code see it

Cancelled in between, the agent's session is closed and nothing is recorded. A resume goes on with the session by its
id if the agent can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure import failures
from perdure.errors import JournalError, PerdureError, UsageError
from perdure.operations.base import Call
from perdure.operations.conversation import Conversation, Prompt
from perdure.operations.dialogue import Stage
from perdure.operations.results import TaskResult
from perdure.operations.setting import Setting, Spoken, check_names, set_up, spoken_before
from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_result import detail_of, ending_of, failed_ending, remember, result_of

if TYPE_CHECKING:
    from perdure.engine.runner import Run


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the author asked of a stage."""

    prompt: str
    options: StageOptions
    spoken: Spoken | None


def call_stage(run: Run, name: str, prompt: str, options: StageOptions) -> Coroutine[Any, Any, TaskResult]:
    """Take the stage's place now; the coroutine gives its result. Raises UsageError before anything is recorded."""
    check_names(name, prompt)
    spoken = spoken_before(run, name, options)
    call = Call(run, "stage", name, options.digest("stage", name, prompt), label=options.label, depth=3)
    return _result(call, _Asked(prompt, options, spoken))


def call_chain(run: Run, items: Iterable[Mapping[str, Any]]) -> Coroutine[Any, Any, list[TaskResult]]:
    """Check every item now; the coroutine runs them one after the other. Each takes its place when its turn comes."""
    checked = []
    for item in items:
        if not isinstance(item, Mapping) or not {"name", "prompt"} <= item.keys():
            raise UsageError(
                f"ctx.chain takes mappings with name, prompt and a stage's options, got {item!r:.80}.",
                got=repr(item)[:80],
            )
        check_names(item["name"], item["prompt"])
        rest = {key: value for key, value in item.items() if key not in {"name", "prompt"}}
        StageOptions.of(rest)
        checked.append((item["name"], item["prompt"], rest))
    return _chained(run, checked)


async def _chained(run: Run, items: list[tuple[str, str, dict[str, Any]]]) -> list[TaskResult]:
    results: list[TaskResult] = []
    for name, prompt, given in items:
        previous = {"previous": results[-1]} if results else {}
        results.append(await call_stage(run, name, prompt, StageOptions.of({**previous, **given})))
    return results


async def _result(call: Call, asked: _Asked) -> TaskResult:
    replayed = call.has_outcome
    outcome = await call.outcome(partial(_perform, asked=asked))
    result = result_of(call, call.name, asked.options, outcome.event, replayed=replayed)
    remember(call, asked.options, outcome.event)
    return result


async def _perform(call: Call, waiter: Any, *, asked: _Asked) -> None:
    """Ask the agent and journal what came of it."""
    run: Any = call.run
    detail = detail_of(asked.prompt, asked.options)
    async with run.tree.slots:
        try:
            setting = await set_up(call, asked.options, asked.spoken)
        except JournalError:
            raise
        except PerdureError as error:
            run.log.start_lazily(run, call.start(detail=detail))
            run.log.outcome(run, call.finished("failed", failure=failures.classify(error, origin="engine")), waiter)
            return
        began = asyncio.get_running_loop().time()
        await run.log.commit(run, call.start(detail=detail))
        ending = await _ending(call, asked, setting)
    if call.abandoned:
        return
    elapsed_ms = int((asyncio.get_running_loop().time() - began) * 1000)
    run.log.outcome(run, call.finished(**ending, elapsed_ms=elapsed_ms), waiter)


async def _ending(call: Call, asked: _Asked, setting: Setting) -> dict[str, Any]:
    """How the stage ended, as fields of its outcome. The session is closed and its place left either way."""
    interrupted = call.position in call.run.record.sessions
    talk = Conversation(call, asked.options, setting)
    try:
        answer = await talk.ask(Prompt(call=call, text=asked.prompt, was_asked=interrupted))
        await talk.close()
        return await ending_of(answer, setting, asked.options, call, leaves=True)
    except JournalError:
        raise
    except (PerdureError, OSError) as error:
        await talk.close()
        return await failed_ending(error, setting)
    finally:
        await talk.close()
        await setting.workplace.leave()


__all__ = ["Stage", "StageOptions", "call_chain", "call_stage"]
