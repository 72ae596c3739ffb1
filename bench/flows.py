"""The workflows that are measured, written with the public API as an author would."""

from __future__ import annotations

import asyncio
import time

from perdure import Context, tool, workflow

WORK_S = 0.1
LONG_S = 86_400


class Milestone:
    """Tells the bench, outside the run, that the body got somewhere. One waiter at a time, on any loop."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._waiter: asyncio.Future[None] | None = None

    def reach(self) -> None:
        """Called by the body."""
        self._at = time.perf_counter()
        if self._waiter is not None:
            self._waiter.set_result(None)

    async def wait(self) -> float:
        """Called by the bench: when it was reached, in seconds; then it can be reached again."""
        if self._at is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        assert self._at is not None
        at, self._at = self._at, None
        return at


class Laps:
    """Lets the bench call for the next lap of a long body and learn how long it took, in seconds."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[bool] = asyncio.Queue()
        self._times: asyncio.Queue[float] = asyncio.Queue()

    async def next(self) -> float:
        """Called by the bench: one lap."""
        self._calls.put_nowait(True)
        return await self._times.get()

    def end(self) -> None:
        """Called by the bench: no more laps."""
        self._calls.put_nowait(False)

    async def called(self) -> bool:
        """Called by the body: whether to do another one."""
        return await self._calls.get()

    def took(self, seconds: float) -> None:
        """Called by the body."""
        self._times.put_nowait(seconds)


# Bodies get JSON only, so what a case shares with its body is found here.
milestone = Milestone()
laps: dict[str, Laps] = {}


@tool
async def echo(x: int) -> int:
    """The cheapest step there is."""
    return x


@tool
async def work(x: int) -> int:
    """A step that takes its time."""
    await asyncio.sleep(WORK_S)
    return x


@workflow
async def three(ctx: Context) -> int:
    """Three steps, each using the one before."""
    a = await ctx.tool(echo, 1)
    b = await ctx.tool(echo, a + 1)
    return await ctx.tool(echo, b + 1)  # type: ignore[no-any-return]


@workflow
async def sequential(ctx: Context, steps: int) -> None:
    """Steps one after another."""
    for n in range(steps):
        await ctx.tool(echo, n)


@workflow
async def fan(ctx: Context, steps: int, is_work: bool) -> float:
    """Steps at once; how long they took, in seconds."""
    began = time.perf_counter()
    await ctx.parallel(ctx.tool(work if is_work else echo, n) for n in range(steps))
    return time.perf_counter() - began


@workflow
async def recorded(ctx: Context, steps: int, lanes: int) -> None:
    """Steps in lanes, then a long wait, so that the run can be stopped and resumed behind the last of them."""

    async def lane() -> None:
        for n in range(steps // lanes):
            await ctx.tool(echo, n)

    if lanes == 1:
        await lane()
    else:
        await asyncio.gather(*(lane() for _ in range(lanes)))
    milestone.reach()
    await ctx.sleep(LONG_S)


@workflow
async def growing(ctx: Context, steps: int, lap_steps: int, key: str) -> None:
    """Steps, then laps of some more steps when the bench calls for them."""
    for n in range(steps):
        await ctx.tool(echo, n)
    milestone.reach()
    while await laps[key].called():
        began = time.perf_counter()
        for n in range(lap_steps):
            await ctx.tool(echo, n)
        laps[key].took(time.perf_counter() - began)


@workflow
async def parked(ctx: Context) -> None:
    """A run that waits."""
    await ctx.sleep(LONG_S)
