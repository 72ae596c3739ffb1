"""Turns: one at a time, each with one end, whoever ends it."""

from __future__ import annotations

import asyncio

import pytest

from perdure.agents.session import Turn, Turns
from perdure.errors import AgentError, AgentProtocolError


class Blocked:
    """A turn that ends only when cancelled, and tells that its cleanup ran."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cleaned = False

    async def __call__(self) -> Turn:
        try:
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned = True
        raise AssertionError("unreachable")


async def answer(text: str) -> Turn:
    return Turn("end_turn", text)


def test_a_turn_gives_its_end() -> None:
    assert asyncio.run(Turns().run(answer("hi"))) == Turn("end_turn", "hi")


def test_stop_ends_the_turn_as_cancelled_after_its_cleanup() -> None:
    async def scenario() -> None:
        turns, blocked = Turns(), Blocked()
        prompt = asyncio.create_task(turns.run(blocked()))
        await blocked.begun.wait()
        await turns.stop()
        assert blocked.cleaned
        assert (await prompt).stop == "cancelled"
        assert not turns.running

    asyncio.run(scenario())


def test_cancelling_the_one_who_awaits_is_raised_there_after_the_cleanup() -> None:
    async def scenario() -> None:
        turns, blocked = Turns(), Blocked()
        prompt = asyncio.create_task(turns.run(blocked()))
        await blocked.begun.wait()
        prompt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await prompt
        assert blocked.cleaned

    asyncio.run(scenario())


def test_after_a_stop_the_next_turn_runs() -> None:
    async def scenario() -> None:
        turns, blocked = Turns(), Blocked()
        prompt = asyncio.create_task(turns.run(blocked()))
        await blocked.begun.wait()
        await turns.stop()
        await prompt
        assert (await turns.run(answer("again"))).text == "again"

    asyncio.run(scenario())


def test_a_cancellation_that_nobody_asked_for_is_no_cancelled_turn_even_after_a_stop() -> None:
    async def cancelled_from_inside() -> Turn:
        raise asyncio.CancelledError

    async def scenario() -> None:
        turns, blocked = Turns(), Blocked()
        prompt = asyncio.create_task(turns.run(blocked()))
        await blocked.begun.wait()
        await turns.stop()
        await prompt
        with pytest.raises(asyncio.CancelledError):
            await turns.run(cancelled_from_inside())

    asyncio.run(scenario())


def test_a_second_turn_at_once_is_refused_and_the_first_goes_on() -> None:
    async def scenario() -> None:
        turns, blocked = Turns(), Blocked()
        prompt = asyncio.create_task(turns.run(blocked()))
        await blocked.begun.wait()
        with pytest.raises(AgentProtocolError, match="turn under way"):
            await turns.run(answer("x"))
        assert not prompt.done()
        await turns.close()
        assert (await prompt).stop == "cancelled"

    asyncio.run(scenario())


def test_a_closed_session_takes_no_turn_and_closes_again_in_silence() -> None:
    async def scenario() -> None:
        turns = Turns()
        await turns.close()
        await turns.close()
        with pytest.raises(AgentProtocolError, match="closed"):
            await turns.run(answer("x"))

    asyncio.run(scenario())


def test_a_failure_passes_and_frees_the_session() -> None:
    async def fail() -> Turn:
        raise AgentError("broken")

    async def scenario() -> None:
        turns = Turns()
        with pytest.raises(AgentError, match="broken"):
            await turns.run(fail())
        assert (await turns.run(answer("ok"))).text == "ok"

    asyncio.run(scenario())
