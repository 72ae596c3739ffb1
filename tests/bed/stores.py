"""Stores of every kind, and runs in them, for the tests of the store."""

import asyncio
from functools import partial

from msgspec import Raw

from perdure import events as ev
from perdure.store import StoreClock, open_database
from perdure.store.journal import Appended, Item, Journal, NewRun, Terms

KINDS = ("sqlite",)
ROOT = "0193e8a0-0000-7000-8000-000000000001"
MINUTE_MS = 60_000
CHILD = "child-1"
GRANDCHILD = "child-2"


class MovedClock(StoreClock):
    """The store's clock, moved by hand."""

    def __init__(self):
        self.moved_ms = 0

    def now_ms(self, database_ms):
        return database_ms + self.moved_ms


def new_run(run_id=ROOT, root=None, parent=None, position=None, depth=1):
    return NewRun(run_id, root or run_id, parent, position, depth, "fix", "/project", "fix.py", "digest")


def done(number, value=b"1", **fields):
    return ev.NodeFinished(position=f"/:{number}", status="completed", value=Raw(value), **fields)


def status(to, number=1, epoch=1, **fields):
    return ev.StatusChanged(status=to, epoch=epoch, number=number, **fields)


def begun():
    return ev.RunStarted(name="fix", inputs=Raw(b"{}"))


def item(event, run_id=ROOT, **fields):
    return Item(run_id, event, **fields)


async def owned(journal, run_id=ROOT, holder="one", timeout_ms=90_000, process=None):
    """A new run's lease."""
    return await journal.create(new_run(run_id), Terms(holder, timeout_ms, process))


async def taken_over(journal):
    """A stale lease and the current one."""
    old = await owned(journal)
    await journal.append(old, item(done(1)))
    await journal.release(old)
    return old, await journal.acquire(ROOT, "two")


async def family(journal):
    lease = await owned(journal)
    await journal.create_child(lease, new_run(CHILD, ROOT, ROOT, "/:1", 2))
    await journal.create_child(lease, new_run(GRANDCHILD, ROOT, CHILD, "/:1", 3))
    return lease


def kinds(outcomes):
    return [type(outcome).__name__ for outcome in outcomes]


def seqs(outcomes):
    return [outcome.stored.seq for outcome in outcomes if isinstance(outcome, Appended)]


def opened(kind, folder, clock=None):
    assert kind == "sqlite"
    return open_database(folder / "perdure.db", clock=clock)


async def _with_journal(scenario, database):
    try:
        return await scenario(Journal(database))
    finally:
        await database.close()


def runner(kind, folder):
    """`run(scenario)` calls the coroutine function with a journal in a store of that kind."""

    def run(scenario, clock=None):
        return asyncio.run(_with_journal(scenario, opened(kind, folder, clock)))

    run.opened = partial(opened, kind, folder)
    return run
