"""Lanes: identity that does not depend on when, and frontiers that show each branch its own past. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.graph.lanes import BODY, FORK_PARENTS_MAX, FRONTIER_MAX, Lane


@dataclass
class Owner:
    run_id: str = "run"


class Bed:
    """A body lane that notes its joins."""

    def __init__(self, run_id="run"):
        self.joins = {}
        self.body = Lane(Owner(run_id), on_join=self.joins.__setitem__)

    def step(self, lane, *, settle=True):
        """A call that is made and, at once, settled: its position and parents."""
        position, parents = lane.next_position(), lane.call_parents()
        if settle:
            lane.settle(position, parents)
        return position, parents


def test_calls_are_numbered_and_follow_each_other():
    bed = Bed()
    assert [bed.step(bed.body) for _ in range(3)] == [("/:0", ()), ("/:1", ("/:0",)), ("/:2", ("/:1",))]


def test_timers_and_joins_are_numbered_apart_from_steps():
    bed = Bed()
    bed.step(bed.body)
    assert [bed.body.next_timer(), bed.body.next_timer(), bed.step(bed.body)[0]] == ["/:t0", "/:t1", "/:1"]


def test_a_lanes_id_depends_on_its_parent_its_name_and_how_often_the_name_came_and_on_nothing_else():
    one, two = Bed(), Bed()
    first = [one.body.child(name).id for name in ("a", "b", "a")]
    two.step(two.body)
    assert [two.body.child(name).id for name in ("b", "a", "a")] == [first[1], first[0], first[2]]
    assert len({*first, one.body.child("a").child("a").id}) == 4
    assert Bed("other").body.child("a").id == first[0]


def test_its_hash_differs_between_runs_and_not_between_replays():
    assert Bed().body.child("a").hash == Bed().body.child("a").hash
    assert Bed().body.child("a").hash != Bed("other").body.child("a").hash


def test_a_lane_takes_the_name_that_comes_right_after_it_was_made_and_no_later_one():
    bed = Bed()
    renamed = bed.body.child("coro")
    renamed.rename("item-42")
    assert renamed.id == Bed().body.child("item-42").id
    renamed.rename("late")
    assert renamed.path == "/item-42"
    assert bed.body.child("coro").id == Bed().body.child("coro").id  # as if the first had never had that name
    begun = bed.body.child("coro")
    before = begun.id
    begun.settle_identity()
    begun.rename("too late")
    assert begun.id == before


def test_a_path_is_readable_and_told_once():
    bed = Bed()
    inner = bed.body.child("review").child("item")
    twin = bed.body.child("review")
    assert (inner.path, twin.path, bed.body.path) == ("/review/item", "/review.1", BODY)
    mention = inner.mention()
    assert (mention.lane, mention.name) == (inner.id, "item")
    assert inner.mention() is None
    assert bed.body.mention() is None


def test_a_branch_sees_only_its_own_past_and_the_end_of_branches_shows_all():
    bed = Bed()
    bed.step(bed.body)
    left, right = bed.body.child("left"), bed.body.child("right")
    ends = []
    for lane in (left, right):
        assert bed.step(lane) == (f"{lane.id}:0", ("/:0",))
        ends.append(bed.step(lane)[0])
    left.end()
    right.end()
    assert set(bed.step(bed.body)[1]) == set(ends)


def test_a_branch_that_did_nothing_leaves_no_trace():
    bed = Bed()
    bed.step(bed.body)
    bed.body.child("idle").end()
    assert bed.step(bed.body)[1] == ("/:0",)


def test_a_branch_whose_end_comes_late_adds_what_it_reached_and_keeps_what_came_meanwhile():
    bed = Bed()
    bed.step(bed.body)
    branch = bed.body.child("background")
    reached = bed.step(branch)[0]
    bed.step(bed.body)
    branch.end()
    assert set(bed.step(bed.body)[1]) == {"/:1", reached}


def test_calls_made_together_share_their_parents_and_the_next_one_follows_all():
    bed = Bed()
    bed.step(bed.body)
    together = [bed.step(bed.body, settle=False) for _ in range(3)]
    assert {parents for _, parents in together} == {("/:0",)}
    for position, parents in reversed(together):
        bed.body.settle(position, parents)
    assert set(bed.step(bed.body)[1]) == {position for position, _ in together}


def test_a_wide_frontier_is_folded_into_one_join():
    bed = Bed()
    calls = [bed.step(bed.body, settle=False) for _ in range(FRONTIER_MAX + 1)]
    for position, parents in calls:
        bed.body.settle(position, parents)
    assert bed.body.frontier == ("/:j0",)
    assert set(bed.joins["/:j0"]) == {position for position, _ in calls}


def test_a_fork_from_many_nodes_goes_through_one_join_for_all_children():
    bed = Bed()
    calls = [bed.step(bed.body, settle=False) for _ in range(FORK_PARENTS_MAX + 1)]
    for position, parents in calls:
        bed.body.settle(position, parents)
    children = [bed.body.child("x") for _ in range(3)]
    assert {child.frontier for child in children} == {("/:j0",)}
    assert list(bed.joins) == ["/:j0"]


@settings(max_examples=40)
@given(st.recursive(st.integers(0, 3), lambda inner: st.lists(inner, min_size=1, max_size=8), max_leaves=150))
def test_any_nesting_gives_a_graph_without_cycles_with_known_parents_and_few_edges(shape):
    bed = Bed()
    known, edges = {}, 0

    def run(lane, part):
        nonlocal edges
        if isinstance(part, int):
            for _ in range(part):
                position, parents = bed.step(lane)
                edges += len(parents)
                assert position not in known
                assert all(p in known or p in bed.joins for p in parents)  # so no parent comes after its child
                assert len(parents) <= FRONTIER_MAX
                known[position] = parents
            return
        lanes = [lane.child("branch") for _ in part]
        for child, inner in zip(lanes, part, strict=True):
            run(child, inner)
        for child in lanes:
            child.end()

    run(bed.body, shape)
    edges += sum(len(parents) for parents in bed.joins.values())
    assert edges <= 2 * (len(known) + len(bed.joins))
