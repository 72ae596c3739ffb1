"""What an agent's question for permission looks like, and that a person's thinking is not the agent's silence."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from perdure.agents.session import PermissionAsked, PermissionOption, Turn
from perdure.operations.permission import MESSAGE_CHARS_MAX, _labels, _message
from perdure.values import raw
from tests.bed.stages import FakeAgent, run_stages

ALLOW = PermissionOption("y", "Allow", "allow_once")


class Given(Struct):
    prompt_id: str
    generation: int
    value: object
    actor: str


class SlowPerson:
    """Thinks for an hour, then allows."""

    async def ask(self, run, call, question, aside):
        await asyncio.sleep(3600)
        return Given("p", 1, raw(question.choices[0]), "user")


def test_a_person_may_think_longer_than_the_agent_may_be_silent():
    async def asking(session, text):
        chosen = await session.spec.permit(PermissionAsked("Run it", "execute", (), (ALLOW,)))
        return Turn("end_turn", chosen.option_id)

    async def body(ctx, seen):
        ctx._run.tree.attention = SlowPerson()
        seen.append((await ctx.task("do", "Do.", idle_timeout=60)).text)

    assert run_stages(body, FakeAgent(asking)).seen == ["y"]


def test_after_the_person_the_agents_silence_counts_again():
    async def asking(session, text):
        await session.spec.permit(PermissionAsked("Run it", "execute", (), (ALLOW,)))
        await asyncio.sleep(61)
        return Turn("end_turn", "late")

    async def body(ctx, seen):
        ctx._run.tree.attention = SlowPerson()
        await ctx.task("do", "Do.", idle_timeout=60)

    assert run_stages(body, FakeAgent(asking)).ending.failure.code == "timed_out"


def test_options_that_read_alike_are_told_apart():
    options = (
        ALLOW, PermissionOption("Y", "allow ", "allow_always"), PermissionOption("a", "Allow", "allow_once"),
        PermissionOption("n", "", "reject_once"),
    )  # fmt: skip
    labels = _labels(options)
    assert list(labels.values()) == ["y", "Y", "a", "n"]
    assert len({label.casefold() for label in labels}) == 4
    assert "reject once" in labels


def test_a_message_is_bounded_and_names_the_files():
    asked = PermissionAsked("x" * 10_000, "edit", ("/a",), (ALLOW,))
    assert len(_message("do", asked)) < MESSAGE_CHARS_MAX + 50
    many = tuple(f"/{number}" for number in range(30))
    assert _message("do", PermissionAsked("Edit", "edit", many, (ALLOW,))).endswith("/9 and 20 more")
