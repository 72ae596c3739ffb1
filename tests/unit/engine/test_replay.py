"""The record of a run: a fold over its events, and what is set aside of it. Pure."""

from __future__ import annotations

import random

from msgspec import Raw

from perdure import events as ev
from perdure.engine.replay import Record
from perdure.events import Stored
from perdure.graph.lanes import Lane

LEFT = Lane(type("Owner", (), {"run_id": "run"}), on_join=lambda *_: None).child("review").id


def stored(*events, run_id="run"):
    return [Stored(seq, run_id, 1000 + seq, event) for seq, event in enumerate(events, 1)]


def start(position, parents=(), **fields):
    fields = {"kind": "tool", "name": f"tool{position[-1]}", "digest": "h", "source": "flow.py:3"} | fields
    return ev.NodeStarted(position=position, parents=parents, **fields)


def done(position, parents=(), take=0, value=b"1", **fields):
    begun = start(position, parents, take=take, **fields)
    return ev.NodeFinished(position=position, status="completed", value=Raw(value), take=take, start=begun)


def failed(position, parents=(), take=0):
    why = ev.Failure(code="unknown", message="no")
    return ev.NodeFinished(
        position=position, status="failed", failure=why, take=take, start=start(position, parents, take=take)
    )


def status(to, number, **fields):
    return ev.StatusChanged(status=to, epoch=1, number=number, **fields)


def record(*events):
    return Record.of("run", stored(*events))


def test_outcomes_stand_in_the_order_of_their_events_not_of_their_starts():
    one = record(start("/:0"), start("/:1"), ev.TimerFired(position="/:t0"), done("/:1"), done("/:0"))
    assert one.order == ["/:t0", "/:1", "/:0"]
    assert [one.outcomes[p].seq for p in one.order] == [3, 4, 5]


def test_the_first_outcome_of_a_take_wins():
    assert bytes(record(done("/:0"), done("/:0", value=b"2")).outcomes["/:0"].event.value) == b"1"


def test_events_of_other_runs_are_not_seen():
    mixed = stored(done("/:0")) + stored(done("/:1"), run_id="child")
    assert list(Record.of("run", mixed).outcomes) == ["/:0"]


def test_setting_aside_a_failure_drops_it_and_all_that_descends_from_it_and_nothing_else():
    one = record(
        done("/:0"), failed("/:1", ("/:0",)), done("/:2", ("/:0",)), done("/:3", ("/:1",)),
        ev.NodeJoined(position="/:j0", parents=("/:2", "/:3")), start("/:4", ("/:j0",)),
        ev.TimerFired(position="/:t0", parents=("/:3",)), done("/:5", ("/:2",)),
    )  # fmt: skip
    one.set_aside(("/:1",))
    one.ready()
    assert one.order == ["/:0", "/:2", "/:5"]
    assert "/:4" not in one.starts
    assert {p for p in one.takes if one.takes[p]} == {"/:1", "/:3", "/:4", "/:t0"}
    assert one.take("/:1") == 1
    assert one.take("/:0") == 0


def test_what_a_status_set_aside_stays_so_and_a_later_take_counts():
    one = record(
        failed("/:0"), done("/:1", ("/:0",)), status("failed", 1, failed=("/:0",)),
        status("running", 2, set_aside=("/:0",)), done("/:0", take=1, value=b"2"),
    )  # fmt: skip
    assert one.order == ["/:0"]
    assert bytes(one.outcomes["/:0"].event.value) == b"2"
    assert one.takes == {"/:0": 1, "/:1": 1}


def test_setting_aside_twice_counts_twice():
    one = record(
        failed("/:0"), status("running", 1, set_aside=("/:0",)), failed("/:0", take=1),
        status("running", 2, set_aside=("/:0",)),
    )  # fmt: skip
    assert (one.take("/:0"), one.order) == (2, [])


def test_folding_in_one_go_or_event_by_event_gives_the_same_record():
    rng = random.Random(7)
    events = []
    for n in range(60):
        parents = tuple({f"/:{rng.randrange(n)}" for _ in range(2)}) if n else ()
        events.append(rng.choice([done, failed, start])(f"/:{n}", parents))
        if rng.random() < 0.1:
            events.append(status("running", len(events), set_aside=(f"/:{rng.randrange(n + 1)}",)))
    at_once = record(*events)
    step_by_step = Record("run")
    for one in stored(*events):
        step_by_step.apply(one)
    step_by_step.ready()
    assert at_once == step_by_step
    assert not set(at_once.order) - at_once.outcomes.keys()


def test_everything_is_open_until_the_code_asked_for_it_starts_without_an_outcome_too():
    one = record(done("/:0"), start("/:1"), ev.TimerFired(position="/:t0"))
    assert (one.is_open, one.unasked) == (True, ("/:0", "/:1", "/:t0"))
    for position in ("/:0", "/:1", "/:t0"):
        one.call(position)
    assert (one.is_open, one.unasked) == (False, ())


def test_a_step_is_described_with_its_lane_and_line():
    lane = ev.LaneName(LEFT, "/", "review")
    one = record(start(f"{LEFT}:0", name="build", lane=lane), ev.TimerFired(position="/:t0"))
    assert one.describe(f"{LEFT}:0") == "tool build in lane /review (flow.py:3)"
    assert one.describe("/:t0") == "a timer in lane /"
    assert one.describe("/:9") == "nothing in lane /"


def test_the_status_side_patches_sessions_and_last_time_are_kept():
    one = record(
        ev.RunStarted(name="fix", inputs=Raw(b"{}")), status("running", 1), ev.Patched(name="x", new=True),
        ev.SessionBound(position="/:0", agent="a", session_id="s1"),
        status("failed", 2, failed=("/:0",), resumable=False),
    )  # fmt: skip
    assert (one.status, one.changes, one.failed, one.resumable) == ("failed", 2, ("/:0",), False)
    assert (one.patches, one.sessions["/:0"].session_id, one.last_at) == ({"x": True}, "s1", 1005)
    assert (one.started.name, one.started_at) == ("fix", 1001)
