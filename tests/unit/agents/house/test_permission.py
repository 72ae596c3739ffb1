"""Asking before acting, and what "always" means."""

from __future__ import annotations

import asyncio

import pytest

from perdure.agents.house.permission import Action, Denied, Permissions, TurnCancelled, Verdict

EDIT, RUN = Action("1", "edit", "Write a.txt"), Action("2", "execute", "rm -r build")


class Client:
    """Gives the verdicts in turn and keeps what it was asked."""

    def __init__(self, *verdicts: Verdict) -> None:
        self._verdicts = list(verdicts)
        self.asked: list[Action] = []

    async def __call__(self, action: Action) -> Verdict:
        self.asked.append(action)
        return self._verdicts.pop(0)


def test_one_yes_is_one_yes_and_one_no_is_one_no() -> None:
    client = Client("allow_once", "reject_once", "allow_once")

    async def scenario() -> None:
        permissions = Permissions(client)
        await permissions.check(EDIT)
        with pytest.raises(Denied, match=r"Write a\.txt"):
            await permissions.check(EDIT)
        await permissions.check(EDIT)

    asyncio.run(scenario())
    assert client.asked == [EDIT] * 3


def test_always_holds_for_the_kind_of_action_only() -> None:
    client = Client("allow_always", "reject_always")

    async def scenario() -> None:
        permissions = Permissions(client)
        await permissions.check(EDIT)
        await permissions.check(EDIT)
        for _ in range(2):
            with pytest.raises(Denied):
                await permissions.check(RUN)

    asyncio.run(scenario())
    assert client.asked == [EDIT, RUN]


def test_in_mode_auto_nobody_is_asked() -> None:
    asyncio.run(Permissions(Client(), "auto").check(RUN))


def test_a_question_called_off_ends_the_turn() -> None:
    with pytest.raises(TurnCancelled):
        asyncio.run(Permissions(Client("cancelled")).check(RUN))
