"""Stages whose agent hands in its value by the engine's tool: every way that goes right and wrong."""

from __future__ import annotations

from msgspec import UNSET
from pydantic import BaseModel

from perdure.agents.session import Turn, TurnUsage
from perdure.errors import AgentError, AgentUnavailable
from perdure.events import UsageRecorded
from tests.bed.stages import FakeAgent, after, run_stages

GOOD = {"approved": True, "problems": []}
BAD = {"approved": "maybe", "problems": []}


class Findings(BaseModel):
    approved: bool
    problems: list[str]


def handing(*values, then="Done."):
    """A turn that calls perdure_result with each value, then ends, or fails."""

    async def reply(session, text):
        for value in values:
            session.told = [*getattr(session, "told", []), await session.spec.tools.call("perdure_result", value)]
        if isinstance(then, Exception):
            raise then
        return then if isinstance(then, Turn) else Turn("end_turn", then)

    return reply


def agent_of(*replies, **more):
    return FakeAgent(*replies, mcp=True, **more)


async def judged(ctx, seen):
    seen.append(await ctx.task("judge", "Judge.", schema=Findings))


def test_the_prompt_names_the_tool_and_the_value_is_what_was_handed_in():
    agent = agent_of(handing(GOOD))
    played = run_stages(judged, agent)
    [result] = played.seen
    assert result.value == Findings(approved=True, problems=[])
    assert result.text == "Done."
    assert result.warnings == ()
    assert "perdure_result" in agent.texts[0]
    assert "JSON Schema" in agent.texts[0]
    assert played.tools_left == 0


def test_a_silent_end_after_the_result_is_enough():
    played = run_stages(judged, agent_of(handing(GOOD, then="")))
    assert played.seen[0].value.approved
    assert played.seen[0].text == '{"approved":true,"problems":[]}'


def test_an_unfit_value_is_corrected_within_the_turn():
    agent = agent_of(handing(BAD, GOOD))
    played = run_stages(judged, agent)
    assert played.seen[0].value.approved
    assert len(agent.prompts) == 1
    assert played.seen[0].warnings == ("The answer had to be corrected, times: 1.",)


def test_an_agent_that_ignores_the_tool_may_answer_as_text():
    played = run_stages(judged, agent_of('```json\n{"approved": false, "problems": ["x"]}\n```'))
    assert played.seen[0].value.problems == ["x"]


def test_an_agent_that_gives_nothing_is_asked_for_the_tool_again():
    agent = agent_of("I like it.", handing(GOOD))
    played = run_stages(judged, agent)
    assert played.seen[0].value.approved
    assert "No result was handed in" in agent.texts[1]
    assert "with the tool perdure_result" in agent.texts[1]


def test_corrections_within_turns_and_between_them_count_together():
    agent = agent_of(handing(BAD, BAD), handing(BAD), "no", handing(GOOD))
    played = run_stages(judged, agent)
    assert played.ending.failure.code == "schema_unmet"
    assert len(agent.prompts) == 3
    assert played.tools_left == 0


def test_a_later_turn_takes_only_the_corrections_that_are_left():
    played = run_stages(judged, agent_of(handing(BAD, BAD), handing(BAD, GOOD)))
    assert played.seen[0].warnings == ("The answer had to be corrected, times: 3.",)
    agent = agent_of(handing(BAD, BAD), handing(BAD, BAD, GOOD))
    assert run_stages(judged, agent).ending.failure.code == "schema_unmet"
    assert len(agent.prompts) == 2


def test_an_agent_that_never_fits_is_stopped_within_its_turn():
    agent = agent_of(handing(*[BAD] * 10, GOOD))
    played = run_stages(judged, agent)
    assert played.ending.failure.code == "schema_unmet"
    assert len(agent.prompts) == 1


def test_a_value_handed_in_counts_although_the_agent_fails_after_it():
    agent = agent_of(handing(GOOD, then=AgentError("The agent died.")))
    played = run_stages(judged, agent)
    assert played.seen[0].value.approved
    assert "died" in played.seen[0].warnings[0]
    assert not agent.open_sessions
    assert played.tools_left == 0


def test_a_value_handed_in_counts_although_the_turn_was_cut_short():
    played = run_stages(judged, agent_of(handing(GOOD, then=Turn("max_tokens", ""))))
    assert played.seen[0].value.approved
    cancelled = run_stages(judged, agent_of(handing(GOOD, then=Turn("cancelled", ""))))
    assert cancelled.ending.status == "failed"


def test_a_stage_without_a_schema_costs_no_tool_server():
    async def body(ctx, seen):
        await ctx.task("plan", "Plan.")

    agent = agent_of("Done.")
    assert run_stages(body, agent).ending.status == "completed"
    assert agent.opened[0].tools is None
    assert "perdure_result" not in agent.texts[0]


def test_an_agent_without_such_servers_gets_no_tools():
    agent = FakeAgent('```json\n{"approved": true, "problems": []}\n```')
    run_stages(judged, agent)
    assert agent.opened[0].tools is None
    assert "perdure_result" not in agent.texts[0]


# --- who is asked instead


def test_another_agent_is_asked_when_the_first_fails_for_reasons_of_its_own():
    async def body(ctx, seen):
        seen.append(await ctx.task("plan", "Plan.", fallback_models=["agent:spare"]))
        seen.append((await ctx.task("more", "More.", agent="spare", context="fork", fork_from="plan")).text)

    first = FakeAgent(AgentError("429 Too Many Requests"))
    spare = FakeAgent("Planned.", "More.", name="spare", reopen=True)
    played = run_stages(body, first, spare)
    result, more = played.seen
    assert result.text == "Planned."
    assert result.attempts == 2
    assert "429" in result.warnings[0]
    assert spare.texts[0].startswith("Plan.")
    assert more == "More."
    assert spare.opened[1].reopen_id == result.session_id


def test_a_resume_goes_on_with_the_agent_that_talked_last():
    async def body(ctx, seen):
        seen.append((await ctx.task("plan", "Plan.", fallback_models=["agent:spare"])).text)

    def first():
        return FakeAgent(AgentError("429"), reopen=True)

    whole = run_stages(body, first(), FakeAgent("x", name="spare"))
    bound = [i for i, s in enumerate(whole.events) if type(s.event).__name__ == "SessionBound"]
    killed = run_stages(body, first(), FakeAgent("lost", name="spare"), crash_after=bound[1] + 1)
    spare, primary = FakeAgent("Went on.", name="spare", reopen=True), first()
    played = run_stages(body, primary, spare, events=killed.events)
    assert played.seen == ["Went on."]
    assert spare.opened[0].reopen_id == "spare-1"
    assert spare.texts[0].startswith("You were interrupted")
    assert not primary.opened


def test_an_agent_that_is_not_there_is_left_for_another_agent_not_for_another_model():
    async def body(ctx, seen):
        seen.append((await ctx.task("plan", "Plan.", fallback_models=["big", "agent:spare"])).text)

    gone = FakeAgent(name="fake")

    async def refuse(spec, emit):
        gone.opened.append(spec)
        raise AgentUnavailable("Not installed.")

    gone.open = refuse
    played = run_stages(body, gone, FakeAgent("Planned.", name="spare"))
    assert played.seen == ["Planned."]
    assert len(gone.opened) == 1


def test_an_unknown_agent_among_the_fallbacks_fails_before_anybody_is_asked():
    async def body(ctx, seen):
        await ctx.task("plan", "Plan.", fallback_models=["agent:nobody"])

    agent = FakeAgent("x")
    played = run_stages(body, agent)
    assert played.ending.failure.code == "agent_unavailable"
    assert not agent.opened


def test_the_fallbacks_of_an_agents_settings_hold_for_stages_that_name_none():
    async def body(ctx, seen):
        seen.append((await ctx.task("plan", "Plan.")).attempts)
        await ctx.task("own", "Own.", fallback_models=["other"])

    agent = FakeAgent(AgentError("503 overloaded"), "ok", AgentError("503 overloaded"), "ok")
    agent.fallbacks = ("small",)
    played = run_stages(body, agent)
    assert played.seen == [2]
    assert [spec.model for spec in agent.opened] == [None, "small", None, "other"]


# --- usage


def test_what_an_agent_does_not_report_is_marked_unknown():
    async def body(ctx, seen):
        async with ctx.stage("talk") as stage:
            await stage.prompt("One.")
            seen.append((await stage.prompt("Two.")).usage)
        seen.append(await ctx.usage())

    agent = FakeAgent(Turn("end_turn", "a", UNSET, TurnUsage(5, 6, None)), "b")
    played = run_stages(body, agent)
    for usage in played.seen:
        assert (usage.tokens_in, usage.tokens_out, usage.cost_nanos, usage.turns_unknown) == (5, 6, None, 1)
    assert [e.turns_unknown for e in played.of(UsageRecorded)] == [0, 1]
    again = run_stages(body, FakeAgent(), events=played.events[:-1])
    assert again.seen == played.seen


def test_the_tools_are_closed_when_the_stage_is_timed_out():
    async def body(ctx, seen):
        await ctx.task("judge", "Judge.", schema=Findings, timeout=5)

    played = run_stages(body, agent_of(after(100)))
    assert played.ending.failure.code == "timed_out"
    assert played.tools_left == 0
