"""`ctx.sleep`, `ctx.now`, `ctx.random`, `ctx.uuid`, `ctx.usage`: time and chance, recorded.

A sleep keeps its deadline in store time: its start is durable before the waiting begins, and after a crash only the
rest is waited (spec/authoring.md 3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from perdure.errors import UsageError
from perdure.events import ValueRecorded
from perdure.operations.base import Call, Run
from perdure.values import digest, load, raw


def call_sleep(run: Run, seconds: float) -> Coroutine[Any, Any, None]:
    """A durable timer."""
    if not seconds >= 0 or seconds == float("inf"):
        raise UsageError(f"ctx.sleep needs a number of seconds from 0 up, got {seconds!r}.", got=repr(seconds))
    delay_ms = round(seconds * 1000)
    call = Call(run, "sleep", f"sleep {seconds:g}s", digest("sleep", delay_ms), depth=3)
    return _slept(call, delay_ms)


async def _slept(call: Call, delay_ms: int) -> None:
    await call.outcome(partial(_wait, delay_ms=delay_ms))


async def _wait(call: Call, waiter: Any, *, delay_ms: int) -> None:
    run = call.run
    stored = await run.log.commit(
        run, call.start(delay_ms=delay_ms)
    )  # an earlier start, if there is one, is what counts
    remaining_ms = stored.at + delay_ms - run.store_now_ms()
    if remaining_ms > 0:
        await asyncio.sleep(remaining_ms / 1000)
    run.log.outcome(run, call.finished("completed"), waiter)


def call_value(run: Run, kind: str, draw: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
    """A value that is drawn once and is the same ever after."""
    return _drawn(Call(run, "value", kind, digest("value", kind), depth=3), draw)


async def _drawn(call: Call, draw: Callable[[], Any]) -> Any:
    run = call.run
    order = run.order
    if call.position in run.record.outcomes:
        outcome = await order.recorded(call.position)
        return load(outcome.event.value)
    if order.replaying or order.stopped is not None:
        await order.live()
    waiter = order.waiter(call.position)
    event = ValueRecorded(
        position=call.position, kind=call.name, digest=call.digest, value=raw(draw()), parents=call.parents,
        lane=call.lane.mention(), take=call.take,
    )  # fmt: skip
    run.log.outcome(run, event, waiter)
    outcome = await waiter.future
    return load(outcome.event.value)
