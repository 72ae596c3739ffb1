"""`ctx.ask` through the whole engine: every kind, answers from other handles, crashes around the answer, policies."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pydantic import BaseModel

from perdure.control import Control
from perdure.definitions import workflow
from perdure.errors import HumanInputUnavailable, ToolFailed
from perdure.events import NodeFinished, PromptAnswered, PromptAsked, PromptReleased
from perdure.store import open_database, prompts
from tests.bed.engines import House, at, finish_of, until

DID: list = []


@pytest.fixture
def house(tmp_path):
    del DID[:]
    return House(tmp_path)


async def act(what: str) -> str:
    DID.append(what)
    return what


async def open_questions(house, run_id):
    return await house.database.read(lambda tx: prompts.open_prompts(tx, run_id))


async def asked(house, run_id, count=1):
    """The open questions, once there are so many."""
    while len(found := await open_questions(house, run_id)) < count:
        await asyncio.sleep(0.002)
    return found


class Release(BaseModel):
    version: str
    draft: bool = False


async def confirms(ctx) -> bool:
    return await ctx.ask.confirm("Deploy?")


@pytest.mark.parametrize(
    ("ask", "given", "value"),
    [
        (lambda ctx: ctx.ask.input("Name?", initial="x"), "  Ada ", "  Ada "),
        (lambda ctx: ctx.ask.editor("Text?"), "one\ntwo\n", "one\ntwo\n"),
        (lambda ctx: ctx.ask.confirm("Deploy?"), " YES ", True),
        (lambda ctx: ctx.ask.select("Which?", ["2", "x"]), "2", "2"),
        (lambda ctx: ctx.ask.select("Which?", ["a", "b"]), "2", "b"),
        (lambda ctx: ctx.ask.form(Release, "Release?"), {"version": "1"}, Release(version="1")),
        (lambda ctx: ctx.ask.form({"type": "object"}, "Any?"), '{"a": [1]}', {"a": [1]}),
    ],
)
def test_each_kind_of_question_gets_its_answer_from_another_handle_of_the_database(house, ask, given, value):
    got = []

    async def body(ctx) -> None:
        got.append(await ask(ctx))

    async def scenario(house):
        execution = await (await house.process()).start(body)
        await asked(house, execution.run_id)
        elsewhere = open_database(house.path, clock=house.clock)
        try:
            outcome = await Control(elsewhere).answer(execution.run_id, None, given, actor="ann")
        finally:
            await elsewhere.close()
        ending = await execution.wait()
        return outcome, ending, await house.of(execution.run_id, PromptAnswered)

    outcome, ending, answered = house.play(scenario)
    assert (outcome.status, outcome.changed, ending.status) == ("running", True, "completed")
    assert got == [value]
    assert type(got[0]) is type(value)
    assert [event.actor for event in answered] == ["ann"]


@pytest.mark.parametrize("given", ["perhaps", True, 0, "3"])
def test_an_answer_that_does_not_fit_leaves_the_question_open_and_lists_the_choices(house, given):
    async def body(ctx) -> str:
        return await ctx.ask.select("Which?", ["a", "b"])

    async def scenario(house):
        execution = await (await house.process()).start(body)
        await asked(house, execution.run_id)
        control = Control(house.database)
        refused = await control.answer(execution.run_id, None, given, actor="ann")
        still = len(await open_questions(house, execution.run_id))
        await control.answer(execution.run_id, None, "b", actor="ann")
        return refused, still, await execution.wait()

    refused, still, ending = house.play(scenario)
    assert (refused.status, refused.changed, refused.details["choices"], still) == ("noop", False, ["a", "b"], 1)
    assert ending.value == "b"


def test_questions_of_two_branches_are_open_together_and_answered_in_any_order(house):
    async def body(ctx) -> dict:
        return await ctx.parallel({"x": ctx.ask.confirm("X?"), "y": ctx.ask.input("Y?")})

    async def scenario(house):
        execution = await (await house.process()).start(body)
        x, y = sorted(await asked(house, execution.run_id, 2), key=lambda p: p.question["message"])
        control = Control(house.database)
        await control.answer(execution.run_id, y.prompt_id, "why", actor="ann")
        await control.answer(execution.run_id, x.prompt_id, False, actor="ann")
        return await execution.wait()

    assert house.play(scenario).value == {"x": False, "y": "why"}


# --- quits and crashes


def test_a_quit_keeps_the_question_open_and_an_answer_given_meanwhile_is_taken_by_the_resume(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(confirms)
        await asked(house, execution.run_id)
        execution.quit()
        ending = await execution.wait()
        still = len(await open_questions(house, execution.run_id))
        row = await house.journal.row(execution.run_id)
        outcome = await Control(house.database).answer(execution.run_id, None, "no", actor="ann")
        resumed = await process.resume(execution.run_id, confirms)
        return ending, still, row, outcome, resumed, await house.events(execution.run_id)

    ending, still, row, outcome, resumed, events = house.play(scenario)
    assert (ending.status, still, row.status, row.prompts_open) == ("paused", 1, "paused", 1)
    assert "perdure resume" in outcome.message
    assert (resumed.status, resumed.value) == ("completed", False)
    kinds = [type(s.event) for s in events]
    assert (kinds.count(PromptAsked), kinds.count(PromptReleased), kinds.count(PromptAnswered)) == (1, 0, 1)


def test_killed_after_it_was_asked_a_question_is_the_same_one_to_the_heir(house):
    async def scenario(house):
        run_id = await house.killed(confirms, at(PromptAsked, "after"))
        heir = await house.heir()
        execution = await heir.reopen(run_id, confirms)
        (question,) = await asked(house, run_id)
        await Control(house.database).answer(run_id, None, "yes", actor="ann")
        return question, await execution.wait(), await house.of(run_id, PromptAsked)

    question, ending, events = house.play(scenario)
    assert (ending.value, question.generation, len(events)) == (True, 1, 1)


@pytest.mark.parametrize("cut", [at(PromptAnswered, "before"), finish_of("/:0", "before")])
def test_killed_between_the_answer_and_its_outcome_a_question_is_not_asked_again(house, cut):
    async def scenario(house):
        process = await house.process()
        process.plug.cut = cut
        execution = await process.start(confirms)
        await asked(house, execution.run_id)
        await Control(house.database).answer(execution.run_id, None, "yes", actor="ann")
        await process.plug.out.wait()
        heir = await house.heir()
        return await heir.resume(execution.run_id, confirms), await house.events(execution.run_id)

    ending, events = house.play(scenario)
    assert ending.value is True
    kinds = [type(s.event) for s in events]
    assert (kinds.count(PromptAsked), kinds.count(PromptAnswered), kinds.count(NodeFinished)) == (1, 1, 1)


def test_an_answer_given_while_the_owner_was_dead_is_taken_at_once(house):
    async def scenario(house):
        process = await house.process()
        execution = await process.start(confirms)
        await asked(house, execution.run_id)
        process.die()
        heir = await house.heir()
        await Control(house.database).answer(execution.run_id, None, "yes", actor="ann")
        return await heir.resume(execution.run_id, confirms)

    assert house.play(scenario).value is True


def test_a_recorded_answer_replays(house):
    async def body(ctx) -> bool:
        answer = await ctx.ask.confirm("Deploy?")
        await ctx.tool(act, "deploy")
        return answer

    async def scenario(house):
        process = await house.process()
        process.plug.cut = finish_of("/:1", "before")
        execution = await process.start(body)
        await asked(house, execution.run_id)
        await Control(house.database).answer(execution.run_id, None, "yes", actor="ann")
        await process.plug.out.wait()
        return await (await house.heir()).resume(execution.run_id, body), await open_questions(house, execution.run_id)

    ending, still = house.play(scenario)
    assert (ending.value, ending.replayed, still) == (True, 1, [])


# --- questions nobody needs any more


def test_a_question_that_the_code_stops_waiting_for_is_withdrawn(house):
    async def body(ctx) -> str:
        question = asyncio.create_task(ctx.ask.confirm("Quick?"))
        await enough.wait()
        question.cancel()
        await asyncio.wait([question])
        await ctx.tool(act, "went on")
        return "done"

    async def scenario(house):
        execution = await (await house.process()).start(body)
        await asked(house, execution.run_id)
        enough.set()
        ending = await execution.wait()
        events = await house.of(execution.run_id, PromptReleased)
        return ending, events, await open_questions(house, execution.run_id), await house.journal.row(execution.run_id)

    enough = asyncio.Event()
    ending, released, still, row = house.play(scenario)
    assert (ending.value, len(released), still, row.prompts_open) == ("done", 1, [], 0)


def test_an_exit_withdraws_the_open_questions_of_the_whole_tree(house):
    @workflow
    async def child(ctx) -> bool:
        return await ctx.ask.confirm("Child?")

    async def body(ctx) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.ask.confirm("Root?"))
            group.create_task(ctx.workflow(child))
            await asyncio.to_thread(exits.wait, 5)
            ctx.exit("skipped")

    exits = threading.Event()

    async def scenario(house):
        execution = await (await house.process()).start(body)
        await asked(house, execution.run_id, 2)
        exits.set()
        ending = await execution.wait()
        return ending, await open_questions(house, execution.run_id), await house.journal.tree(execution.run_id)

    ending, still, rows = house.play(scenario)
    assert (ending.status, still) == ("skipped", [])
    assert [row.status for row in rows] == ["skipped", "cancelled"]
    assert [row.prompts_open for row in rows] == [0, 0]


def test_a_question_whose_record_was_set_aside_is_asked_anew(house):
    async def refuse_at_first() -> str:
        DID.append("try")
        if DID.count("try") == 1:
            raise ValueError("no")
        return "ok"

    async def body(ctx) -> bool:
        failed = None
        try:
            await ctx.tool(refuse_at_first)
        except ToolFailed as error:
            failed = error
        answer = await ctx.ask.confirm("Go on?")
        if failed:
            raise failed
        return answer

    async def scenario(house):
        process = await house.process()
        first = await process.start(body)
        (one,) = await asked(house, first.run_id)
        control = Control(house.database)
        await control.answer(first.run_id, None, "no", actor="ann")
        assert (await first.wait()).status == "failed"
        second = await process.reopen(first.run_id, body)
        (two,) = await asked(house, first.run_id)
        await control.answer(first.run_id, None, "yes", actor="ann")
        return one, two, await second.wait()

    one, two, ending = house.play(scenario)
    assert one.prompt_id != two.prompt_id
    assert ending.value is True


# --- when nobody may be asked


def test_told_not_to_wait_for_people_a_run_fails_at_the_question_and_asks_when_it_is_resumed(house):
    async def scenario(house):
        process = await house.process()
        run_id, ending = await process.run(confirms, on_prompt="fail")
        execution = await process.reopen(run_id, confirms)
        await asked(house, run_id)
        await Control(house.database).answer(run_id, None, "yes", actor="ann")
        return ending, await execution.wait()

    ending, resumed = house.play(scenario)
    assert (ending.status, ending.code, ending.resumable) == ("failed", "human_input_unavailable", True)
    assert "--no-input" in ending.failure.message
    assert resumed.value is True


def test_a_resume_may_be_told_not_to_wait_for_people(house):
    async def scenario(house):
        process = await house.process()
        run_id, _ = await process.run(confirms, on_prompt="fail")
        return await process.resume(run_id, confirms, on_prompt="fail")

    ending = house.play(scenario)
    assert (ending.status, ending.code) == ("failed", "human_input_unavailable")


def test_defaults_answer_when_told_so_and_a_question_without_one_fails(house):
    async def body(ctx) -> list:
        got = [
            await ctx.ask.confirm("Deploy?", default=True),
            await ctx.ask.select("Which?", ["a", "b"], default="b"),
            await ctx.ask.input("Name?", default=""),
            (await ctx.ask.form(Release, default={"version": "2"})).version,
        ]
        try:
            await ctx.ask.editor("Text?")
        except HumanInputUnavailable as error:
            got.append(error.failure.code)
        return got

    async def scenario(house):
        return (await (await house.process()).run(body, on_prompt="default"))[1]

    assert house.play(scenario).value == [True, "b", "", "2", "human_input_unavailable"]


def test_a_default_answers_nothing_as_long_as_people_may_be_asked(house):
    async def body(ctx) -> bool:
        return await ctx.ask.confirm("Deploy?", default=True)

    async def scenario(house):
        execution = await (await house.process()).start(body)
        await asked(house, execution.run_id)
        await until(lambda: execution.tree.root.open_calls)
        await Control(house.database).answer(execution.run_id, None, "no", actor="ann")
        return await execution.wait()

    assert house.play(scenario).value is False
