"""ctx.stage: several prompts in one session, each a step that replays by itself."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import UNSET

from perdure.agents.session import Turn
from perdure.errors import AgentError, NotAvailable, StageFailed, UsageError
from perdure.events import NodeAbandoned, NodeFinished, NodeStarted, SessionBound
from perdure.operations.stage_prompt import CONTINUE, CONTRACT
from tests.bed.stages import FakeAgent, after, run_stages


async def talk(ctx, seen):
    async with ctx.stage("plan") as stage:
        first = await stage.prompt("One?")
        seen.append(first.text)
        second = await stage.prompt(f"Two after {first.text}?")
        seen.append(second.text)
        seen.append(stage.messages)
    return await ctx.task("end", "End.")


async def ended(ctx, seen):
    return (await talk(ctx, seen)).text


def echo(reopen=True):
    async def reply(session, text):
        return Turn("end_turn", f"<{text.splitlines()[0]}>", UNSET)

    return FakeAgent(*[reply] * 20, reopen=reopen)


def starts(played):
    return {e.position: e for e in played.of(NodeStarted)}


def test_prompts_share_one_session_and_the_stage_is_one_node():
    agent = FakeAgent("one", "two", "three")
    played = run_stages(ended, agent)
    assert played.ending.value == "three"
    assert agent.prompts[:2] == [("fake-1", f"One?\n\n{CONTRACT}"), ("fake-1", "Two after one?")]
    assert [e.position for e in played.of(SessionBound)] == ["/:0", "/:1"]
    nodes = starts(played)
    stage, first, second, last = list(nodes)
    assert stage == "/:0"
    assert first.partition(":")[0] == second.partition(":")[0] != "/"
    assert (nodes[first].name, nodes[second].name) == ("plan 1", "plan 2")
    assert nodes[first].parents == (stage,)
    assert set(nodes[second].parents) == {first, stage}
    assert stage in nodes[last].parents
    assert second in nodes[last].parents
    assert not agent.open_sessions
    assert [m["role"] for m in played.seen[2]] == ["user", "agent", "user", "agent"]


def test_a_recorded_talk_replays_without_the_agent():
    first = run_stages(ended, FakeAgent("one", "two", "three"))
    agent = FakeAgent()
    again = run_stages(ended, agent, events=first.events[:-1])
    assert again.ending.value == "three"
    assert again.seen == first.seen
    assert not agent.opened


@pytest.mark.parametrize("reopen", [True, False])
def test_killed_at_any_event_a_talk_goes_on_where_it_was(reopen):
    whole = run_stages(ended, echo())
    for cut in range(2, len(whole.events)):
        first = run_stages(ended, echo(), crash_after=cut)
        assert first.ending is None
        agent = echo(reopen)
        second = run_stages(ended, agent, events=first.events, seed=cut)
        assert second.ending.status == "completed", (cut, second.ending)
        keys = [s.event.key for s in second.events]
        assert len(set(keys)) == len(keys)
        assert len([e for e in second.of(NodeFinished) if e.position == "/:0"]) == 1
        assert not agent.open_sessions


def cut_after(name, kind, count):
    """The events of a talk up to the one that matches."""
    whole = run_stages(ended, FakeAgent("one", "two", "three"))
    found = [i for i, s in enumerate(whole.events) if isinstance(s.event, kind) and name(s.event)]
    return whole.events[: found[count] + 1]


def test_the_second_prompt_is_asked_in_the_reopened_session():
    events = cut_after(lambda e: e.position != "/:0", NodeFinished, 0)
    agent = FakeAgent("zwei", "drei", reopen=True)
    second = run_stages(ended, agent, events=events)
    assert agent.prompts[0] == ("fake-1", "Two after one?")
    assert second.seen[1] == "zwei"


def test_a_prompt_that_was_under_way_is_not_asked_a_second_time():
    events = cut_after(lambda e: e.name == "plan 2", NodeStarted, 0)
    agent = FakeAgent("zwei", "drei", reopen=True)
    run_stages(ended, agent, events=events)
    assert agent.prompts[0] == ("fake-1", CONTINUE)


def test_a_new_session_is_told_what_was_said():
    events = cut_after(lambda e: e.position != "/:0", NodeFinished, 0)
    agent = FakeAgent("zwei", "drei")
    second = run_stages(ended, agent, events=events)
    told = agent.texts[0]
    assert "<prompt>\nOne?\n</prompt>\n<answer>\none\n</answer>" in told
    assert "Two after one?" in told
    assert second.seen[1] == "zwei"


def test_a_prompt_that_fails_fails_the_stage_and_a_resume_asks_only_it_again():
    first = run_stages(ended, FakeAgent("one", AgentError("Broken.")))
    assert first.ending.status == "failed"
    assert first.of(NodeAbandoned)[0].status == "failed"
    agent = FakeAgent("zwei", "drei", reopen=True)
    second = run_stages(ended, agent, events=first.events)
    assert second.ending.value == "drei"
    assert agent.texts[0] == "Two after one?"
    assert second.seen[:2] == ["one", "zwei"]


def test_a_failed_prompt_may_be_caught_and_followed_by_another():
    async def body(ctx, seen):
        async with ctx.stage("plan") as stage:
            try:
                await stage.prompt("One?")
            except StageFailed as failed:
                seen.append(failed.message)
            seen.append((await stage.prompt("Two?")).text)
        return "end"

    agent = FakeAgent(AgentError("Broken."), "fine", reopen=True)
    played = run_stages(body, agent)
    assert played.seen == ["Stage plan failed: Broken.", "fine"]
    assert [spec.reopen_id for spec in agent.opened] == [None, "fake-1"]  # the broken session was closed
    again = run_stages(body, FakeAgent(), events=played.events[:-1])
    assert again.seen == played.seen


def test_an_exception_in_the_block_closes_the_session_and_records_no_outcome():
    async def body(ctx, seen):
        async with ctx.stage("plan") as stage:
            await stage.prompt("One?")
            raise ValueError("mine")

    agent = FakeAgent()
    played = run_stages(body, agent)
    assert not agent.open_sessions
    assert "/:0" not in {e.position for e in played.of(NodeFinished)}
    assert played.of(NodeAbandoned)[0].status == "skipped"
    later = FakeAgent("two", "three", reopen=True)
    mended = run_stages(ended, later, events=played.events)
    assert mended.ending.status == "completed"
    assert later.texts[0].startswith("Two after")


def test_abort_ends_the_turn_and_its_prompt_fails():
    async def body(ctx, seen):
        async with ctx.stage("plan") as stage:
            running = asyncio.create_task(stage.prompt("Long."))
            await ctx.sleep(5)
            await stage.abort()
            with pytest.raises(StageFailed) as failed:
                await running
            seen.append(failed.value.failure.code)
            seen.append((await stage.prompt("Short.")).text)
        return "end"

    agent = FakeAgent(after(100), "short", reopen=True)
    played = run_stages(body, agent)
    assert played.seen == ["aborted", "short"]
    assert run_stages(body, FakeAgent(), events=played.events[:-1]).seen == played.seen


def test_prompts_of_two_lanes_queue():
    async def body(ctx, seen):
        async with ctx.stage("plan") as stage:
            seen.extend(r.text for r in await ctx.parallel([stage.prompt("A"), stage.prompt("B")]))

    played = run_stages(body, FakeAgent(after(5, "a"), after(5, "b")))
    assert played.ending.status == "completed"
    assert sorted(played.seen) == ["a", "b"]


def test_open_talks_do_not_hold_slots():
    async def body(ctx, seen):
        async with ctx.stage("a") as a, ctx.stage("b") as b:
            seen.append((await a.prompt("A")).text)
            seen.append((await b.prompt("B")).text)

    played = run_stages(body, FakeAgent("1", "2"), stages_max=1)
    assert played.seen == ["1", "2"]


def test_a_listener_hears_the_agent_and_its_errors_stay_its_own(caplog):
    async def body(ctx, seen):
        def listen(event):
            seen.append(event.text)
            raise ValueError("mine")

        async with ctx.stage("plan") as stage:
            end = stage.subscribe(listen)
            await stage.prompt("One?")
            end()
            await stage.prompt("Two?")

    played = run_stages(body, FakeAgent("one", "two"))
    assert played.ending.status == "completed"
    assert played.seen == ["one"]
    assert "listener" in caplog.text


def test_misuse_is_refused():
    async def body(ctx, seen):
        idle = ctx.stage("idle")
        with pytest.raises(UsageError, match="inside its block"):
            idle.prompt("x")
        async with ctx.stage("plan", schema=int) as stage:
            assert (await stage.prompt("One?")).value == 5
            with pytest.raises(UsageError, match="one prompt"):
                stage.prompt("Two?")
            for verb in (stage.steer, stage.follow_up, stage.send, stage.run_bash):
                with pytest.raises(NotAvailable):
                    verb("x")
            with pytest.raises(NotAvailable):
                stage.compact()
        with pytest.raises(UsageError, match="inside its block"):
            stage.prompt("x")
        with pytest.raises(UsageError, match="entered already"):
            await stage.__aenter__()
        seen.append(stage.session_id)

    played = run_stages(body, FakeAgent("5"))
    assert played.ending.status == "completed"
    assert played.seen == ["fake-1"]


def test_a_talk_without_a_word_completes_and_replays():
    async def body(ctx, seen):
        async with ctx.stage("plan"):
            pass
        return (await ctx.task("end", "End.")).text

    played = run_stages(body, FakeAgent("x"))
    assert played.ending.value == "x"
    assert run_stages(body, FakeAgent(), events=played.events[:-1]).ending.value == "x"


def test_a_setting_that_fails_fails_the_prompt_and_the_block_may_go_on():
    async def body(ctx, seen):
        async with ctx.stage("plan", agent="nobody") as stage:
            with pytest.raises(StageFailed):
                await stage.prompt("One?")
        return (await ctx.task("end", "End.")).text

    played = run_stages(body, FakeAgent("x"))
    assert played.ending.value == "x"
    assert run_stages(body, FakeAgent(), events=played.events[:-1]).ending.value == "x"
