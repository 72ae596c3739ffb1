"""`ctx.tool`: attempts, timeouts, and failures as data. What else a tool may and may not do: test_tool.py."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from perdure.definitions import Retry, tool
from perdure.errors import ToolFailed
from perdure.events import AttemptFailed, NodeFinished
from perdure.operations.results import Failed, Ok
from tests.bed.lanes import play


def events_of(result, kind):
    return [s.event for s in result.events if isinstance(s.event, kind)]


# --- attempts


def test_a_tool_without_retry_is_tried_once():
    tried = []

    async def refuse() -> None:
        tried.append(1)
        raise ValueError("no")

    async def body(ctx, world):
        await ctx.tool(refuse)

    result = play(body)
    assert (result.ending.status, len(tried)) == ("failed", 1)
    assert not events_of(result, AttemptFailed)


def test_attempts_wait_longer_each_time_and_each_failed_one_is_kept_for_inspection():
    times = []

    @tool(retry=Retry(attempts=4, wait=1.0, backoff=3.0))
    async def flaky() -> str:
        times.append(asyncio.get_running_loop().real_time())
        if len(times) < 4:
            raise ValueError(f"try {len(times)}")
        return "done"

    async def body(ctx, world):
        return await ctx.tool(flaky)

    result = play(body)
    assert result.output == "done"
    assert [round(b - a) for a, b in pairwise(times)] == [1, 3, 9]
    assert [(e.attempt, e.failure.message) for e in events_of(result, AttemptFailed)] == [
        (1, "try 1"), (2, "try 2"), (3, "try 3"),
    ]  # fmt: skip
    (finished,) = events_of(result, NodeFinished)
    assert (finished.status, finished.attempts) == ("completed", 4)


def test_the_last_failed_attempt_is_the_outcome():
    @tool(retry=Retry(attempts=2, wait=0))
    async def refuse() -> None:
        raise ValueError("no")

    async def body(ctx, world):
        try:
            await ctx.tool(refuse)
        except ToolFailed as error:
            return [error.failure.code, error.failure.message, error.position]

    result = play(body)
    assert result.output == ["unknown", "no", "/:0"]
    assert [e.attempt for e in events_of(result, AttemptFailed)] == [1]
    assert events_of(result, NodeFinished)[0].attempts == 2


def test_each_attempt_has_the_whole_timeout_and_running_out_is_an_error_of_its_own():
    tried = []

    @tool(timeout=5, retry=Retry(attempts=2, wait=0))
    async def slow() -> None:
        tried.append(asyncio.get_running_loop().real_time())
        await asyncio.sleep(60)

    async def body(ctx, world):
        try:
            await ctx.tool(slow)
        except ToolFailed as error:
            return error.failure.code

    result = play(body)
    assert result.output == "timed_out"
    assert round(tried[1] - tried[0]) == 5
    assert {e.failure.code for e in events_of(result, AttemptFailed)} == {"timed_out"}


def test_a_timeout_error_of_the_tool_itself_is_not_called_perdures():
    @tool(timeout=60)
    async def waits() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)

    async def body(ctx, world):
        try:
            await ctx.tool(waits)
        except ToolFailed as error:
            return error.failure.type

    assert play(body).output == "TimeoutError"


def test_a_resume_in_the_middle_of_the_attempts_starts_them_again_under_the_same_position():
    tried = []

    @tool(retry=Retry(attempts=3, wait=1))
    async def flaky() -> int:
        tried.append(1)
        if len(tried) < 3:
            raise ValueError("no")
        return len(tried)

    async def body(ctx, world):
        return await ctx.tool(flaky)

    whole = play(body)
    at = next(n for n, s in enumerate(whole.events) if isinstance(s.event, AttemptFailed))
    del tried[:]
    killed = play(body, crash_after=at + 1)
    second = play(body, events=killed.events)
    assert second.output == 3
    assert {e.position for e in events_of(second, NodeFinished)} == {"/:0"}


# --- failures as data


@tool(on_error="return")
async def halve(n: int) -> int:
    if n % 2:
        raise ValueError(f"{n} is odd, password=hunter2hunter2")
    return n // 2


def test_with_return_results_and_failures_are_values_and_replay_equal_but_for_the_mark():
    def told(outcome):
        if isinstance(outcome, Ok):
            return ["ok", outcome.value, outcome.attempts]
        assert isinstance(outcome, Failed)
        return ["failed", outcome.error, outcome.exit_code, outcome.attempts, outcome.failure.type]

    seen = []

    async def body(ctx, world):
        two = [await ctx.tool(halve, 4), await ctx.tool(halve, 3)]
        seen.append([outcome.replayed for outcome in two])
        world.notes.append([told(outcome) for outcome in two])
        await ctx.tool(world.act, "end", 5.0)
        return [told(outcome) for outcome in two]

    whole = play(body)
    assert whole.output == [["ok", 2, 1], ["failed", "3 is odd, password=[redacted]", None, 1, "ValueError"]]
    assert whole.ending.status == "completed"
    assert [e.status for e in events_of(whole, NodeFinished)] == ["completed", "failed", "completed"]
    killed = play(body, crash_after=len(whole.events) - 2)
    second = play(body, events=killed.events)
    assert second.output == whole.output
    assert seen == [[False, False], [False, False], [True, True]]


def test_the_evidence_of_a_process_is_kept_redacted_and_cut_to_its_end():
    class ProcessFailed(Exception):
        def __init__(self):
            super().__init__("exit 3")
            self.returncode, self.stdout, self.stderr = 3, "x" * 20_000 + "end", "token: abcdefghij"

    @tool(on_error="return")
    async def call() -> None:
        raise ProcessFailed

    async def body(ctx, world):
        got = await ctx.tool(call)
        return [got.exit_code, len(got.stdout) < 17 * 1024, got.stdout[-3:], "abcdefghij" in got.stderr]

    assert play(body).output == [3, True, "end", False]


def test_a_failed_tool_that_the_code_caught_leaves_a_completed_run_with_a_failed_node():
    async def refuse() -> None:
        raise ValueError("no")

    async def body(ctx, world):
        try:
            await ctx.tool(refuse)
        except ToolFailed:
            return "went on"

    result = play(body)
    assert (result.ending.status, result.output) == ("completed", "went on")
    assert [e.status for e in events_of(result, NodeFinished)] == ["failed"]
