"""`perdure.testing.rehearse`: the real engine, with the agents and the person played."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
from pathlib import Path

import pytest
from pydantic import BaseModel

from perdure import ChildFailed, Context, StageFailed, tool, workflow
from perdure.control import Control
from perdure.errors import ConfigInvalid, HumanInputUnavailable, InputInvalid, UsageError
from perdure.store import open_database
from perdure.testing import RehearsedNode, rehearse


class Opinion(BaseModel):
    approved: bool
    reasons: list[str]


@tool
def double(n: int) -> int:
    return 2 * n


@workflow
async def judged(ctx: Context, number: int = 21) -> dict:
    opinion = await ctx.task("judge", "Is it good?", schema=Opinion)
    story = await ctx.task("tell", "Tell it.", agent="some-agent", model="some/model")
    return {"approved": opinion.value.approved, "number": await ctx.tool(double, number), "story": story.text}


@workflow
async def asking(ctx: Context, times: int = 1) -> list:
    return [await ctx.ask.confirm(f"Deploy [{n}]?") for n in range(times)]


def test_a_script_decides_what_agents_answer_and_nodes_tell_what_happened() -> None:
    script = {"judge": {"value": {"approved": True, "reasons": []}}, "tell": {"text": "Once."}}
    result = rehearse(judged, script=script, number=4)
    assert (result.status, result.output) == ("completed", {"approved": True, "number": 8, "story": "Once."})
    assert result.nodes == (
        RehearsedNode("stage", "judge", "completed", {"approved": True, "reasons": []}),
        RehearsedNode("stage", "tell", "completed", "Once."),
        RehearsedNode("tool", "double", "completed", 8),
    )
    assert not result.error


def test_the_same_seed_gives_the_same_course() -> None:
    first, second, other = (rehearse(judged, seed=seed) for seed in (7, 7, 8))
    assert (first.output, first.nodes) == (second.output, second.nodes)
    assert first.nodes != other.nodes
    assert first.run_id != second.run_id


def test_questions_are_answered_by_pattern_in_turn_and_the_last_answer_stays() -> None:
    assert rehearse(asking, times=3, answers={"Deploy*": [True, "no"]}).output == [True, False, False]


def test_the_exact_question_goes_before_a_pattern() -> None:
    assert rehearse(asking, times=2, answers={"*": False, "Deploy [0]?": True}).output == [True, False]


def test_answers_are_recorded_as_a_persons() -> None:
    assert rehearse(asking, answers={"*": True}).nodes == (RehearsedNode("prompt", "Deploy [0]?", "completed", True),)


@pytest.mark.parametrize("answers", [None, {"Release*": True}, {"Deploy*": []}])
def test_a_question_without_an_answer_ends_the_rehearsal_and_says_what_to_give(answers: dict | None) -> None:
    with pytest.raises(HumanInputUnavailable, match=r"Deploy \[0\]\?.*answers=\{'Deploy \[0\]\?'"):
        rehearse(asking, answers=answers)


def test_the_body_cannot_swallow_a_question_without_an_answer() -> None:
    @workflow
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.ask.input("Name?")
        except Exception:
            return "caught"
        return "asked"

    with pytest.raises(HumanInputUnavailable):
        rehearse(stubborn)


def test_a_questions_own_default_answers_when_the_test_does_not() -> None:
    @workflow
    async def careful(ctx: Context) -> str:
        return await ctx.ask.select("Where to?", ["test", "live"], default="test")

    assert rehearse(careful).output == "test"
    assert rehearse(careful, answers={"Where*": 2}).output == "live"


def test_an_answer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputInvalid, match=r"Deploy \[0\].*yes or no"):
        rehearse(asking, answers={"*": "perhaps"})


def test_inputs_and_scripts_are_checked_before_anything_runs() -> None:
    with pytest.raises(InputInvalid, match="number"):
        rehearse(judged, number="4")
    with pytest.raises(ConfigInvalid, match="text"):
        rehearse(judged, script={"judge": {"txt": "x"}})
    with pytest.raises(UsageError, match="@workflow"):
        rehearse(double)


def test_a_failure_is_a_result() -> None:
    result = rehearse(judged, script={"tell": {"fail": {"code": "provider_refused", "message": "no"}}})
    assert (result.status, result.output) == ("failed", None)
    assert "no" in result.error
    assert [node.status for node in result.nodes] == ["completed", "failed"]


def test_an_exit_tells_its_reason_and_output(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def leaving(ctx: Context) -> int:
        ctx.exit("blocked", reason="no ticket", output={"done": 1})

    result = rehearse(leaving)
    assert (result.status, result.reason, result.output) == ("blocked", "no ticket", {"done": 1})
    gc.collect()
    assert not caplog.records  # such as "exception was never retrieved"


def test_steps_and_questions_of_child_runs_are_played_too() -> None:
    @workflow
    async def parent(ctx: Context) -> list:
        return (await ctx.workflow(asking, times=1)).output

    result = rehearse(parent, answers={"Deploy*": True})
    assert result.output == [True]
    assert [(node.kind, node.name) for node in result.nodes] == [("boundary", "asking"), ("prompt", "Deploy [0]?")]


def test_a_body_may_catch_what_agents_and_children_fail_with() -> None:
    @workflow
    async def parent(ctx: Context) -> list:
        caught = []
        for call, kind in ((ctx.task("tell", "Tell."), StageFailed), (ctx.workflow(judged), ChildFailed)):
            try:
                await call
            except kind as failure:
                caught.append(failure.failure.message)
        return caught

    result = rehearse(parent, script={"tell": {"fail": {"code": "unknown", "message": "broken"}}})
    assert result.status == "completed"
    assert len(result.output) == 2


def test_it_works_inside_a_running_event_loop() -> None:
    async def main() -> bool:
        return rehearse(asking, answers={"*": True}).output == [True]

    assert asyncio.run(main())


def test_files_of_the_script_land_in_a_folder_of_its_own_which_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    @workflow
    async def writing(ctx: Context) -> list:
        await ctx.task("write", "Write.")
        return [(ctx.cwd / "a.txt").read_text(), str(ctx.cwd)]

    text, folder = rehearse(writing, script={"write": {"files": {"a.txt": "hello"}}}).output
    assert text == "hello"
    assert folder.startswith(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_given_folder_and_database_are_used_and_kept(tmp_path: Path) -> None:
    @workflow
    async def looking(ctx: Context) -> str:
        return str(ctx.cwd)

    result = rehearse(looking, cwd=tmp_path, database=tmp_path / "kept.db")
    assert result.output == str(tmp_path)

    async def status() -> str:
        database = open_database(tmp_path / "kept.db", create=False)
        try:
            return (await Control(database).resolve(result.run_id)).status
        finally:
            await database.close()

    assert asyncio.run(status()) == "completed"


def test_a_form_is_answered_with_plain_values() -> None:
    @workflow
    async def formal(ctx: Context) -> str:
        given = await ctx.ask.form(Opinion, "Your opinion?")
        return f"{given.approved} {given.reasons}"

    answer = {"approved": True, "reasons": ["tested"]}
    assert rehearse(formal, answers={"Your*": answer}).output == "True ['tested']"
    assert rehearse(formal, answers={"Your*": json.dumps(answer)}).output == "True ['tested']"


def test_a_workflow_that_wants_a_worktree_is_rehearsed_without_one() -> None:
    @workflow(worktree="fix")
    async def wants_a_worktree(ctx: Context) -> bool:
        first = await ctx.task("first", "Do it.", worktree=True)
        async with ctx.stage("second", worktree="other", base="main") as stage:
            await stage.prompt("Go on.")
        return bool(first.text) and not any(ctx.cwd.iterdir())

    assert rehearse(wants_a_worktree).output is True
