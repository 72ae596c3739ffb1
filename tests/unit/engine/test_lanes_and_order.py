"""Lanes, order and replay: scenarios L1 to L25 and 5 to 14 of the authoring rules, killed at every event."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextvars import Context as Variables
from contextvars import copy_context

import anyio
import pytest

from perdure.definitions import tool
from perdure.errors import CallOutsideLane, ToolFailed, UnorderedLanes
from perdure.events import NodeAbandoned, NodeFinished, NodeJoined, NodeStarted, TimerFired
from tests.bed.lanes import Result, crash_everywhere, play


class world_of:  # noqa: N801  a tool's arguments must be JSON, so the world travels beside them
    current = None

    def __new__(cls, world):
        cls.current = world
        return "world"


async def refuse(_, what):
    world_of.current.executed.append(what)
    raise ValueError(f"{what} refused")


def nodes(result: Result) -> dict[str, NodeStarted]:
    found = {}
    for stored in result.events:
        event = stored.event
        start = event if isinstance(event, NodeStarted) else getattr(event, "start", None)
        if start is not None:
            found[start.position] = start
    return found


def executed_after(body, first: Result, **options) -> Result:
    return play(body, events=first.events, **options)


# --- lanes and the graph


def test_gathered_calls_share_their_parents_and_the_next_call_follows_both():
    async def body(ctx, world):
        await ctx.tool(world.act, 0)
        await asyncio.gather(ctx.tool(world.act, "a"), ctx.tool(world.act, "b"))
        await ctx.tool(world.act, "c")

    for seed in range(20):
        graph = nodes(play(body, seed=seed))
        assert graph["/:1"].parents == graph["/:2"].parents == ("/:0",)
        assert set(graph["/:3"].parents) == {"/:1", "/:2"}


def test_branches_of_two_calls_show_only_their_own_past():
    async def branch(ctx, world, name):
        await ctx.tool(world.act, name + "1")
        await ctx.tool(world.act, name + "2")

    async def body(ctx, world):
        await asyncio.gather(branch(ctx, world, "a"), branch(ctx, world, "b"))
        await ctx.tool(world.act, "end")

    for seed in range(20):
        graph = nodes(play(body, seed=seed))
        lanes = {p.partition(":")[0] for p in graph} - {"/"}
        assert len(lanes) == 2
        for lane in lanes:
            assert graph[f"{lane}:0"].parents == ()
            assert graph[f"{lane}:1"].parents == (f"{lane}:0",)
        assert set(graph["/:0"].parents) == {f"{lane}:1" for lane in lanes}


def test_parallel_limit_one_of_three_shares_the_parents_at_the_call_whatever_the_timing():
    async def body(ctx, world):
        await ctx.tool(world.act, "before")
        await ctx.parallel((ctx.tool(world.act, n) for n in "abc"), limit=1)
        await ctx.tool(world.act, "after")

    shapes = set()
    for seed in range(200):
        graph = nodes(play(body, seed=seed))
        assert all(graph[f"/:{n}"].parents == ("/:0",) for n in (1, 2, 3))
        shapes.add(tuple(sorted((p, tuple(sorted(n.parents))) for p, n in graph.items())))
    assert len(shapes) == 1


def test_a_loop_of_1000_tools_killed_at_700_runs_300_and_replays_700():
    async def body(ctx, world):
        for n in range(1000):
            await ctx.tool(world.act, n, 0.0)

    whole = play(body)
    first = play(body, crash_after=702)
    second = play(body, seed=5, events=first.events)
    assert second.world.executed == list(range(700, 1000))
    assert second.ending.replayed == 700
    assert nodes(second).keys() == nodes(whole).keys()


def test_a_renamed_finished_step_is_drift_with_both_names_and_lines_and_nothing_executed():
    def program(name):
        async def act(n: int) -> int:
            log.append((name, n))
            return n

        async def body(ctx, world):
            for n in range(10):
                await ctx.tool(tool(act, name=name if n == 7 else "step"), n)

        return body

    log: list = []
    first = play(program("fetch"), crash_after=12)
    del log[:]
    second = play(program("build"), events=first.events)
    assert second.ending.status == "blocked"
    assert second.ending.code == "replay_mismatch"
    assert "tool fetch" in second.ending.reason
    assert "tool build" in second.ending.reason
    assert second.ending.reason.count("test_lanes_and_order.py:") == 2
    assert "--on-drift rerun" in second.ending.reason
    assert log == []


def test_patched_takes_the_old_side_in_an_old_run_and_the_new_side_in_a_new_one():
    def program(patched):
        async def body(ctx, world):
            await ctx.tool(world.act, "a")
            if patched and await ctx.patched("x"):
                await ctx.tool(world.act, "new")
            else:
                await ctx.tool(world.act, "old")
            await ctx.tool(world.act, "z")

        return body

    whole = play(program(False))
    for cut in (4, 5):
        first = play(program(False), crash_after=cut)
        assert executed_after(program(True), first).ending.status == "completed"
        assert "new" not in executed_after(program(True), first).world.executed
    assert play(program(True)).world.executed == ["a", "new", "z"]
    assert whole.world.executed == ["a", "old", "z"]
    crash_everywhere(program(True))


def test_patched_before_a_step_whose_start_only_is_recorded_takes_the_old_side():
    def program(patched):
        async def body(ctx, world):
            if patched and await ctx.patched("x"):
                await ctx.tool(world.act, "new")
            else:
                await ctx.tool(world.act, "slow", 10.0)

        return body

    first = play(program(False), crash_after=3)  # run started, running, and the slow step's start
    assert isinstance(first.events[-1].event, NodeStarted)
    assert executed_after(program(True), first).world.executed == ["slow"]


def test_a_failure_that_ended_the_run_runs_again_and_one_that_was_caught_replays():
    async def ends(ctx, world):
        await ctx.tool(world.act, "a")
        await ctx.tool(refuse, world_of(world), "deploy")

    async def caught(ctx, world):
        try:
            await ctx.tool(refuse, world_of(world), "deploy")
        except ToolFailed:
            await ctx.tool(world.act, "rollback")
        await ctx.tool(world.act, "next")

    first = play(ends)
    assert first.ending.status == "failed"
    again = executed_after(ends, first)
    assert again.world.executed == ["deploy"]
    killed = play(caught, crash_after=4)
    assert killed.world.executed[:2] == ["deploy", "rollback"]
    assert executed_after(caught, killed).world.executed == ["next"]


def test_a_failed_deploy_with_cleanup_in_finally_runs_both_again():
    async def body(ctx, world):
        try:
            await ctx.tool(refuse, world_of(world), "deploy")
        finally:
            await ctx.tool(world.act, "cleanup")

    first = play(body)
    assert first.ending.status == "failed"
    second = executed_after(body, first)
    assert second.world.executed == ["deploy", "cleanup"]
    third = executed_after(body, second)
    assert third.world.executed == ["deploy", "cleanup"]


def test_a_failure_in_one_gathered_branch_leaves_the_other_branch_recorded():
    async def good(ctx, world):
        for n in range(4):
            await ctx.tool(world.act, f"b{n}", 0.01)

    async def bad(ctx, world):
        await ctx.tool(world.act, "a0", 0.0)
        await ctx.tool(refuse, world_of(world), "a1")

    async def body(ctx, world):
        results = await asyncio.gather(bad(ctx, world), good(ctx, world), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    first = play(body)
    assert first.ending.status == "failed"
    assert len(first.ending.failed) == 1
    assert executed_after(body, first).world.executed == ["a1"]


def test_cancelled_siblings_of_a_task_group_are_not_started_again():
    async def body(ctx, world):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.tool(world.act, "slow1", 50.0))
                group.create_task(ctx.tool(world.act, "slow2", 50.0))
                group.create_task(ctx.tool(refuse, world_of(world), "bad"))
        except* ToolFailed:
            world.notes.append("caught")
        await ctx.tool(world.act, "after", 5.0)
        await ctx.tool(world.act, "end")

    whole = play(body)
    assert whole.world.executed == ["bad", "after", "end"]
    abandoned = [s.event for s in whole.events if isinstance(s.event, NodeAbandoned)]
    assert {e.status for e in abandoned} == {"cancelled"}
    assert len(abandoned) == 2
    crash_everywhere(body)
    killed = play(body, crash_after=len(whole.events) - 2)
    assert "slow1" not in executed_after(body, killed).world.executed


def test_a_crashed_run_that_ends_only_by_recorded_failures_sets_them_aside_and_goes_on_once():
    attempts = []

    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 2:
            raise ValueError("first time")
        return "done"

    async def body(ctx, world):
        return await ctx.tool(flaky)

    whole = play(body)
    assert whole.ending.status == "failed"
    del attempts[:]
    killed = play(body, crash_after=len(whole.events) - 1)  # the failure is recorded, the run's end is not
    assert killed.ending is None
    second = executed_after(body, killed)
    assert second.ending.status == "completed"
    assert second.output == "done"
    assert len(attempts) == 2


# --- order


def test_the_winner_of_a_race_is_the_same_on_every_resume():
    async def body(ctx, world):
        tasks = [asyncio.create_task(ctx.tool(world.act, n)) for n in range(3)]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = min(t.result() for t in done)
        world.notes.append(winner)
        await ctx.tool(world.act, f"winner {winner}")
        for task in rest:
            world.notes.append(await task)
        await ctx.tool(world.act, "end")

    crash_everywhere(body, seeds=6)


def test_as_completed_over_tasks_and_ctx_as_completed_come_in_the_recorded_order():
    async def with_tasks(ctx, world):
        tasks = [asyncio.create_task(ctx.tool(world.act, n)) for n in range(4)]
        for future in asyncio.as_completed(tasks):
            got = await future
            world.notes.append(got)
            await ctx.tool(world.act, f"after {got}")

    async def with_ctx(ctx, world):
        async for got in ctx.as_completed(ctx.tool(world.act, n) for n in range(4)):
            world.notes.append(got)
            await ctx.tool(world.act, f"after {got}")

    crash_everywhere(with_tasks, seeds=4)
    crash_everywhere(with_ctx, seeds=4)


def test_as_completed_over_bare_coroutines_is_refused_before_anything_runs():
    async def body(ctx, world):
        calls = [ctx.tool(world.act, n) for n in range(3)]
        try:
            for future in asyncio.as_completed(calls):
                await future
        except UnorderedLanes as error:
            assert "ctx.as_completed" in str(error)
            for call in calls:
                call.close()
            return "refused"

    result = play(body)
    assert result.output == "refused"
    assert result.world.executed == []


def test_workers_on_a_queue_keep_their_tickets():
    async def body(ctx, world):
        queue: asyncio.Queue = asyncio.Queue()
        tickets: dict = {}

        async def ticket() -> int:
            world.executed.append("ticket")
            return world.rng.randint(0, 10**9)

        async def worker():
            while not queue.empty():
                item = queue.get_nowait()
                tickets[item] = await ctx.tool(ticket)
                world.notes.append((item, tickets[item]))

        for item in range(8):
            queue.put_nowait(item)
        await asyncio.gather(*(worker() for _ in range(3)))
        return tickets and {str(k): v for k, v in sorted(tickets.items())}

    crash_everywhere(body, seeds=3)


def test_producers_and_consumers_over_a_bounded_queue_never_stall_or_repeat():
    async def body(ctx, world):
        queue: asyncio.Queue = asyncio.Queue(maxsize=2)

        async def produce(name):
            for n in range(4):
                await queue.put(await ctx.tool(world.act, f"{name}{n}"))

        async def consume():
            while (item := await queue.get()) is not None:
                world.notes.append(await ctx.tool(world.act, f"eat {item}"))

        consumers = [asyncio.create_task(consume(), name=f"consumer-{n}") for n in range(2)]
        await asyncio.gather(produce("a"), produce("b"))
        for _ in consumers:
            await queue.put(None)
        await asyncio.gather(*consumers)

    crash_everywhere(body, seeds=6)


def test_results_through_nested_tasks_and_direct_ones_append_in_the_same_order_on_replay():
    async def body(ctx, world):
        order: list = []

        async def nested(depth, call):
            return await (asyncio.create_task(nested(depth - 1, call)) if depth else call)

        async def deep():
            order.append(await nested(4, ctx.tool(world.act, "deep", 0.01)))

        async def direct():
            order.append(await ctx.tool(world.act, "direct", 0.01))

        await asyncio.gather(deep(), direct())
        world.notes.append(tuple(order))
        await ctx.tool(world.act, str(order))

    crash_everywhere(body, seeds=8)


def test_outcomes_of_one_commit_are_released_one_by_one_after_the_lanes_are_quiet():
    async def body(ctx, world):
        seen: list = []

        async def lane(n):
            await ctx.tool(world.act, n, 0.0)
            seen.append(("got", n))
            for _ in range(3):
                await asyncio.sleep(0)
            seen.append(("quiet", n))

        await asyncio.gather(*(lane(n) for n in range(16)))
        return [list(pair) for pair in seen]

    for seed in range(5):
        result = play(body, seed=seed)
        seen = [tuple(pair) for pair in result.output]
        assert seen == [(what, n) for _, n in seen[::2] for what in ("got", "quiet")]
        finished = [s.event for s in result.events if isinstance(s.event, NodeFinished)]
        assert [n for what, n in seen if what == "got"] == [int(bytes(e.value)) for e in finished]


def test_a_lock_around_a_counter_gives_the_same_numbers():
    async def body(ctx, world):
        lock = asyncio.Lock()
        counter = 0

        async def lane(name):
            nonlocal counter
            await ctx.tool(world.act, name)
            async with lock:
                counter += 1
                mine = counter
                await ctx.tool(world.act, f"{name} is {mine}")
            world.notes.append((name, mine))

        await asyncio.gather(*(lane(n) for n in "abcd"))

    crash_everywhere(body, seeds=4)


def test_a_fired_timeout_fires_at_its_place_on_resume_without_waiting():
    async def body(ctx, world):
        try:
            async with asyncio.timeout(600):
                await ctx.tool(world.act, "slow", 10_000.0)
        except TimeoutError:
            world.notes.append("timeout")
        await ctx.tool(world.act, "after", 0.0)
        await ctx.tool(world.act, "end", 0.0)

    crash_everywhere(body)
    whole = play(body)
    killed = play(body, crash_after=len(whole.events) - 1)
    began = 1000.0
    second = executed_after(body, killed)
    assert second.ending.status == "completed"
    assert second.world.executed == ["end"] or second.world.executed == []
    assert second.events[-1].at / 1000 - began < 1.0


def test_a_timeout_that_fired_but_was_not_committed_waits_its_full_time_again():
    async def body(ctx, world):
        try:
            async with asyncio.timeout(600):
                await ctx.tool(world.act, "slow", 10_000.0)
        except TimeoutError:
            return "timeout"

    whole = play(body)
    at = next(i for i, s in enumerate(whole.events) if isinstance(s.event, TimerFired))
    killed = play(body, crash_after=at)
    second = executed_after(body, killed)
    assert second.output == "timeout"
    assert second.events[-1].at / 1000 - 1000.0 >= 600


def test_wait_for_and_plain_sleep_are_recorded_outcomes():
    async def body(ctx, world):
        await asyncio.sleep(30)
        try:
            await asyncio.wait_for(ctx.tool(world.act, "slow", 500.0), 100)
        except TimeoutError:
            await ctx.tool(world.act, "late")
        await asyncio.wait([asyncio.create_task(ctx.tool(world.act, "x", 90.0))], timeout=10)
        await ctx.tool(world.act, "end")

    crash_everywhere(body)


def test_a_token_bucket_on_loop_time_gives_the_same_order():
    async def body(ctx, world):
        loop = asyncio.get_running_loop()
        stamps: deque = deque()

        async def limited(n):
            while len(stamps) >= 2 and loop.time() - stamps[0] < 1.0:
                await asyncio.sleep(1.0 - (loop.time() - stamps[0]))
            if len(stamps) >= 2:
                stamps.popleft()
            stamps.append(loop.time())
            world.notes.append(await ctx.tool(world.act, n))

        await asyncio.gather(*(limited(n) for n in range(6)))

    crash_everywhere(body, seeds=4)


def test_an_outcome_whose_waiter_an_earlier_one_cancelled_is_skipped():
    async def body(ctx, world):
        slow = asyncio.create_task(ctx.tool(world.act, "b", 0.01))
        await ctx.tool(world.act, "a", 0.01)
        slow.cancel()
        try:
            await slow
        except asyncio.CancelledError:
            world.notes.append("cancelled")
        await ctx.tool(world.act, "c")

    crash_everywhere(body, seeds=12)


def test_a_renamed_helper_blocks_and_names_the_recorded_tool_and_lane():
    def program(renamed):
        async def review(ctx, world):
            await ctx.tool(world.act, "build", 0.0)

        async def inspect(ctx, world):
            await ctx.tool(world.act, "build", 0.0)

        async def body(ctx, world):
            await asyncio.gather((inspect if renamed else review)(ctx, world))
            await ctx.tool(world.act, "end")

        return body

    first = play(program(False), crash_after=3)
    second = executed_after(program(True), first)
    assert second.ending.status == "blocked"
    assert "tool act" in second.ending.reason
    assert "review" in second.ending.reason
    assert second.world.executed == []


def test_a_removed_step_blocks_and_rerun_matches_the_rest_by_position_and_digest():
    def program(removed):
        async def body(ctx, world):
            await ctx.tool(world.act, "a")
            if not removed:
                await ctx.tool(world.act, "b")
            await ctx.tool(world.act, "c")
            await ctx.tool(world.act, "d")

        return body

    first = play(program(False), crash_after=6)
    blocked = executed_after(program(True), first)
    assert blocked.ending.status == "blocked"
    assert blocked.world.executed == []
    second = executed_after(program(True), first, on_drift="rerun")
    assert second.ending.status == "completed"
    assert second.world.executed == ["c", "d"]


def test_a_branch_added_in_front_of_named_lanes_swaps_nothing():
    def program(more):
        async def branch(ctx, world, name):
            world.notes.append((name, await ctx.tool(pick)))

        async def pick() -> int:
            picks.append(1)
            return len(picks)

        async def body(ctx, world):
            names = (["new"] if more else []) + ["x", "y"]
            await ctx.parallel({n: branch(ctx, world, n) for n in names})
            await ctx.tool(world.act, "end", 5.0)

        return body

    picks: list = []
    first = play(program(False), crash_after=4)
    second = executed_after(program(True), first)
    assert set(first.world.notes) <= set(second.world.notes)


def test_calls_without_a_lane_are_refused_each_with_what_to_do():
    async def body(ctx, world):
        refused = []

        def attempt(where):
            try:
                ctx.tool(world.act, where).close()
            except CallOutsideLane as error:
                assert "asyncio.create_task" in str(error)
                refused.append(where)

        async def attempt_in_task(where):
            attempt(where)

        await asyncio.to_thread(attempt, "thread")
        asyncio.get_running_loop().call_soon(attempt, "callback")
        await asyncio.sleep(0)
        for where, context in (("shared", copy_context()), ("empty", Variables())):
            await asyncio.create_task(attempt_in_task(where), context=context)
        await asyncio.Task(attempt_in_task("foreign task"), loop=asyncio.get_running_loop())

        async def inner() -> None:
            attempt("tool")

        await ctx.tool(inner)
        factory = getattr(asyncio, "eager_task_factory", lambda loop, coro, **_: None)
        try:
            asyncio.get_running_loop().set_task_factory(factory)
        except CallOutsideLane:
            refused.append("factory")
        return refused

    result = play(body)
    assert result.output == ["thread", "callback", "shared", "empty", "foreign task", "tool", "factory"]
    assert result.world.executed == []


def test_an_anyio_group_of_branches_has_one_set_of_positions_whatever_library_tasks_ran_before():
    async def body(ctx, world):
        async def library():
            await anyio.sleep(0)

        async def branch(n):
            await ctx.tool(world.act, n)
            await ctx.tool(world.act, n + 10)

        async with anyio.create_task_group() as group:
            for _ in range(world.rng.randint(0, 5)):
                group.start_soon(library)
        async with anyio.create_task_group() as group:
            for n in range(3):
                group.start_soon(branch, n)

    positions = {frozenset(nodes(play(body, seed=seed))) for seed in range(100)}
    assert len(positions) == 1


def test_the_done_set_of_wait_iterates_in_the_same_order_in_a_resumed_run():
    async def body(ctx, world):
        tasks = {asyncio.create_task(ctx.tool(world.act, n, 0.01)) for n in range(5)}
        done, _ = await asyncio.wait(tasks)
        for task in done:
            world.notes.append(task.result())
            await ctx.tool(world.act, f"after {task.result()}", 0.0)

    crash_everywhere(body, seeds=3)


def test_code_that_polls_gets_its_outcome_after_1000_turns_with_one_warning():
    async def body(ctx, world):
        for n in range(2):
            task = asyncio.create_task(ctx.tool(world.act, n, 0.0))
            while not task.done():
                await asyncio.sleep(0)
        return "done"

    result = play(body)
    assert result.output == "done"
    assert len(result.warnings) == 1


def test_wide_joins_keep_at_most_two_edges_and_16_id_bytes_a_node():
    async def body(ctx, world):
        for _ in range(2):
            await asyncio.gather(*(ctx.tool(world.act, n, 0.0) for n in range(1000)))

        async def chain(n):
            if n:
                await asyncio.create_task(chain(n - 1))
            await ctx.tool(world.act, n, 0.0)

        await chain(100)

    result = play(body)
    joins = [s.event for s in result.events if isinstance(s.event, NodeJoined)]
    started = nodes(result)
    edges = sum(len(n.parents) for n in started.values()) + sum(len(j.parents) for j in joins)
    assert edges <= 2 * (len(started) + len(joins))
    assert max(len(n.parents) for n in started.values()) <= 64
    lanes = {p.partition(":")[0] for p in started} - {"/"}
    assert {len(bytes.fromhex(lane)) for lane in lanes} == {8}  # and a number beside it
    crash_everywhere(body, seeds=1, every=997)


def test_equal_calls_are_told_apart_by_position():
    async def body(ctx, world):
        await ctx.tool(world.act, "a", 0.0)
        await ctx.tool(world.act, "a", 0.0)

    first = play(body, crash_after=3)
    assert executed_after(body, first).world.executed == ["a"]


def test_nested_groups_queues_and_timeouts_survive_a_crash_at_every_event():
    async def body(ctx, world):
        async def item(n):
            try:
                async with asyncio.timeout(0.1 * (n % 3) + 0.05):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(ctx.tool(world.act, f"{n}a"))
                        group.create_task(ctx.tool(world.act, f"{n}b"))
                world.notes.append((n, "ok"))
            except TimeoutError:
                world.notes.append((n, "late"))
            await ctx.sleep(1)
            return await ctx.random()

        values = await asyncio.gather(*(item(n) for n in range(5)))
        world.notes.append(tuple(values))
        await ctx.tool(world.act, "end")

    crash_everywhere(body, seeds=5)


def test_the_values_of_now_random_and_uuid_are_the_same_ever_after():
    async def body(ctx, world):
        world.notes.append((await ctx.now(), await ctx.random(), await ctx.uuid()))
        await ctx.tool(world.act, "x")
        world.notes.append(await ctx.now())
        await ctx.tool(world.act, "y")

    crash_everywhere(body)


def test_a_timer_of_10_s_killed_at_4_s_waits_only_the_rest():
    async def body(ctx, world):
        quick = asyncio.create_task(ctx.tool(world.act, "at 4 s", 4.0))
        await asyncio.gather(ctx.sleep(10), quick)
        return "woke"

    whole = play(body)
    killed = play(body, crash_after=len(whole.events) - 2)
    second = executed_after(body, killed)
    assert second.output == "woke"
    assert second.events[-1].at / 1000 - 1000.0 <= 10.1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_cannot_be_switched_on_under_a_run():
    async def body(ctx, world):
        try:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        except CallOutsideLane:
            return "refused"

    assert play(body).output == "refused"
