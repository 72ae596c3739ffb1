"""Threads for plain (not async) tools: they die with the process.

asyncio's own executor is joined when the loop closes and when the interpreter ends, so one tool that blocks would keep
a run that was quit, or a process that was told to stop, alive for as long as it likes. These threads are daemons: what
an abandoned tool still does is lost with the process, and its value was dropped anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final

THREADS_MAX: Final = 64  # plain tools at once in one process; more of them wait


class Threads:
    """At most `count_max` daemon threads, made when they are needed and then kept."""

    def __init__(self, count_max: int = THREADS_MAX) -> None:
        self._count_max = count_max
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = Lock()
        self._count = 0
        self.busy = 0  # jobs that are queued or under way

    async def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function returns or raises, with the caller's context variables. Cancelling does not stop it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = copy_context()

        def job() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(function, *args, **kwargs)
            except StopIteration as raised:  # no future can carry it: the await would never end
                error = RuntimeError("The tool raised StopIteration.")
                error.__cause__ = raised
            except BaseException as raised:  # noqa: BLE001  author callback: it is the awaiting caller's to judge
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, future, result, error)

        self._submit(job)
        return await future

    def _submit(self, job: Callable[[], None]) -> None:
        with self._lock:
            self.busy += 1
            if self.busy > self._count and self._count < self._count_max:
                self._count += 1
                Thread(target=self._work, name=f"perdure-tool-{self._count}", daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self.busy -= 1


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
