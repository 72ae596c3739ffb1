"""`ctx.ask`: what may be asked, and what the record says of a question. Asking itself: tests/contract."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from perdure.errors import UsageError
from perdure.events import NodeFinished
from tests.bed.engines import House, at


class Release(BaseModel):
    version: str


def answered_by_default(house, body):
    """How the body ends when every question is answered by its default."""

    async def scenario(house):
        return (await (await house.process()).run(body, on_prompt="default"))[1]

    return house.play(scenario)


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


@pytest.mark.parametrize("choices", [[], ["a", "a"], ["a", " A "]])
def test_a_choice_between_nothing_or_between_equals_is_refused(house, choices):
    async def body(ctx) -> None:
        with pytest.raises(UsageError, match="choices"):
            ctx.ask.select("Which?", choices)

    assert answered_by_default(house, body).status == "completed"


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.ask.confirm("Deploy?", default="perhaps"),
        lambda ctx: ctx.ask.select("Deploy?", ["a", "b"], default="c"),
        lambda ctx: ctx.ask.input("Deploy?", default=3),
        lambda ctx: ctx.ask.form(Release, "Deploy?", default={"version": 1}),
        lambda ctx: ctx.ask.form(Release, "Deploy?", default=object()),
    ],
)
def test_a_default_that_is_no_answer_is_refused_at_the_call_and_names_the_question(house, ask):
    async def body(ctx) -> None:
        with pytest.raises(UsageError, match=r"Deploy\?"):
            ask(ctx)

    assert answered_by_default(house, body).status == "completed"


def test_a_default_is_taken_as_an_answer_would_be(house):
    async def body(ctx) -> list:
        return [await ctx.ask.confirm("Deploy?", default="yes"), await ctx.ask.select("Which?", ["a", "b"], default=2)]

    assert answered_by_default(house, body).value == [True, "b"]


@pytest.mark.parametrize(
    "changed",
    [
        lambda ctx: ctx.ask.select("Which one?", ["a", "b"]),
        lambda ctx: ctx.ask.select("Which?", ["b", "a"]),
        lambda ctx: ctx.ask.input("Which?"),
    ],
)
def test_another_text_kind_or_choice_is_another_question_and_another_default_is_not(house, changed):
    async def before(ctx) -> list:
        return [await ctx.ask.select("Which?", ["a", "b"], default="a"), await ctx.random()]

    async def after(ctx) -> list:
        return [await changed(ctx), await ctx.random()]

    async def other_default(ctx) -> list:
        return [await ctx.ask.select("Which?", ["a", "b"], default="b"), await ctx.random()]

    async def scenario(house):
        run_id = await house.killed(before, at(NodeFinished, "after"), on_prompt="default")
        heir = await house.heir()
        drifted = await heir.resume(run_id, after, on_prompt="default")
        return drifted, await heir.resume(run_id, other_default, on_prompt="default")

    drifted, same = house.play(scenario)
    assert (drifted.status, drifted.code) == ("blocked", "replay_mismatch")
    assert (same.status, same.value[0]) == ("completed", "a")
