"""`ctx.parallel`, `ctx.as_completed`: branches as lanes.

They are plain asyncio on the author's side of the record: every branch is a task of the author's lane, so identity and
order follow from the lanes and nothing here is journaled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from typing import Any

from perdure.errors import OperationFailed, UsageError


def call_parallel(
    items: Iterable[Any] | Mapping[str, Any], limit: int | None, on_error: str
) -> Coroutine[Any, Any, Any]:
    """Make all calls now, in the caller's lane; the coroutine runs them and gives the results in input order."""
    if on_error not in {"cancel", "collect"}:
        raise UsageError(f'on_error is "cancel" or "collect", got {on_error!r}.', got=on_error)
    if limit is not None and limit < 1:
        raise UsageError(f"limit is at least 1, got {limit}.", got=limit)
    names = [str(name) for name in items] if isinstance(items, Mapping) else None
    branches = list(items.values()) if isinstance(items, Mapping) else list(items)
    return _run(names, branches, limit, on_error)


async def _run(names: list[str] | None, branches: list[Any], limit: int | None, on_error: str) -> Any:
    slots = None if limit is None or limit >= len(branches) else asyncio.Semaphore(limit)
    tasks = []
    for number, branch in enumerate(branches):
        coro = branch if slots is None else _in_slot(slots, branch, after_failure=on_error == "collect")
        name = names[number] if names is not None else getattr(branch, "__qualname__", "branch")
        tasks.append(asyncio.create_task(coro, name=name))
    try:
        results = await _gather(tasks, collect=on_error == "collect")
    except BaseException:
        for task in tasks:
            task.cancel("sibling_failed")
        if tasks:
            await asyncio.wait(tasks)
        for branch in branches:  # what never began
            close = getattr(branch, "close", None)
            if close is not None:
                close()
        raise
    return results if names is None else dict(zip(names, results, strict=True))


async def _gather(tasks: list[asyncio.Task[Any]], *, collect: bool) -> list[Any]:
    if not tasks:
        return []
    if not collect:
        return await asyncio.gather(*tasks)
    await asyncio.wait(tasks)
    results = []
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OperationFailed):
            results.append(error)
        else:
            results.append(task.result())
    return results


async def _in_slot(slots: asyncio.Semaphore, branch: Coroutine[Any, Any, Any], *, after_failure: bool) -> Any:
    await slots.acquire()
    try:
        result = await branch
    except BaseException:
        if after_failure:  # else the slot stays taken: no sibling begins that is about to be cancelled
            slots.release()
        raise
    slots.release()
    return result


async def as_completed(items: Iterable[Any]) -> AsyncIterator[Any]:
    """Results in the order in which they come, the same on every replay. Raises a branch's failure at its turn."""
    tasks = [item if isinstance(item, asyncio.Task) else asyncio.create_task(item) for item in items]
    done: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()
    for task in tasks:
        task.add_done_callback(done.put_nowait)
    try:
        for _ in tasks:
            yield (await done.get()).result()
    finally:
        for task in tasks:
            task.cancel()
