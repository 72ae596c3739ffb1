"""Journals written by hand, for tests of what reads them."""

from msgspec import Raw

from perdure import events as ev
from perdure.host.identity import here
from perdure.store import open_database
from perdure.store.journal import Item, Journal, NewRun, Terms

ROOT = "0193e8a0-0000-7000-8000-000000000001"
OTHER = "0193e8a0-0000-7000-8000-000000000002"
CHILD = "0193e8a0-ffff-5000-8000-000000000003"


def new_run(run_id=ROOT, name="fix", definition="", parent=None, position=None):
    return NewRun(run_id, parent or run_id, parent, position, 2 if parent else 1, name, "/project", definition, "")


def begin(name="fix", agent="rehearsal"):
    return [
        ev.RunStarted(name=name, inputs=Raw(b'{"issue":"x"}'), cwd="/project", options={"agent": agent}),
        ev.StatusChanged(status="running", epoch=1, number=1),
    ]


def started(position, name=None, kind="tool", parents=(), **fields):
    return ev.NodeStarted(
        position=position, kind=kind, name=name or f"n{position[-1]}", digest="h", parents=parents, **fields
    )


def finished(position, status="completed", value=b"1", name=None, kind="tool", parents=(), **fields):
    start = started(position, name, kind, parents)
    return ev.NodeFinished(position=position, status=status, value=Raw(value), elapsed_ms=5, start=start, **fields)


def status(to, number=2, **fields):
    return ev.StatusChanged(status=to, epoch=1, number=number, **fields)


class Book:
    """A database with one journal that the test writes."""

    def __init__(self, folder):
        self.database = open_database(folder / "perdure.db")
        self.journal = Journal(self.database)

    async def write(self, *events, run_id=ROOT, release=True, process=None, definition=""):
        """Append events under a lease; `release=False` leaves it held, as by a live owner (`process`: by that one)."""
        terms = Terms(f"holder-{run_id}", 90_000, process if process is not None else here())
        lease = await self.journal.create(new_run(run_id, definition=definition), terms, [])
        for event in events:
            await self.journal.append(lease, Item(run_id, event))
        if release:
            await self.journal.release(lease)
        return lease
