"""ctx.task across crashes, cancellation and forks: who is asked again, in which session (scenario 17)."""

from __future__ import annotations

import asyncio

from msgspec import UNSET

from perdure.agents.session import Turn, TurnUsage
from perdure.events import NodeAbandoned, NodeFinished, NodeStarted, SessionBound
from perdure.operations.stage_prompt import CONTINUE, CONTRACT
from tests.bed.stages import FakeAgent, after, run_stages


def types_of(played):
    return [type(s.event).__name__ for s in played.events]


async def body_of_one(ctx, seen):
    result = await ctx.task("plan", "Do it.")
    seen.append(result)
    return result.text


def killed_after_binding(body, agent):
    whole = run_stages(body, FakeAgent(*list(agent.replies)))
    cut = types_of(whole).index("SessionBound") + 1
    first = run_stages(body, agent, crash_after=cut)
    assert first.ending is None
    assert types_of(first)[-1] == "SessionBound"
    return first


def test_nothing_is_asked_before_the_session_is_durable():
    whole = run_stages(body_of_one, FakeAgent("x"))
    agent = FakeAgent("x")
    first = run_stages(body_of_one, agent, crash_after=types_of(whole).index("SessionBound"))
    assert first.ending is None
    assert agent.opened
    assert not agent.prompts


def test_an_interrupted_stage_goes_on_in_its_session_with_a_fixed_prompt():
    first = killed_after_binding(body_of_one, FakeAgent("lost"))
    agent = FakeAgent("Done after all.", reopen=True)
    second = run_stages(body_of_one, agent, events=first.events)
    assert agent.prompts == [("fake-1", CONTINUE)]
    assert second.ending.value == "Done after all."
    assert len(second.of(SessionBound)) == 1


def test_an_agent_that_cannot_reopen_gets_one_new_session_for_the_same_node():
    first = killed_after_binding(body_of_one, FakeAgent("lost"))
    agent = FakeAgent("Done.", name="fake")
    second = run_stages(body_of_one, agent, events=first.events)
    assert agent.texts == [f"Do it.\n\n{CONTRACT}"]
    assert len(agent.opened) == 1
    assert second.seen[0].warnings == ("The stage was interrupted and went on in a new session.",)
    assert {e.position for e in second.of(NodeStarted)} == {"/:0"}


def test_a_session_that_is_gone_is_replaced_by_a_new_one():
    first = killed_after_binding(body_of_one, FakeAgent("lost"))
    agent = FakeAgent("Done.", reopen=True, can_reopen=False)
    second = run_stages(body_of_one, agent, events=first.events)
    assert second.ending.value == "Done."
    assert "could not be reopened" in second.seen[0].warnings[0]


def test_a_sibling_that_is_cancelled_ends_its_session_and_records_nothing():
    agent = FakeAgent(after(100), after(1, ""))

    async def body(ctx, seen):
        await ctx.parallel([ctx.task("slow", "Go."), ctx.task("bad", "Go.")])

    played = run_stages(body, agent)
    assert played.ending.status == "failed"
    assert not agent.open_sessions
    assert [e.position for e in played.of(NodeFinished)] == ["/:1"]
    [abandoned] = played.of(NodeAbandoned)
    assert (abandoned.position, abandoned.status) == ("/:0", "skipped")


def test_killed_at_any_event_a_run_of_stages_ends_the_same_and_asks_nobody_twice():
    async def body(ctx, seen):
        first = await ctx.task("a", "A?")
        both = await ctx.parallel([ctx.task("b", "B?", previous=first), ctx.task("c", "C?", schema=int)])
        seen.extend([first.text, both[0].text, both[1].value])
        return both[1].value

    def answer():
        async def reply(session, text):
            await asyncio.sleep(1)
            return Turn(
                "end_turn", {"a": "from a", "b": "from b", "c": "7"}[session.spec.stage], UNSET, TurnUsage(1, 1)
            )

        return FakeAgent(*[reply] * 20)

    whole = run_stages(body, answer())
    assert whole.ending.value == 7
    for cut in range(2, len(whole.events)):
        first = run_stages(body, answer(), crash_after=cut)
        assert first.ending is None
        done = {e.position for e in first.of(NodeFinished)}
        agent = answer()
        second = run_stages(body, agent, events=first.events, seed=cut)
        assert second.ending.value == 7, cut
        assert second.seen == whole.seen
        assert len(agent.opened) == 3 - len(done)


# --- forks


def test_a_fork_goes_on_with_the_session_of_the_stage_it_names():
    async def body(ctx, seen):
        await ctx.task("implement", "Implement.")
        await ctx.task("review", "Review.")
        await ctx.task("repair", "Repair.", context="fork", fork_from="implement")
        await ctx.task("again", "Again.", context="fork")

    agent = FakeAgent(reopen=True)
    played = run_stages(body, agent)
    assert [spec.reopen_id for spec in agent.opened] == [None, None, "fake-1", "fake-1"]
    at_review = next(i for i, s in enumerate(played.events) if getattr(s.event, "position", "") == "/:2")
    later = FakeAgent(reopen=True)
    assert run_stages(body, later, events=played.events[:at_review]).ending.status == "completed"
    assert [spec.reopen_id for spec in later.opened] == ["fake-1", "fake-1"]


def test_a_fork_is_refused_clearly_when_the_agent_forgets():
    async def body(ctx, seen):
        await ctx.task("implement", "Implement.")
        await ctx.task("repair", "Repair.", context="fork")

    played = run_stages(body, FakeAgent())
    assert played.ending.failure.code == "agent_unavailable"
    assert "fresh" in played.ending.failure.message


def test_a_recorded_fork_replays_whatever_the_default_agent_is_now():
    async def body(ctx, seen):
        await ctx.task("implement", "Implement.")
        seen.append((await ctx.task("repair", "Repair.", context="fork")).text)

    first = run_stages(body, FakeAgent("a", "b", reopen=True))
    again = run_stages(body, FakeAgent(name="other"), default="other", events=first.events[:-1])
    assert again.ending.status == "completed"
    assert again.seen == ["b"]


def test_a_fork_may_go_on_with_a_talk():
    async def body(ctx, seen):
        async with ctx.stage("plan") as stage:
            await stage.prompt("Plan.")
        await ctx.task("do", "Do it.", context="fork")

    agent = FakeAgent(reopen=True)
    assert run_stages(body, agent).ending.status == "completed"
    assert [spec.reopen_id for spec in agent.opened] == [None, "fake-1"]
