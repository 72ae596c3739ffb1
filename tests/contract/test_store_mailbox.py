"""Requests, prompts and transcripts in every store (spec/control.md 4, 5)."""

import pytest

from perdure.errors import NotAllowedNow, PayloadInvalid, StaleLease, TargetNotFound
from perdure.store import prompts, requests, transcripts
from tests.bed import stores
from tests.bed.stores import ROOT, new_run, owned

CHILD = "child"
QUESTION = {"kind": "confirm", "message": "Go on?"}


@pytest.fixture(params=stores.KINDS)
def run(request, tmp_path):
    return stores.runner(request.param, tmp_path)


def with_owner(run, unit):
    """Run `unit(tx, lease)` in one transaction of a store with a run and its child."""

    async def scenario(journal):
        lease = await owned(journal)
        await journal.create_child(lease, new_run(CHILD, ROOT, ROOT, "/:1", 2))
        return await journal.database.write(lambda tx: unit(tx, lease))

    return run(scenario)


def open_count(tx, run_id=ROOT):
    return tx.one("runs.one", run_id=run_id)[18]


# --- requests


def test_requests_wait_in_order_for_the_owner_of_the_tree(run):
    def unit(tx, lease):
        requests.post(tx, "a", ROOT, "pause", {}, "ada")
        requests.post(tx, "b", CHILD, "send", {"text": "hi"}, "bob")
        waiting = requests.pending(tx, [ROOT, "nobody"])
        assert [(r.request_id, r.run_id, r.verb, r.args, r.actor) for r in waiting] == [
            ("a", ROOT, "pause", {}, "ada"),
            ("b", CHILD, "send", {"text": "hi"}, "bob"),
        ]
        assert requests.settle(tx, "a", {"status": "paused"}, lease)
        assert [r.request_id for r in requests.pending(tx, [ROOT])] == ["b"]
        settled = requests.get(tx, "a")
        assert (settled.state, settled.outcome) == ("settled", {"status": "paused"})

    with_owner(run, unit)


def test_the_same_request_id_gives_the_same_outcome(run):
    def unit(tx, lease):
        requests.post(tx, "a", ROOT, "pause", {"x": 1}, "ada")
        requests.settle(tx, "a", "done", lease)
        again = requests.post(tx, "a", ROOT, "pause", {"x": 1}, "ada")
        assert (again.state, again.outcome) == ("settled", "done")
        with pytest.raises(NotAllowedNow):
            requests.post(tx, "a", ROOT, "quit", {}, "ada")

    with_owner(run, unit)


def test_settling_and_withdrawing_race_on_one_state(run):
    def unit(tx, lease):
        for name in ("a", "b"):
            requests.post(tx, name, ROOT, "pause", {}, "ada")
        assert requests.withdraw(tx, "a")
        assert not requests.settle(tx, "a", "done", lease)
        assert not requests.withdraw(tx, "a")
        assert requests.settle(tx, "b", "done", lease)
        assert not requests.withdraw(tx, "b")
        assert not requests.settle(tx, "b", "other", lease)
        assert requests.get(tx, "b").outcome == "done"
        assert requests.get(tx, "c") is None

    with_owner(run, unit)


def test_a_request_for_nobody_is_refused(run):
    def unit(tx, lease):
        with pytest.raises(TargetNotFound):
            requests.post(tx, "a", "nobody", "pause", {}, "ada")

    with_owner(run, unit)


def test_a_fenced_owner_settles_nothing(run):
    def unit(tx, lease):
        requests.post(tx, "a", ROOT, "pause", {}, "ada")
        tx.run("leases.fence", root=lease.root)
        with pytest.raises(StaleLease):
            requests.settle(tx, "a", "done", lease)
        assert requests.settle(tx, "a", "done")

    with_owner(run, unit)


# --- prompts


def asked(tx, lease, key="/:1", run_id=ROOT):
    prompt = prompts.reserve(tx, lease, run_id, "/:1", key)
    assert prompts.open_prompt(tx, lease, prompt.prompt_id, prompt.generation, QUESTION)
    return prompt


def test_reserving_again_gives_the_same_question(run):
    def unit(tx, lease):
        first = prompts.reserve(tx, lease, ROOT, "/:1", "/:1")
        assert (first.generation, first.state) == (1, "reserved")
        assert prompts.reserve(tx, lease, ROOT, "/:1", "/:1") == first
        assert open_count(tx) == 0
        assert prompts.open_prompt(tx, lease, first.prompt_id, 1, QUESTION)
        assert not prompts.open_prompt(tx, lease, first.prompt_id, 1, QUESTION)
        assert prompts.reserve(tx, lease, ROOT, "/:1", "/:1").state == "open"
        assert open_count(tx) == 1

    with_owner(run, unit)


def test_releasing_twice_or_with_an_old_generation_counts_once(run):
    def unit(tx, lease):
        asked(tx, lease, "other")
        prompt = asked(tx, lease)
        assert open_count(tx) == 2
        assert prompts.release(tx, lease, prompt.prompt_id, 1)
        assert not prompts.release(tx, lease, prompt.prompt_id, 1)
        assert open_count(tx) == 1
        again = asked(tx, lease)
        assert again.generation == 2
        assert not prompts.release(tx, lease, prompt.prompt_id, 1)
        assert open_count(tx) == 2

    with_owner(run, unit)


def test_a_reservation_that_was_never_shown_is_released_without_counting(run):
    def unit(tx, lease):
        prompt = prompts.reserve(tx, lease, ROOT, "/:1", "/:1")
        assert prompts.release(tx, lease, prompt.prompt_id, 1)
        assert open_count(tx) == 0

    with_owner(run, unit)


def test_the_first_answer_stands_and_the_same_again_is_welcome(run):
    def unit(tx, lease):
        prompt = asked(tx, lease)
        assert prompts.answer(tx, prompt.prompt_id, 1, True, "ada") == "ok"
        assert prompts.answer(tx, prompt.prompt_id, 1, True, "bob") == "same"
        assert prompts.answer(tx, prompt.prompt_id, 1, False, "bob") == "answered"
        assert prompts.answer(tx, "nobody", 1, False, "bob") == "not_found"
        stored = prompts.get(tx, prompt.prompt_id)
        assert (stored.state, stored.answer, stored.actor) == ("answered", True, "ada")
        assert open_count(tx) == 0
        assert not prompts.release(tx, lease, prompt.prompt_id, 1)
        assert prompts.reserve(tx, lease, ROOT, "/:1", "/:1").answer is True

    with_owner(run, unit)


def test_a_late_answer_cannot_settle_a_newer_question(run):
    def unit(tx, lease):
        prompt = asked(tx, lease)
        prompts.release(tx, lease, prompt.prompt_id, 1)
        assert prompts.answer(tx, prompt.prompt_id, 1, True, "ada") == "stale"
        asked(tx, lease)
        assert prompts.answer(tx, prompt.prompt_id, 1, True, "ada") == "stale"
        assert prompts.answer(tx, prompt.prompt_id, 2, True, "ada") == "ok"

    with_owner(run, unit)


def test_null_is_an_answer(run):
    def unit(tx, lease):
        prompt = asked(tx, lease)
        assert prompts.answer(tx, prompt.prompt_id, 1, None, "ada") == "ok"
        with pytest.raises(PayloadInvalid):
            prompts.answer(tx, prompt.prompt_id, 1, float("nan"), "ada")

    with_owner(run, unit)


def test_open_questions_of_children_are_seen_and_counted_in_the_root(run):
    def unit(tx, lease):
        mine, childs = asked(tx, lease), asked(tx, lease, "/:9", CHILD)
        assert [p.prompt_id for p in prompts.open_prompts(tx, ROOT)] == sorted([mine.prompt_id, childs.prompt_id])
        assert (open_count(tx), open_count(tx, CHILD)) == (2, 1)
        prompts.answer(tx, childs.prompt_id, 1, "yes", "ada")
        assert (open_count(tx), open_count(tx, CHILD)) == (1, 0)
        assert [p.answer for p in prompts.get_many(tx, [childs.prompt_id, "nobody"])] == ["yes"]

    with_owner(run, unit)


def test_a_fenced_owner_asks_nothing(run):
    def unit(tx, lease):
        prompt = asked(tx, lease)
        tx.run("leases.fence", root=lease.root)
        with pytest.raises(StaleLease):
            prompts.reserve(tx, lease, ROOT, "/:2", "/:2")
        with pytest.raises(StaleLease):
            prompts.release(tx, lease, prompt.prompt_id, 1)
        assert prompts.answer(tx, prompt.prompt_id, 1, True, "ada") == "ok"

    with_owner(run, unit)


# --- transcripts


def test_a_transcript_is_read_in_pages_and_outlives_its_run(run):
    async def scenario(journal):
        lease = await owned(journal)
        write, read = journal.database.write, journal.database.read
        await write(lambda tx: transcripts.append(tx, ROOT, "/:1", 0, [("text", f"line {n}") for n in range(5)]))
        await write(lambda tx: transcripts.append(tx, ROOT, "/:2", 0, [("text", "of another stage")]))
        await write(lambda tx: transcripts.append(tx, ROOT, "/:1", 1, []))
        first = await read(lambda tx: transcripts.read(tx, ROOT, "/:1", count=3))
        rest = await read(lambda tx: transcripts.read(tx, ROOT, "/:1", after=first[-1].id))
        assert [said.entry for said in first + rest] == [f"line {n}" for n in range(5)]
        assert [s.entry for s in await read(lambda tx: transcripts.last(tx, ROOT, "/:1", 2))] == ["line 3", "line 4"]
        await journal.delete(lease)
        assert len(await read(lambda tx: transcripts.read(tx, ROOT, "/:1"))) == 5

    run(scenario)
