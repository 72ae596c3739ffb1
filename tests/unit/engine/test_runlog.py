"""The ordered writer of a run: order, futures, held-back starts, and the end of writing."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw

from perdure import events as ev
from perdure.engine.loop import LAZY_MS, LaneLoop
from perdure.engine.runlog import RunLog
from perdure.errors import JournalClosed, StaleLease, StorageUnavailable
from perdure.events import Stored
from perdure.store.journal import Appended, Exists, Lease, Rejected

LEASE = Lease("run", "me", 1, 1, 90_000)


def started(n):
    return ev.NodeStarted(position=f"/:{n}", kind="tool", name="act", digest="h")


def finished(n):
    return ev.NodeFinished(position=f"/:{n}", status="completed", value=Raw(b"1"))


class Book:
    """A journal whose commits the test makes, one by one."""

    def __init__(self):
        self.queue, self.events = [], []
        self.refusal = None  # what a submit raises

    def submit_many(self, lease, items, done, loop, *, is_idle):
        if self.refusal is not None:
            raise self.refusal
        self.queue.append((items[0].event, done))

    def commit(self, kind=Appended):
        event, done = self.queue.pop(0)
        self.events.append(event)
        done([kind(Stored(len(self.events), "run", 1000, event))], None)

    def refuse(self, error, *, item=False):
        done = self.queue.pop(0)[1]
        done([Rejected(error)], None) if item else done(None, error)


class Order:
    """What the log tells the order."""

    def __init__(self):
        self.arrived = []

    def arrive(self, waiter, outcome, at):
        self.arrived.append((waiter, outcome.position, outcome.seq))

    def quiet_if_still(self):
        pass


class Place:
    run_id = "run"

    def __init__(self):
        self.order = Order()


def play(scenario):
    """`async scenario(log, book, place, lost)` on the engine's loop."""

    async def main():
        book, lost = Book(), []
        log = RunLog(book, LEASE, asyncio.get_running_loop(), lost.append)
        return await scenario(log, book, Place(), lost)

    with asyncio.Runner(loop_factory=LaneLoop) as runner:
        return runner.run(main())


def test_events_are_handed_over_in_the_order_in_which_they_were_decided():
    async def scenario(log, book, place, lost):
        log.note(place, started(0))
        future = log.commit(place, started(1))
        log.outcome(place, finished(0), "waiter")
        assert [type(event).__name__ for event, _ in book.queue] == ["NodeStarted", "NodeStarted", "NodeFinished"]
        assert (future.done(), place.order.arrived) == (False, [])
        for _ in range(3):
            book.commit()
        assert (future.result().seq, place.order.arrived) == (2, [("waiter", "/:0", 3)])

    play(scenario)


def test_an_event_that_was_there_already_gives_what_is_stored():
    async def scenario(log, book, place, lost):
        log.outcome(place, finished(0), "waiter")
        future = log.commit(place, started(1))
        book.commit(Exists)
        book.commit(Exists)
        assert place.order.arrived == [("waiter", "/:0", 1)]
        assert (await future).event == started(1)
        assert lost == []

    play(scenario)


def test_a_waiter_that_gave_up_does_not_take_its_event_back():
    async def scenario(log, book, place, lost):
        future = log.commit(place, started(0))
        future.cancel()
        book.commit()
        assert (book.events, lost) == ([started(0)], [])

    play(scenario)


@pytest.mark.parametrize("item", [True, False])
def test_the_first_refusal_ends_all_writing_and_is_told_once(item):
    async def scenario(log, book, place, lost):
        stale = StaleLease("Another process owns it.")
        first, second = log.commit(place, started(0)), log.commit(place, started(1))
        book.refuse(stale, item=item)
        book.refuse(StorageUnavailable("later trouble"))
        for future in (first, second):
            with pytest.raises((StaleLease, StorageUnavailable)):
                await future
        later = log.commit(place, started(2))
        log.note(place, started(3))
        with pytest.raises(StaleLease):
            await later
        assert (book.queue, lost, log.lost) == ([], [stale], stale)

    play(scenario)


def test_a_store_that_does_not_even_take_an_event_ends_the_writing_too():
    async def scenario(log, book, place, lost):
        book.refusal = JournalClosed()
        log.outcome(place, finished(0), "waiter")
        await log.drain()
        assert lost == [book.refusal]

    play(scenario)


def test_an_answer_that_is_lost_and_comes_after_the_end_disturbs_nobody():
    async def scenario(log, book, place, lost):
        log.outcome(place, finished(0), "waiter")
        log.close(StaleLease())
        book.refuse(StorageUnavailable())
        assert len(lost) == 1
        assert place.order.arrived == []

    play(scenario)


def test_a_start_that_is_held_back_travels_inside_its_outcome():
    async def scenario(log, book, place, lost):
        log.start_lazily(place, started(0))
        assert log.withheld(place, "/:0") == started(0)
        assert log.withheld(place, "/:0") is None
        await log.drain()
        assert book.queue == []

    play(scenario)


def test_a_step_that_takes_its_time_gets_its_start_written():
    async def scenario(log, book, place, lost):
        loop = asyncio.get_running_loop()
        log.start_lazily(place, started(0))
        due = loop.create_future()
        loop.real_call_later((LAZY_MS + 5) / 1000, due.set_result, None)
        await due
        assert [event for event, _ in book.queue] == [started(0)]
        assert log.withheld(place, "/:0") is None

    play(scenario)


def test_draining_writes_what_is_held_back_and_waits_for_every_decision():
    async def scenario(log, book, place, lost):
        log.start_lazily(place, started(0))
        log.note(place, started(1))
        draining = asyncio.ensure_future(log.drain())
        await asyncio.sleep(0)
        assert {event.position for event, _ in book.queue} == {"/:0", "/:1"}
        book.commit()
        await asyncio.sleep(0)
        assert not draining.done()
        book.commit()
        await draining

    play(scenario)


def test_two_may_drain_at_once_and_neither_waits_for_what_is_queued_later():
    async def scenario(log, book, place, lost):
        log.note(place, started(0))
        first = asyncio.ensure_future(log.drain())
        await asyncio.sleep(0)
        log.note(place, started(1))
        second = asyncio.ensure_future(log.drain())
        await asyncio.sleep(0)
        log.note(place, started(2))
        done = []
        for _ in range(2):
            book.commit()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            done.append((first.done(), second.done()))
        assert done == [(True, False), (True, True)]

    play(scenario)
