"""The read model: derived statuses, resumability, views of runs and steps."""

import asyncio

import pytest
from msgspec import Raw

from perdure import events as ev
from perdure.errors import ControlRefused
from perdure.events import Failure, Stored
from perdure.host.identity import Identity, here
from perdure.ids import node_id
from perdure.inspect import drawn_parents, lane_path, run_view, stages
from perdure.projection import fold
from perdure.store import prompts
from perdure.store.journal import Item
from perdure.store.runs import RunRow
from perdure.watch import Watch, list_runs
from tests.bed.journals import CHILD, OTHER, ROOT, Book, begin, finished, new_run, started, status

GONE = Identity(here().boot_id, here().pid_namespace, here().pid, "1")


def row(**fields):
    values = {
        "run_id": ROOT, "root_run_id": ROOT, "parent_run_id": None, "parent_position": None, "depth": 1, "name": "fix",
        "cwd": "/project", "definition": "", "file_digest": "", "status": "running", "status_epoch": 1,
        "resumable": True, "code": "", "reason": "", "error_code": "", "error_message": "", "events_count": 0,
        "nodes_done": 0, "prompts_open": 0, "tokens_in": 0, "tokens_out": 0, "cost_nanos": 0, "last_seq": 0,
        "created_at": 1000, "started_at": 1000, "ended_at": None, "updated_at": 4000, "deleted_at": None,
        "holder": "h", "epoch": 1, "process": here().to_text(), "lease_until": 9000,
    }  # fmt: skip
    return RunRow(**{**values, **fields})


def shown(now_ms=5000, **fields):
    view = run_view(row(**fields), now_ms)
    return view.display_status, view.resumable


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("running", False)),
        ({"prompts_open": 1}, ("awaiting_input", False)),
        ({"lease_until": 4999}, ("crashed", True)),
        ({"process": GONE.to_text()}, ("crashed", True)),
        ({"holder": None}, ("crashed", True)),
        ({"lease_until": 4999, "resumable": False}, ("crashed", False)),
        ({"status": "pending", "holder": None}, ("pending", True)),
        ({"status": "paused", "reason": "quit", "holder": None}, ("quit", True)),
        ({"status": "paused", "holder": None, "prompts_open": 1}, ("paused", True)),
        ({"status": "paused", "reason": "quit"}, ("quit", False)),
        ({"status": "blocked", "holder": None, "prompts_open": 1}, ("blocked", True)),
        ({"status": "exit_blocked", "holder": None, "ended_at": 4000}, ("blocked", False)),
        ({"status": "failed", "holder": None, "ended_at": 4000}, ("failed", True)),
        ({"status": "failed", "holder": None, "ended_at": 4000, "resumable": False}, ("failed", False)),
        ({"status": "completed", "holder": None, "ended_at": 4000}, ("completed", False)),
        ({"status": "killed", "holder": None, "ended_at": 4000}, ("killed", False)),
        ({"holder": None, "parent_run_id": OTHER}, ("crashed", False)),
        ({"holder": None, "deleted_at": 4000}, ("crashed", False)),
        ({"holder": None, "definition": "/nowhere/flow.py"}, ("crashed", False)),
        ({"holder": None, "definition": __file__}, ("crashed", True)),
        ({"holder": None, "definition": "some.module"}, ("crashed", True)),
    ],
)
def test_display_status_and_resumability_follow_the_row_and_its_lease(fields, expected):
    assert shown(**fields) == expected


def test_time_of_a_listed_run_ends_when_it_ended_or_was_last_heard_of():
    assert run_view(row(), 5000).elapsed_ms == 4000
    assert run_view(row(holder=None), 5000).elapsed_ms == 3000
    assert run_view(row(status="completed", ended_at=3500, holder=None), 5000).elapsed_ms == 2500
    assert run_view(row(status="pending", started_at=None), 5000).elapsed_ms == 0


def tree_of(*events, step_ms=10):
    return fold([Stored(n, ROOT, 1000 + n * step_ms, event) for n, event in enumerate(events, 1)], root_run_id=ROOT)


def step_statuses(run_status, *, live=False):
    tree = tree_of(*begin(), finished("/:0"), started("/:1", kind="stage"), status(run_status))
    return [stage.display_status for stage in stages(tree, ROOT, 9999, live=live)]


@pytest.mark.parametrize(
    ("run_status", "live", "expected"),
    [
        ("running", True, "running"),
        ("running", False, "crashed"),
        ("paused", False, "paused"),
        ("blocked", False, "blocked"),
        ("failed", False, "cancelled"),
        ("completed", False, "cancelled"),
    ],
)
def test_no_step_runs_in_a_run_that_does_not(run_status, live, expected):
    assert step_statuses(run_status, live=live) == ["completed", expected]


def test_the_status_entry_has_exactly_the_fields_of_the_specification():
    view = run_view(row(), 5000, tree=tree_of(*begin(), started("/:0", kind="stage")))
    entry = view.to_status()
    assert list(entry) == [
        "run_id", "name", "status", "display_status", "started_at", "ended_at", "elapsed_ms", "active_stages",
        "awaiting_input", "budget", "error", "resumable",
    ]  # fmt: skip
    assert [stage["stage_id"] for stage in entry["active_stages"]] == [node_id(ROOT, "/:0")]
    assert run_view(row(), 5000).to_status()["active_stages"] is None


def test_steps_of_a_child_stand_behind_the_step_that_stands_for_it():
    rows = [
        Stored(1, ROOT, 1, begin()[0]),
        Stored(2, ROOT, 2, started("/:0", "part", "boundary", child_run_id=CHILD)),
        Stored(3, CHILD, 3, begin("part")[0]),
        Stored(4, ROOT, 4, started("/:1", "later")),
        Stored(5, CHILD, 5, finished("/:0", name="inside")),
    ]
    found = stages(fold(rows, root_run_id=ROOT), ROOT, 10, live=True)
    assert [(stage.name, stage.depth) for stage in found] == [("part", 0), ("inside", 1), ("later", 0)]
    assert [stage.name for stage in stages(fold(rows, root_run_id=ROOT), ROOT, 10, live=True, latest=2)] == [
        "inside",
        "later",
    ]


def test_parents_look_through_values_timers_and_joins():
    tree = tree_of(
        *begin(),
        finished("/:0"),
        finished("a:0"),
        ev.TimerFired(position="/:1", parents=("/:0",)),
        ev.NodeJoined(position="j:0", parents=("/:1", "a:0")),
        ev.ValueRecorded(position="/:2", kind="now", digest="h", value=Raw(b"1"), parents=("j:0", "/:0")),
    )
    assert drawn_parents(tree.root, ("/:2",)) == ("/:0", "a:0")


def test_a_lane_is_shown_by_its_path():
    lanes = [ev.LaneName("aa", "/", "review.0"), ev.LaneName("bb", "aa", "deep")]
    tree = tree_of(*begin(), *(started(f"{lane.lane}:0", lane=lane) for lane in lanes))
    assert [lane_path(tree.root, lane) for lane in ("/", "aa", "bb")] == ["/", "/review.0", "/review.0/deep"]


def test_a_failure_is_shown_with_guidance_and_a_time_stands_still_in_a_dead_run():
    failure = Failure(code="invalid_api_key", message="401 sk", type="X")
    tree = tree_of(*begin(), finished("/:0", "failed", failure=failure), started("/:1"))
    done, open_ = stages(tree, ROOT, tree.at, live=False)
    assert done.error["message"].startswith("The provider refused the API key")
    assert (done.elapsed_ms, open_.elapsed_ms) == (5, 0)
    assert stages(tree, ROOT, tree.at + 500, live=True)[1].elapsed_ms == 500


# --- reading through the store


def test_a_watch_folds_only_what_is_new_and_names_what_it_touched(tmp_path):
    async def scenario():
        book = Book(tmp_path)
        lease = await book.write(*begin(), finished("/:0"), release=False)
        watch = Watch(book.database, ROOT)
        assert await watch.refresh() == {(ROOT, "/:0")}
        assert watch.view().inputs == {"issue": "x"}
        await book.journal.append(lease, Item(ROOT, started("/:1", kind="stage")))
        assert await watch.changed()
        assert await watch.refresh() == {(ROOT, "/:1")}
        assert await watch.refresh() == set()
        assert not watch.is_behind
        view = watch.view()
        assert (view.display_status, view.agent, [s.status for s in view.stages], view.nodes_count) == (
            "running", "rehearsal", ["completed", "running"], 2,
        )  # fmt: skip
        await book.journal.append(lease, Item(ROOT, status("completed", output=Raw(b'{"n":1}'))))
        await book.journal.release(lease)
        await watch.refresh()
        assert (watch.view().output, watch.view().resumable) == ({"n": 1}, False)
        await book.database.close()

    asyncio.run(scenario())


def test_lists_show_open_questions_without_folding(tmp_path):
    async def scenario():
        book = Book(tmp_path)
        lease = await book.write(*begin(), started("/:0", "go?", "prompt"), release=False)
        question = {"kind": "select", "message": "Which?", "choices": ["a", "b"], "initial": None, "schema": None}

        def ask(tx):
            asked = prompts.reserve(tx, lease, ROOT, "/:0", "/:0")
            prompts.open_prompt(tx, lease, asked.prompt_id, asked.generation, question)
            return asked.prompt_id

        prompt_id = await book.database.write(ask)
        await book.write(*begin("other"), run_id=OTHER)
        newest, asking = await list_runs(book.database, count=10)
        assert (newest.run_id, newest.display_status, newest.awaiting_input) == (OTHER, "crashed", ())
        assert asking.display_status == "awaiting_input"
        assert asking.to_status()["awaiting_input"] == [
            {"stage_id": node_id(ROOT, "/:0"), "prompt_id": prompt_id, "kind": "select", "message": "Which?",
             "choices": ["a", "b"]}
        ]  # fmt: skip
        await book.database.close()

    asyncio.run(scenario())


def test_a_run_whose_process_is_gone_is_crashed_and_resumable_at_once(tmp_path):
    async def scenario():
        book = Book(tmp_path)
        await book.write(*begin(), release=False, process=GONE)
        watch = Watch(book.database, ROOT)
        await watch.refresh()
        assert (watch.view().display_status, watch.view().resumable) == ("crashed", True)
        await book.database.close()

    asyncio.run(scenario())


def test_watching_a_child_shows_the_child_alone(tmp_path):
    async def scenario():
        book = Book(tmp_path)
        lease = await book.write(*begin(), started("/:0", "part", "boundary", child_run_id=CHILD), release=False)
        await book.journal.create_child(lease, new_run(CHILD, "part", parent=ROOT, position="/:0"))
        for event in (*begin("part"), finished("/:0", name="inside")):
            await book.journal.append(lease, Item(CHILD, event))
        watch = Watch(book.database, CHILD)
        await watch.refresh()
        assert ([s.name for s in watch.view().stages], watch.view().resumable) == (["inside"], False)
        await book.database.close()

    asyncio.run(scenario())


def test_watching_a_run_that_was_deleted_says_so(tmp_path):
    async def scenario():
        book = Book(tmp_path)
        await book.write(*begin())
        assert await book.journal.delete_if_inactive(ROOT) == "ok"
        with pytest.raises(ControlRefused, match="no run"):
            await Watch(book.database, ROOT).refresh()
        await book.database.close()

    asyncio.run(scenario())
