"""`ctx.tool`: a side effect that happens once.

At most one success is recorded for a position, and it is committed before the code sees it. The effect itself is
at-least-once: a process killed between the effect and the commit runs it again on resume (docs/durability.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

from msgspec import Raw

from perdure import failures
from perdure.clock import SystemClock
from perdure.definitions import Tool, as_tool
from perdure.errors import LimitReached, PayloadInvalid, PerdureError, TimedOut, ToolFailed
from perdure.events import AttemptFailed, Failure, NodeFinished
from perdure.graph.lanes import LANE
from perdure.operations.base import Call, Run
from perdure.operations.results import Failed, Ok
from perdure.operations.threads import Threads
from perdure.values import bounded, digest_of_text, dump, load, raw

_clock = SystemClock()
THREADS = Threads()


def call_tool(run: Run, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
    """Take the call's place now; the coroutine gives its value. Raises PayloadInvalid: arguments must be JSON."""
    tool = function if type(function) is Tool else as_tool(function)
    bound = tool.bind(args, kwargs)
    text = dump(bound, what=f"tool {tool.name}: argument ")
    call = Call(run, "tool", tool.name, digest_of_text(f'["tool",{_about(tool)},{text}]'), depth=3)
    return _value(call, tool, args, kwargs, text)


def _about(tool: Tool[..., Any]) -> str:
    """What tells tools apart, as canonical JSON. Kept with the tool: it is on the hot path."""
    known: str | None = tool.__dict__.get("_about")
    if known is None:
        known = tool.__dict__["_about"] = dump([tool.name, tool.version, tool.on_error])[1:-1]
    return known


def _shown(bound: str) -> Raw:
    """The arguments for people to see: redacted, and cut when they are long."""
    if bound == "{}":
        return Raw(b"{}")
    text = bounded(bound, 1024)
    return Raw(bound.encode()) if text is bound else raw(text)


async def _value(call: Call, tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], bound: str) -> Any:
    replayed = call.has_outcome
    if replayed:
        outcome = await call.outcome(_never)
    else:
        context = copy_context()  # the author's context variables, but no lane: calls inside a tool are refused
        context.run(LANE.set, None)
        work = partial(_perform, tool=tool, args=args, kwargs=kwargs, bound=bound)
        outcome = await call.outcome(work, context=context)
    event: NodeFinished = outcome.event
    if event.status == "completed":
        value = tool.decode_result(load(event.value))  # type: ignore[arg-type]
        return Ok(value=value, attempts=event.attempts, replayed=replayed) if tool.on_error == "return" else value
    assert event.failure is not None, event
    if tool.on_error == "return":
        failure = event.failure
        return Failed(
            error=failure.message, exit_code=failure.exit_code, stdout=failure.stdout, stderr=failure.stderr,
            attempts=event.attempts, replayed=replayed, failure=failure,
        )  # fmt: skip
    raise ToolFailed(
        f"Tool {tool.name} failed: {event.failure.message}",
        failure=event.failure, position=call.position, run_id=call.run.run_id, tool=tool.name,
    )  # fmt: skip


async def _never(call: Call, _waiter: Any) -> None:
    raise AssertionError(f"{call.position} is recorded and was to be done again")


async def _perform(
    call: Call, waiter: Any, *, tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], bound: str
) -> None:
    """Run the tool until it succeeds or its attempts are used up, and journal what came of it."""
    run = call.run
    run.log.start_lazily(run, call.start(detail=_shown(bound)))
    began = _clock.monotonic()
    attempts = 1 if tool.retry is None else tool.retry.attempts
    wait = 0.0 if tool.retry is None else tool.retry.wait
    for attempt in range(1, attempts + 1):
        lease = run.check_lease()
        if lease is not None:
            await lease
        value, failure, final = await _attempt(tool, args, kwargs)
        if call.abandoned:
            return
        if failure is None or final or attempt == attempts:
            break
        run.log.note(run, AttemptFailed(position=call.position, attempt=attempt, failure=failure, epoch=run.epoch))
        await asyncio.sleep(wait)
        wait *= 1.0 if tool.retry is None else tool.retry.backoff
    elapsed_ms = int((_clock.monotonic() - began) * 1000)
    if failure is None:
        event = call.finished("completed", value=value, attempts=attempt, elapsed_ms=elapsed_ms)
    else:
        event = call.finished("failed", failure=failure, attempts=attempt, elapsed_ms=elapsed_ms)
    run.log.outcome(run, event, waiter)


async def _attempt(
    tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Failure | None, bool]:
    """One try: (stored value, failure, whether trying again is pointless)."""
    try:
        if tool.timeout is None:
            result = await _invoke(tool, args, kwargs)
        else:
            result = await _in_time(tool, args, kwargs)
    except asyncio.CancelledError:
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # by us: the code no longer waits
            raise
        broken = PerdureError(f"Tool {tool.name} was cancelled from inside: it awaits what somebody else cancelled.")
        return None, failures.classify(broken, origin="tool"), False
    except (Exception, SystemExit) as error:  # noqa: BLE001  author callback: whatever it raises is the tool's failure
        return None, failures.classify(error, origin="tool"), False
    try:
        return raw(tool.encode_result(result), what=f"tool {tool.name}: result "), None, True
    except (PayloadInvalid, LimitReached) as error:
        return None, failures.classify(error, origin="tool"), True


async def _in_time(tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        async with asyncio.timeout(tool.timeout) as limit:
            return await _invoke(tool, args, kwargs)
    except TimeoutError as error:
        if limit.expired():
            raise TimedOut(f"Tool {tool.name} took longer than its timeout of {tool.timeout} s.") from error
        raise


async def _invoke(tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if tool.is_async:
        return await tool.fn(*args, **kwargs)
    return await THREADS.run(tool.fn, args, kwargs)
