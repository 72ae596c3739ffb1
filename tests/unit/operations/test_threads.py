"""Threads for plain tools: bounded, reused, and nothing waits for them when the loop closes."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from perdure.operations.threads import Threads


def test_results_errors_and_context_variables_come_through():
    flavour = ContextVar("flavour", default="none")

    async def main():
        threads = Threads()
        flavour.set("lemon")
        assert await threads.run(lambda a, b: (a, b, flavour.get()), (1,), {"b": 2}) == (1, 2, "lemon")
        for error in (ValueError, SystemExit, asyncio.CancelledError):
            with pytest.raises(error):
                await threads.run(_raise, (error,), {})
        with pytest.raises(RuntimeError, match="StopIteration"):
            await threads.run(next, (iter(()),), {})

    asyncio.run(main())


def _raise(error):
    raise error


def test_at_most_so_many_run_at_once_and_the_rest_wait_their_turn():
    opened, lock = threading.Event(), threading.Lock()
    now, most, names = 0, 0, set()

    def job():
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            names.add(threading.current_thread().name)
        opened.wait(5)
        with lock:
            now -= 1

    async def main():
        threads = Threads(3)
        tasks = [asyncio.ensure_future(threads.run(job, (), {})) for _ in range(9)]
        while now < 3:
            await asyncio.sleep(0.001)
        opened.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert (most, len(names)) == (3, 3)


def test_one_after_another_needs_one_thread():
    async def main():
        threads = Threads()
        return {await threads.run(lambda: threading.current_thread().name, (), {}) for _ in range(20)}

    assert len(asyncio.run(main())) <= 2  # the next job may come before the thread is counted as free


def test_a_job_that_is_still_at_work_does_not_keep_the_loop_from_closing():
    opened, over = threading.Event(), threading.Event()

    def job():
        opened.wait(20)
        over.set()

    async def main():
        task = asyncio.ensure_future(Threads().run(job, (), {}))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    assert not over.is_set()
    opened.set()
    assert over.wait(5)
