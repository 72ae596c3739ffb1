"""The fold of events into what surfaces show."""

import copy

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from perdure import events as ev
from perdure.events import Failure, Stored
from perdure.projection import _ARMS, RunTree, apply, fold

ROOT = "00000000-0000-7000-8000-000000000001"
CHILD = "00000000-0000-5000-8000-000000000002"


def stored(*events, start=1, run=ROOT, step_ms=10):
    return [Stored(n, run, 1000 + step_ms * n, event) for n, event in enumerate(events, start)]


def started(position, parents=(), *, kind="tool", take=0, child=""):
    name = position.split(":")[1]
    return ev.NodeStarted(
        position=position, kind=kind, name=name, digest="h", parents=parents, take=take, child_run_id=child
    )


def finished(position, status="completed", *, take=0, start=None, value=b"1"):
    return ev.NodeFinished(position=position, status=status, take=take, start=start, value=Raw(value))


def running(number=1, epoch=1, **fields):
    return ev.StatusChanged(status="running", epoch=epoch, number=number, **fields)


BEGIN = [ev.RunStarted(name="fix", inputs=Raw(b"{}"), cwd="/x"), running()]


def asked(position="/:0", prompt="p1", generation=1):
    return ev.PromptAsked(position=position, prompt_id=prompt, generation=generation, kind="confirm", message="Go?")


# --- laws

positions = st.sampled_from(["/:0", "/:1", "/:2", "a:0"])
takes = st.integers(0, 2)
event_strategy = st.one_of(
    st.builds(lambda p, ps, t: started(p, tuple(ps), take=t), positions, st.lists(positions, max_size=2), takes),
    st.builds(lambda p, s, t: finished(p, s, take=t), positions, st.sampled_from(["completed", "failed"]), takes),
    st.builds(lambda p, t: finished(p, take=t, start=started(p, take=t)), positions, takes),
    st.builds(lambda p: ev.NodeAbandoned(position=p, status="cancelled", epoch=1), positions),
    st.builds(lambda p, n: asked(p, f"q{n}"), positions, takes),
    st.builds(
        lambda p, n: ev.PromptAnswered(position=p, prompt_id=f"q{n}", generation=1, value=Raw(b"true")),
        positions,
        takes,
    ),
    st.builds(
        lambda s, n, a: ev.StatusChanged(status=s, epoch=1, number=n, set_aside=tuple(a) if s == "running" else ()),
        st.sampled_from(["running", "paused", "failed", "completed"]),
        st.integers(0, 9),
        st.lists(positions, max_size=2),
    ),
    st.builds(lambda p, n: ev.SessionBound(position=p, agent="rehearsal", session_id=str(n)), positions, takes),
    st.builds(lambda p: ev.NodeJoined(position=p, parents=("/:0",)), positions),
    st.just(BEGIN[0]),
)
histories = st.lists(event_strategy, max_size=25)


@given(histories, st.integers(0, 25))
def test_folding_in_two_parts_is_folding_once(history, cut):
    rows = stored(*history)
    whole = fold(rows, root_run_id=ROOT)
    parts = fold(rows[cut:], fold(rows[:cut], root_run_id=ROOT))
    assert parts == whole


@given(histories, st.integers(0, 25))
def test_an_event_that_was_folded_before_changes_nothing(history, again):
    rows = stored(*history)
    tree = fold(rows, root_run_id=ROOT)
    before = copy.deepcopy(tree)
    for row in rows[: again + 1]:
        apply(tree, row)
    assert tree == before


@given(histories)
def test_a_terminal_node_has_an_end_and_an_open_one_has_none(history):
    tree = fold(stored(*history), root_run_id=ROOT)
    for node in tree.nodes():
        assert (node.ended_at is not None) == (node.status in {"completed", "failed", "cancelled", "skipped"})


def test_every_event_type_has_an_arm():
    assert set(_ARMS) == set(ev.NAMES)


# --- nodes


def test_a_quick_step_carries_its_start_in_its_finish():
    finish = ev.NodeFinished(
        position="/:0", status="completed", value=Raw(b"7"), elapsed_ms=4, start=started("/:0", ("/:9",))
    )
    node = fold(stored(*BEGIN, finish)).root.nodes["/:0"]
    assert (node.status, node.name, node.parents, node.elapsed_ms) == ("completed", "0", ("/:9",), 4)
    assert node.ended_at - node.started_at == 4


def test_the_first_outcome_wins():
    tree = fold(stored(*BEGIN, started("/:0"), finished("/:0", value=b"1"), finished("/:0", "failed", value=b"2")))
    assert tree.root.nodes["/:0"].status == "completed"
    assert bytes(tree.root.nodes["/:0"].value) == b"1"


def test_a_higher_take_replaces_the_record_of_a_position():
    tree = fold(
        stored(*BEGIN, started("/:0"), finished("/:0", "failed"), started("/:0", take=1), finished("/:0", take=1))
    )
    assert (tree.root.nodes["/:0"].status, tree.root.nodes["/:0"].take) == ("completed", 1)


def test_a_lower_take_is_ignored():
    tree = fold(stored(*BEGIN, started("/:0", take=1), finished("/:0", "failed", take=0), started("/:0", take=0)))
    assert (tree.root.nodes["/:0"].status, tree.root.nodes["/:0"].take) == ("running", 1)


def test_setting_aside_takes_back_the_outcome_and_those_of_all_that_followed():
    failure = Failure(code="timed_out", message="too slow")
    rows = stored(
        *BEGIN,
        finished("/:0", start=started("/:0")),
        ev.NodeFinished(position="/:1", status="failed", failure=failure, start=started("/:1", ("/:0",))),
        finished("/:2", start=started("/:2", ("/:1",))),
        ev.NodeJoined(position="j:0", parents=("/:2",)),
        ev.TimerFired(position="/:9", parents=("j:0",)),
        ev.ValueRecorded(position="/:10", kind="now", digest="h", value=Raw(b"1"), parents=("/:9",)),
        finished("/:3", start=started("/:3", ("/:10",))),
        finished("a:0", start=started("a:0", ("/:0",))),
        ev.StatusChanged(status="failed", epoch=1, number=2, failed=("/:1",)),
        running(3, 2, set_aside=("/:1",)),
    )
    nodes = fold(rows).root.nodes
    assert {p: n.status for p, n in nodes.items() if n.kind != "join"} == {
        "/:0": "completed",
        "/:1": "pending",
        "/:2": "pending",
        "/:3": "pending",
        "a:0": "completed",
    }
    assert nodes["/:1"].failure is None
    assert nodes["/:1"].ended_at is None


def test_an_abandoned_step_that_shows_life_runs_again_and_its_outcome_counts():
    begin = stored(
        *BEGIN,
        started("/:0", kind="stage"),
        ev.NodeAbandoned(position="/:0", status="cancelled", epoch=1, reason="quit"),
    )
    tree = fold(begin)
    assert (tree.root.nodes["/:0"].status, tree.root.nodes["/:0"].abandoned) == ("cancelled", "quit")
    more = stored(ev.SessionBound(position="/:0", agent="local", session_id="s"), finished("/:0"), start=5)
    apply(tree, more[0])
    assert tree.root.nodes["/:0"].status == "running"
    apply(tree, more[1])
    assert (tree.root.nodes["/:0"].status, tree.root.nodes["/:0"].abandoned) == ("completed", None)


def test_a_step_abandoned_after_its_outcome_keeps_the_outcome():
    tree = fold(
        stored(
            *BEGIN, finished("/:0", start=started("/:0")), ev.NodeAbandoned(position="/:0", status="cancelled", epoch=1)
        )
    )
    assert tree.root.nodes["/:0"].status == "completed"


def test_usage_and_session_are_kept_with_the_stage():
    tree = fold(
        stored(
            *BEGIN,
            started("/:0", kind="stage"),
            ev.SessionBound(position="/:0", agent="local", session_id="s1", model="m"),
            ev.UsageRecorded(position="/:0", number=1, epoch=1, tokens_in=5, tokens_out=7),
            ev.AttemptFailed(position="/:0", attempt=1, epoch=1, failure=Failure(code="unknown", message="x")),
        )
    )
    node = tree.root.nodes["/:0"]
    assert (node.agent, node.model, node.session_id, node.tokens_in, node.tokens_out) == ("local", "m", "s1", 5, 7)
    assert (node.cost_nanos, node.attempts, node.attempt_failure.message) == (None, 2, "x")


# --- questions


def test_a_stage_with_two_questions_waits_until_both_are_answered():
    answer = [
        ev.PromptAnswered(position="/:0", prompt_id=p, generation=1, value=Raw(b"true"), actor="ann")
        for p in ("p1", "p2")
    ]
    tree = fold(stored(*BEGIN, started("/:0", kind="stage"), asked(), asked(prompt="p2"), answer[0]))
    node = tree.root.nodes["/:0"]
    assert (node.status, [p.prompt_id for p in node.open_prompts]) == ("awaiting_input", ["p2"])
    apply(tree, Stored(9, ROOT, 2000, answer[1]))
    assert (node.status, node.prompts["p2"].actor) == ("running", "ann")


def test_the_release_of_an_older_generation_leaves_the_question_open():
    release = ev.PromptReleased(position="/:0", prompt_id="p1", generation=1)
    tree = fold(stored(*BEGIN, started("/:0", kind="prompt"), asked(generation=1), asked(generation=2), release))
    assert tree.root.nodes["/:0"].status == "awaiting_input"


# --- runs


def test_a_child_run_hangs_below_the_node_that_started_it():
    rows = stored(*BEGIN, started("/:0", kind="boundary", child=CHILD))
    rows += stored(ev.RunStarted(name="part", inputs=Raw(b"{}")), running(), started("/:0"), start=4, run=CHILD)
    tree = fold(rows)
    assert tree.boundaries[CHILD] == (ROOT, "/:0")
    assert (tree.runs[CHILD].name, tree.runs[CHILD].status, list(tree.runs[CHILD].nodes)) == (
        "part",
        "running",
        ["/:0"],
    )
    assert list(tree.root.nodes) == ["/:0"]


def test_the_end_of_a_run_keeps_its_output_and_reason():
    end = ev.StatusChanged(
        status="skipped", epoch=1, number=2, reason="not wanted", exited=True, output=Raw(b'{"a":1}')
    )
    root = fold(stored(*BEGIN, end)).root
    assert (root.status, root.reason, root.exited, bytes(root.output)) == ("skipped", "not wanted", True, b'{"a":1}')
    assert root.ended_at == 1030


def test_time_spent_paused_or_dead_does_not_count_as_running():
    rows = [
        Stored(1, ROOT, 0, BEGIN[0]),
        Stored(2, ROOT, 100, running(1)),
        Stored(3, ROOT, 300, ev.StatusChanged(status="paused", epoch=1, number=2, reason="quit")),
        Stored(4, ROOT, 9000, running(3, 2)),
        Stored(5, ROOT, 9050, started("/:0")),  # then the process is killed
        Stored(6, ROOT, 50_000, running(4, 3)),
        Stored(7, ROOT, 50_010, ev.StatusChanged(status="completed", epoch=3, number=5)),
    ]
    root = fold(rows).root
    assert (root.active_ms, root.running_since) == (200 + 50 + 10, None)


def test_lane_names_and_patches_are_kept():
    lane = ev.LaneName("a1", "/", "review")
    root = fold(
        stored(
            *BEGIN,
            ev.ValueRecorded(position="a1:0", kind="now", digest="h", value=Raw(b"1"), lane=lane),
            ev.TimerFired(position="/:4"),
            ev.Patched(name="new-check", new=True),
        )
    ).root
    assert (root.lanes, root.patches, root.nodes) == ({"a1": lane}, {"new-check": True}, {})


def test_an_empty_history_folds_to_a_pending_run():
    assert fold([], RunTree(ROOT)).root.status == "pending"
