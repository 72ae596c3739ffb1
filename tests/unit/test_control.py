"""Control: targets, the mailbox and its races, answers, deletion."""

import asyncio
from functools import partial

import pytest

from perdure.control import Control, find_stage, to_prefix
from perdure.errors import ControlRefused
from perdure.host.identity import Identity, here
from perdure.inspect import run_view
from perdure.store import prompts, requests
from perdure.store.journal import NewRun
from perdure.watch import Watch
from tests.bed.journals import CHILD, OTHER, ROOT, Book, begin, finished, started, status

GONE = Identity(here().boot_id, here().pid_namespace, here().pid, "1")


def play(tmp_path, scenario, *, patience_s=0.2):
    """Run a scenario(book, control) over a fresh database."""

    async def run():
        book = Book(tmp_path)
        try:
            return await scenario(book, Control(book.database, patience_s=patience_s))
        finally:
            await book.database.close()

    return asyncio.run(run())


async def refused(coro):
    with pytest.raises(ControlRefused) as caught:
        await coro
    return caught.value


async def own(book, settle):
    """A stand-in for the owner's mailbox loop: settles the first request by `settle(request)`."""
    while True:
        for request in await book.database.read(lambda tx: requests.pending(tx, [ROOT])):
            await book.database.write(partial(requests.settle, request_id=request.request_id, outcome=settle(request)))
            return request
        await asyncio.sleep(0.01)


async def ask(book, lease, *, kind="confirm", position="/:0", choices=(), message="Go on?"):
    def unit(tx):
        asked = prompts.reserve(tx, lease, ROOT, position, position)
        question = {"kind": kind, "message": message, "choices": list(choices), "initial": None, "schema": None}
        prompts.open_prompt(tx, lease, asked.prompt_id, asked.generation, question)
        return asked.prompt_id

    return await book.database.write(unit)


# --- targets


def test_a_run_is_found_by_its_id_or_a_prefix_that_only_it_has(tmp_path):
    async def scenario(book, control):
        await book.write(*begin())
        await book.write(*begin(), run_id=OTHER)
        assert (await control.resolve(ROOT)).run_id == ROOT
        assert (await control.resolve(ROOT.upper().replace("-", ""))).run_id == ROOT
        error = await refused(control.resolve("0193e8a0"))
        assert (error.reason, error.details["candidates"]) == ("run_ambiguous", [ROOT, OTHER])
        assert (await refused(control.resolve("deadbeef"))).reason == "run_not_found"
        assert "8 or more" in (await refused(control.resolve("0193e8"))).message

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("target", "prefix"),
    [
        ("0193e8a0", "0193e8a0"),
        ("0193E8A000", "0193e8a0-00"),
        ("0193e8a0-0000-7000-8000-000000000001", "0193e8a0-0000-7000-8000-000000000001"),
        ("0193e8a", ""),
        ("not-an-id", ""),
        ("0" * 33, ""),
        ("0193e8a%", ""),
    ],
)
def test_a_prefix_is_written_with_or_without_dashes(target, prefix):
    assert to_prefix(target) == prefix


def test_a_step_is_found_by_id_position_or_unique_name(tmp_path):
    async def scenario(book, control):
        await book.write(*begin(), finished("/:0", name="build"), finished("/:1", name="test"), started("/:2", "build"))
        watch = Watch(book.database, ROOT)
        await watch.refresh()
        view = watch.view()
        test = find_stage(view, "test")
        assert test.position == "/:1"
        assert find_stage(view, test.stage_id) is find_stage(view, "/:1") is find_stage(view, f"{ROOT}:test")
        with pytest.raises(ControlRefused) as two:
            find_stage(view, "build")
        assert (two.value.reason, len(two.value.details["candidates"])) == ("stage_ambiguous", 2)
        with pytest.raises(ControlRefused, match="build, test"):
            find_stage(view, "deploy")

    play(tmp_path, scenario)


# --- quit


def test_quit_asks_the_owner_and_gives_its_outcome(tmp_path):
    async def scenario(book, control):
        await book.write(*begin(), release=False)
        owner = asyncio.create_task(own(book, lambda _: {"status": "paused", "changed": True, "message": "Quit."}))
        outcome = await control.quit(ROOT[:8], actor="ann", request_id="r1")
        request = await owner
        assert (request.verb, request.actor) == ("quit", "ann")
        assert (outcome.action, outcome.run_id, outcome.status, outcome.changed) == ("quit", ROOT, "paused", True)
        assert await control.quit(ROOT, actor="ann", request_id="r1") == outcome

    play(tmp_path, scenario, patience_s=5)


def test_a_refusal_of_the_owner_is_a_refusal_of_the_verb(tmp_path):
    async def scenario(book, control):
        await book.write(*begin(), release=False)
        told = {"error": {"code": "run_ended", "message": "It has just ended."}}
        owner = asyncio.create_task(own(book, lambda _: told))
        assert (await refused(control.quit(ROOT, actor="ann"))).reason == "run_ended"
        await owner

    play(tmp_path, scenario, patience_s=5)


def test_a_request_the_owner_does_not_take_is_withdrawn_and_never_runs_later(tmp_path):
    async def scenario(book, control):
        await book.write(*begin(), release=False)
        error = await refused(control.quit(ROOT, actor="ann", request_id="r1"))
        assert error.reason == "owned_elsewhere"
        assert await book.database.read(lambda tx: requests.pending(tx, [ROOT])) == []
        assert not await book.database.write(lambda tx: requests.settle(tx, "r1", {}))
        assert (await refused(control.quit(ROOT, actor="ann", request_id="r1"))).reason == "owned_elsewhere"

    play(tmp_path, scenario)


@pytest.mark.parametrize("process", [None, GONE])
def test_quit_without_a_live_owner_is_nothing_to_do_and_says_how_to_resume(tmp_path, process):
    async def scenario(book, control):
        await book.write(*begin(), release=process is None, process=process)
        outcome = await control.quit(ROOT, actor="ann", request_id="r1")
        assert (outcome.status, outcome.changed) == ("noop", False)
        assert f"perdure resume {ROOT}" in outcome.message
        assert await control.quit(ROOT, actor="ann", request_id="r1") == outcome

    play(tmp_path, scenario)


def test_quit_of_a_run_that_ended_is_refused(tmp_path):
    async def scenario(book, control):
        await book.write(*begin(), status("completed"))
        assert (await refused(control.quit(ROOT, actor="ann"))).reason == "run_ended"

    play(tmp_path, scenario)


def test_quit_and_delete_of_a_child_name_its_root(tmp_path):
    async def scenario(book, control):
        lease = await book.write(*begin(), release=False)
        await book.journal.create_child(lease, NewRun(CHILD, ROOT, ROOT, "/:0", 2, "part", "/", "", ""))
        for verb in (control.quit(CHILD, actor="ann"), control.delete(CHILD)):
            error = await refused(verb)
            assert (error.reason, error.details["run_id"]) == ("invalid_target", ROOT)

    play(tmp_path, scenario)


# --- answers


def test_an_answer_is_normalised_and_durable_and_closes_the_question(tmp_path):
    async def scenario(book, control):
        lease = await book.write(*begin(), release=False)
        prompt_id = await ask(book, lease)
        outcome = await control.answer(ROOT, None, " YES ", actor="ann")
        assert (outcome.changed, outcome.status, outcome.details["value"]) == (True, "running", True)
        kept = await book.database.read(lambda tx: prompts.get(tx, prompt_id))
        assert (kept.state, kept.answer, kept.actor) == ("answered", True, "ann")
        assert await book.database.read(lambda tx: prompts.open_prompts(tx, ROOT)) == []

    play(tmp_path, scenario)


def test_a_bad_answer_leaves_the_question_open_and_says_what_was_expected(tmp_path):
    async def scenario(book, control):
        lease = await book.write(*begin(), release=False)
        await ask(book, lease, kind="select", choices=["2", "x"])
        outcome = await control.answer(ROOT, None, True, actor="ann")
        assert (outcome.status, outcome.changed, outcome.details["choices"]) == ("noop", False, ["2", "x"])
        assert len(await book.database.read(lambda tx: prompts.open_prompts(tx, ROOT))) == 1
        assert (await control.answer(ROOT, None, "2", actor="ann")).details["value"] == "2"

    play(tmp_path, scenario)


def test_the_same_answer_again_is_fine_another_one_is_refused(tmp_path):
    async def scenario(book, control):
        lease = await book.write(*begin(), release=False)
        prompt_id = await ask(book, lease)
        assert (await control.answer(ROOT, prompt_id, "yes", actor="ann")).changed
        assert not (await control.answer(ROOT, prompt_id, "y", actor="bob")).changed
        assert (await refused(control.answer(ROOT, prompt_id, "no", actor="bob"))).reason == "prompt_answered"

    play(tmp_path, scenario)


def test_one_of_several_questions_must_be_named(tmp_path):
    async def scenario(book, control):
        lease = await book.write(*begin(), release=False)
        first = await ask(book, lease, position="/:0", message="First?")
        second = await ask(book, lease, position="/:1", message="Second?")
        error = await refused(control.answer(ROOT, None, "yes", actor="ann"))
        assert [line.split("  ") for line in error.details["candidates"]] == [[first, "First?"], [second, "Second?"]]
        assert (await control.answer(ROOT, second[:13], "yes", actor="ann")).details["prompt_id"] == second
        assert (await refused(control.answer(ROOT, "nothing", "yes", actor="ann"))).reason == "prompt_not_found"

    play(tmp_path, scenario)


def test_an_answer_to_a_run_nobody_runs_is_kept_and_says_to_resume(tmp_path):
    async def scenario(book, control):
        lease = await book.write(*begin(), release=False)
        await ask(book, lease)
        await book.journal.release(lease)
        outcome = await control.answer(ROOT, None, "no", actor="ann")
        assert (outcome.changed, outcome.status) == (True, "paused")
        assert f"perdure resume {ROOT}" in outcome.message

    play(tmp_path, scenario)


def test_a_run_that_asks_nothing_cannot_be_answered(tmp_path):
    async def scenario(book, control):
        await book.write(*begin())
        assert (await refused(control.answer(ROOT, None, "yes", actor="ann"))).reason == "prompt_not_found"

    play(tmp_path, scenario)


# --- delete


def test_a_live_run_cannot_be_deleted_one_that_nobody_owns_can(tmp_path):
    async def scenario(book, control):
        lease = await book.write(*begin(), release=False)
        assert (await refused(control.delete(ROOT))).reason == "run_active"
        await book.journal.release(lease)
        assert (await control.delete(ROOT)).changed
        assert (await refused(control.resolve(ROOT))).reason == "run_not_found"

    play(tmp_path, scenario)


def test_inspection_and_control_agree_on_who_is_live(tmp_path):
    async def scenario(book, control):
        await book.write(*begin(), release=False, process=GONE)
        view = run_view(await control.resolve(ROOT), 0)
        assert (view.is_live, view.resumable) == (False, True)

    play(tmp_path, scenario)
