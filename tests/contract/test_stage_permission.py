"""An agent asks whether it may: the question reaches a person through the store, and its answer the agent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.agents.session import PermissionAsked, PermissionOption, Turn
from perdure.config import load_config
from perdure.control import Control
from perdure.definitions import workflow
from perdure.engine.engine import Engine
from perdure.engine.loop import LaneLoop
from perdure.engine.tree import RunOptions
from perdure.events import PromptAnswered, PromptAsked, PromptReleased
from perdure.store import open_database, prompts
from perdure.store.journal import Journal
from tests.bed.stages import FakeAgent

OPTIONS = (
    PermissionOption("y", "Allow", "allow_once"),
    PermissionOption("Y", "allow", "allow_always"),
    PermissionOption("n", "Reject", "reject_once"),
)
ASKED = PermissionAsked("Edit the file", "edit", ("/src/a.py",), OPTIONS)


@workflow(name="one")
async def one(ctx) -> str:
    return (await ctx.task("edit", "Edit.")).text


def asking(times=1):
    async def reply(session, text):
        chosen = await asyncio.gather(*(session.spec.permit(ASKED) for _ in range(times)))
        return Turn("end_turn", " ".join(str(one.option_id) for one in chosen))

    return reply


class Bench:
    """One database; an engine for each process that the test plays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, agent, scenario):
        async def main():
            database = open_database(self.folder / "perdure.db")
            config = load_config(self.folder, {"PERDURE_DATA_DIR": str(self.folder), "HOME": str(self.folder)})
            try:
                async with Engine(database, config, agents=lambda name: agent) as engine:
                    return await scenario(engine, database)
            finally:
                await database.close()

        with asyncio.Runner(loop_factory=LaneLoop) as runner:
            return runner.run(main())

    @property
    def options(self):
        return RunOptions(cwd=self.folder, agent="fake")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def questions(database, run_id, count=1):
    while True:
        found = await database.read(lambda tx: prompts.open_prompts(tx, run_id))
        if len(found) == count:
            return found
        await asyncio.sleep(0.01)


async def of(database, run_id, *kinds):
    return [s.event for s in await Journal(database).load(run_id) if isinstance(s.event, kinds)]


def test_a_person_chooses_and_the_agent_gets_the_option(bench):
    async def scenario(engine, database):
        execution = await engine.start(one, {}, bench.options)
        [asked] = await questions(database, execution.run_id)
        assert "Edit the file" in asked.question["message"]
        assert "/src/a.py" in asked.question["message"]
        assert asked.question["choices"] == ["Allow (allow once)", "allow (allow always)", "Reject"]
        await Control(database).answer(execution.run_id, None, "Reject", actor="user")
        ending = await execution.wait()
        return ending, await of(database, execution.run_id, PromptAsked, PromptAnswered)

    ending, events = bench.run(FakeAgent(asking()), scenario)
    assert ending.value == "n"
    assert [type(event) for event in events] == [PromptAsked, PromptAnswered]
    assert events[0].position == "/:0"
    assert events[1].actor == "user"


def test_several_questions_of_one_agent_are_open_at_once_and_answered_each(bench):
    async def scenario(engine, database):
        execution = await engine.start(one, {}, bench.options)
        asked = await questions(database, execution.run_id, 2)
        for question, answer in zip(asked, ("Reject", "Allow (allow once)"), strict=True):
            await Control(database).answer(execution.run_id, question.prompt_id, answer, actor="user")
        return await execution.wait()

    ending = bench.run(FakeAgent(asking(2)), scenario)
    assert sorted(ending.value.split()) == ["n", "y"]


def test_nobody_can_be_asked_in_a_run_that_was_told_not_to_wait(bench):
    async def reply(session, text):
        return Turn("end_turn", str(session.spec.permit))

    async def scenario(engine, database):
        return await (await engine.start(one, {}, replace(bench.options, on_prompt="fail"))).wait()

    assert bench.run(FakeAgent(reply), scenario).value == "None"


def test_a_question_dies_with_its_turn_and_an_answer_of_then_is_no_answer_now(bench):
    async def first(engine, database):
        execution = await engine.start(one, {}, bench.options)
        [asked] = await questions(database, execution.run_id)
        execution.quit()
        await execution.wait()
        assert await database.read(lambda tx: prompts.open_prompts(tx, execution.run_id)) == []
        return execution.run_id, asked.prompt_id, await of(database, execution.run_id, PromptReleased)

    run_id, old, released = bench.run(FakeAgent(asking()), first)
    assert [event.prompt_id for event in released] == [old]

    async def second(engine, database):
        execution = await engine.resume(run_id, one, bench.options)
        [asked] = await questions(database, run_id)
        assert asked.prompt_id != old
        await Control(database).answer(run_id, None, "Reject", actor="user")
        return await execution.wait()

    assert bench.run(FakeAgent(asking(), reopen=True), second).value == "n"


def test_what_a_killed_owner_left_open_is_withdrawn_before_the_agent_is_asked_again(bench):
    async def left_open(engine, database):
        execution = await engine.start(one, {}, bench.options)
        [asked] = await questions(database, execution.run_id)
        attention = engine._attention
        attention._withdraw = lambda *_: asyncio.sleep(0)  # a killed process withdraws nothing
        execution.quit()
        await execution.wait()
        assert [p.prompt_id for p in await questions(database, execution.run_id)] == [asked.prompt_id]
        return execution.run_id

    run_id = bench.run(FakeAgent(asking()), left_open)

    async def resumed(engine, database):
        ending = await (await engine.resume(run_id, one, bench.options)).wait()
        return ending, await of(database, run_id, PromptReleased), await questions(database, run_id, 0)

    ending, released, still_open = bench.run(FakeAgent("Done.", reopen=True), resumed)
    assert ending.value == "Done."
    assert len(released) == 1
    assert still_open == []
