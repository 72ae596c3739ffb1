"""Order: what reaches the code next is the same live and on replay, in programs killed at every event."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from perdure.errors import ToolFailed, UnorderedLanes
from perdure.events import NodeAbandoned, NodeFinished, TimerFired
from tests.bed.lanes import crash_everywhere, play
from tests.bed.programs import executed_after, refuse, world_of


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


@pytest.mark.parametrize(
    "seeds", [6, pytest.param(24, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)  # 24: over 600 crashes
def test_producers_and_consumers_over_a_bounded_queue_never_stall_or_repeat(seeds):
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

    crash_everywhere(body, seeds=seeds)


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
