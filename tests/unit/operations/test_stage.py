"""ctx.task and ctx.chain: what is asked, what counts as an answer, what a resume does (scenarios 14, 15, 17)."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from pydantic import BaseModel

from perdure.agents.session import Turn, TurnUsage
from perdure.errors import AgentError, AgentUnavailable, NotAvailable, PayloadInvalid, StageFailed, UsageError
from perdure.events import AttemptFailed, NodeFinished, NodeStarted, UsageRecorded
from perdure.operations.stage_prompt import CONTRACT
from tests.bed.stages import FakeAgent, after, run_stages


class Findings(BaseModel):
    approved: bool
    problems: list[str]


GOOD = '```json\n{"approved": true, "problems": []}\n```'


def types_of(played):
    return [type(s.event).__name__ for s in played.events]


def one_stage(**options):
    async def body(ctx, seen):
        result = await ctx.task("plan", "Do it.", **options)
        seen.append(result)
        return result.text

    return body


# --- one stage


def test_a_stage_gives_the_final_message_and_is_bound_before_it_is_prompted():
    agent = FakeAgent("Done.")
    played = run_stages(one_stage(), agent)
    assert played.ending.status == "completed"
    assert played.ending.value == "Done."
    kinds = types_of(played)
    assert kinds.index("NodeStarted") < kinds.index("SessionBound") < kinds.index("NodeFinished")
    assert not agent.open_sessions
    assert agent.texts == [f"Do it.\n\n{CONTRACT}"]
    assert played.transcripts["/:0"].said == [("prompt", agent.texts[0]), ("text", "Done.")]
    [result] = played.seen
    assert (result.name, result.session_id, result.replayed, result.attempts) == ("plan", "fake-1", False, 1)


def test_a_recorded_stage_replays_without_its_agent():
    first = run_stages(one_stage(schema=Findings), FakeAgent(GOOD))
    agent = FakeAgent()
    last = first.events[-1]
    again = run_stages(one_stage(schema=Findings), agent, events=[s for s in first.events if s is not last])
    assert again.ending.status == "completed"
    assert not agent.opened
    assert again.seen[0].value == first.seen[0].value == Findings(approved=True, problems=[])
    assert (again.seen[0].replayed, first.seen[0].replayed) == (True, False)


def test_an_empty_message_is_no_evidence_of_completion():
    played = run_stages(one_stage(), FakeAgent("  \n"))
    assert played.ending.status == "failed"
    assert "without a final message" in played.ending.failure.message


@pytest.mark.parametrize("stop", ["refusal", "max_tokens", "cancelled"])
def test_only_the_agents_own_end_of_turn_completes_a_stage(stop):
    agent = FakeAgent(Turn(stop, "half a mess"))
    played = run_stages(one_stage(), agent)
    assert played.ending.status == "failed"
    assert played.of(NodeFinished)[0].status == "failed"
    assert not agent.open_sessions


def test_a_failure_names_the_stage_and_its_place_and_may_be_caught():
    async def body(ctx, seen):
        try:
            await ctx.task("plan", "Do it.")
        except StageFailed as failed:
            seen.append((failed.position, failed.failure.code, failed.message))
        return "went on"

    played = run_stages(body, FakeAgent(AgentError("No quota left.", code="quota_exceeded")))
    assert played.ending.value == "went on"
    assert played.seen == [("/:0", "quota_limited", "Stage plan failed: No quota left.")]
    again = run_stages(body, FakeAgent(), events=played.events[:-1])
    assert again.seen == played.seen


def test_the_failure_that_ended_the_run_is_run_again_by_a_resume():
    first = run_stages(one_stage(), FakeAgent(AgentError("Broken.")))
    assert first.ending.failed == ("/:0",)
    agent = FakeAgent("Better.", reopen=True)
    second = run_stages(one_stage(), agent, events=first.events)
    assert second.ending.value == "Better."
    assert agent.opened[0].reopen_id is None
    assert agent.texts[0].startswith("Do it.")


# --- structured answers


def test_an_answer_that_does_not_fit_is_corrected_with_the_error_quoted():
    agent = FakeAgent("I like it.", '```json\n{"approved": "maybe", "problems": []}\n```', GOOD)
    played = run_stages(one_stage(schema=Findings), agent)
    [result] = played.seen
    assert result.value == Findings(approved=True, problems=[])
    assert "JSON Schema" in agent.texts[0]
    assert "no fenced JSON block" in agent.texts[1]
    assert "answer.approved" in agent.texts[2]
    assert result.warnings == ("The answer had to be corrected, times: 2.",)


def test_four_wrong_answers_fail_the_stage_quoting_the_last_error():
    wrong = '```json\n{"approved": true, "problems": 7}\n```'
    agent = FakeAgent("no", "no", "no", wrong)
    played = run_stages(one_stage(schema=Findings), agent)
    assert len(agent.prompts) == 4
    failure = played.ending.failure
    assert failure.code == "schema_unmet"
    assert "answer.problems" in failure.message


def test_an_agent_that_knows_schemas_gives_the_value_beside_its_message():
    agent = FakeAgent(Turn("end_turn", "", {"approved": False, "problems": ["x"]}), schema=True)
    played = run_stages(one_stage(schema=Findings), agent)
    assert played.seen[0].value.problems == ["x"]
    assert agent.opened[0].schema["type"] == "object"
    assert "JSON Schema" not in agent.texts[0]


def test_a_json_schema_gives_plain_values():
    played = run_stages(one_stage(schema={"type": "integer", "minimum": 3}), FakeAgent("2", "3"))
    assert played.seen[0].value == 3


# --- before anybody is asked


def test_a_missing_file_of_reads_fails_before_the_agent_is_asked(tmp_path):
    agent = FakeAgent()
    played = run_stages(one_stage(reads=["notes.md"]), agent, cwd=tmp_path)
    assert "notes.md" in played.ending.failure.message
    assert not agent.opened
    (tmp_path / "notes.md").write_text("x")
    again = run_stages(one_stage(reads=["notes.md"]), agent, cwd=tmp_path, events=played.events)
    assert again.ending.status == "completed"
    assert agent.texts[0].startswith("Read these files first: notes.md\n\nDo it.")


def test_a_stage_without_an_agent_fails_naming_what_to_do():
    played = run_stages(one_stage(), default=None)
    assert played.ending.failure.code == "agent_unavailable"
    assert "--agent" in played.ending.failure.message
    unknown = run_stages(one_stage(agent="clod"), FakeAgent())
    assert unknown.ending.failure.code == "agent_unavailable"
    assert "perdure doctor" in unknown.ending.failure.message


@pytest.mark.parametrize(
    ("name", "prompt", "options", "kind"),
    [
        ("plan", "x", {"modle": "m"}, UsageError),
        ("plan", "x", {"timeout": 0}, UsageError),
        ("plan", "x", {"group": "g"}, NotAvailable),
        ("plan", "x", {"context": "fork", "fork_from": "nobody"}, UsageError),
        ("", "x", {}, UsageError),
        ("plan", "", {}, UsageError),
    ],
)
def test_what_cannot_be_asked_is_refused_in_the_authors_code(name, prompt, options, kind):
    async def body(ctx, seen):
        with pytest.raises(kind) as refusal:
            ctx.task(name, prompt, **options)
        seen.append(refusal.value.message)

    agent = FakeAgent()
    played = run_stages(body, agent)
    assert played.ending.status == "completed"
    assert played.seen
    assert not agent.opened
    assert not played.of(NodeStarted)


def test_a_list_of_tools_is_refused_by_an_agent_that_cannot_be_held_to_it():
    played = run_stages(one_stage(tools=["read"]), FakeAgent())
    assert played.ending.failure.code == "agent_unavailable"


# --- limits of time and number


def test_a_stage_that_takes_too_long_is_timed_out_and_leaves_no_session():
    agent = FakeAgent(after(100, emit_every=5))
    played = run_stages(one_stage(timeout=30), agent)
    assert played.ending.failure.code == "timed_out"
    assert "30 s" in played.ending.failure.message
    assert not agent.open_sessions


def test_silence_is_timed_out_and_a_sign_of_life_is_not():
    silent = FakeAgent(after(601))
    played = run_stages(one_stage(), silent)
    assert played.ending.failure.code == "timed_out"
    assert not silent.open_sessions
    busy = run_stages(one_stage(), FakeAgent(after(5000, emit_every=500)))
    assert busy.ending.status == "completed"


def test_at_most_stages_max_sessions_are_open_at_once():
    agent = FakeAgent(*[after(10, "x") for _ in range(6)])

    async def body(ctx, seen):
        seen.extend(await ctx.parallel(ctx.task(f"s{n}", "Go.") for n in range(6)))

    played = run_stages(body, agent, stages_max=2)
    assert len(played.seen) == 6
    assert agent.most_open == 2


def test_a_long_message_is_cut_with_a_mark():
    played = run_stages(one_stage(max_output=10), FakeAgent("0123456789abc"))
    assert played.seen[0].text == "0123456789\n[... cut: 10 of 13 bytes; the transcript has the rest]"


# --- other models


def test_the_next_model_is_tried_after_a_failure_of_the_provider():
    agent = FakeAgent(AgentError("Slow down.", code="rate_limited"), "Fine.")
    played = run_stages(one_stage(model="a/one", fallback_models=["a/one", "b/two"]), agent)
    assert [spec.model for spec in agent.opened] == ["a/one", "b/two"]
    assert played.seen[0].attempts == 2
    assert "Slow down." in played.seen[0].warnings[0]
    assert [e.failure.code for e in played.of(AttemptFailed)] == ["rate_limited"]
    assert agent.texts[0] == agent.texts[1]


def test_another_model_is_not_tried_after_a_refusal():
    agent = FakeAgent(Turn("refusal", "I will not."), "Fine.")
    played = run_stages(one_stage(fallback_models=["b/two"]), agent)
    assert played.ending.status == "failed"
    assert len(agent.opened) == 1


def test_an_idle_model_gives_way_to_the_next():
    agent = FakeAgent(after(50), "Fine.")
    played = run_stages(one_stage(idle_timeout=20, fallback_models=["b/two"]), agent)
    assert played.ending.value == "Fine."


# --- results before


def test_each_stage_of_a_chain_gets_the_result_before_it_unless_it_names_its_own():
    agent = FakeAgent("one", "two", "three")

    async def body(ctx, seen):
        seen.extend(
            await ctx.chain(
                [
                    {"name": "a", "prompt": "A"},
                    {"name": "b", "prompt": "B after {previous}!"},
                    {"name": "c", "prompt": "C", "previous": "mine"},
                ]
            )
        )

    played = run_stages(body, agent)
    assert [r.text for r in played.seen] == ["one", "two", "three"]
    assert agent.texts[1].startswith('B after <result of="a">\none\n</result>!')
    assert agent.texts[2].startswith("C\n\n<result>\nmine\n</result>")
    sources = {e.source for e in played.of(NodeStarted)}
    assert all(source.startswith("test_stage.py:") for source in sources)


def test_a_chain_with_a_bad_item_runs_nothing():
    async def body(ctx, seen):
        with pytest.raises(UsageError):
            ctx.chain([{"name": "a", "prompt": "A"}, {"name": "b", "prompt": "B", "colour": "red"}])

    agent = FakeAgent()
    run_stages(body, agent)
    assert not agent.opened


# --- what it costs


def test_usage_is_recorded_in_absolute_counts_and_survives_a_resume():
    async def body(ctx, seen):
        await ctx.task("plan", "Plan.", schema=int)
        seen.append(await ctx.usage())

    def turn(text):
        return Turn("end_turn", text, UNSET, TurnUsage(10, 2, 100))

    played = run_stages(body, FakeAgent(turn("no"), turn("5")))
    assert [(e.number, e.tokens_in, e.cost_nanos) for e in played.of(UsageRecorded)] == [(1, 10, 100), (2, 20, 200)]
    assert (played.seen[0].tokens_in, played.seen[0].cost_nanos) == (20, 200)
    failed = run_stages(body, FakeAgent(turn("no"), turn("no"), turn("no"), turn("no")))
    second = run_stages(body, FakeAgent(turn("5")), events=failed.events)
    assert second.of(UsageRecorded)[-1].tokens_in == 50
    assert second.seen[0].tokens_in == 50


def test_an_error_of_the_engine_itself_is_not_called_the_agents():
    agent = FakeAgent(AgentUnavailable("Not logged in.", code="login_required"))
    played = run_stages(one_stage(), agent)
    assert (played.ending.status, played.ending.code) == ("blocked", "login_required")


def test_text_that_cannot_be_stored_is_refused_at_the_call_and_mended_in_an_answer():
    async def body(ctx, seen):
        with pytest.raises(PayloadInvalid):
            ctx.task("plan", "\ud800")
        seen.append((await ctx.task("plan", "Do it.")).text)

    assert run_stages(body, FakeAgent("a\ud800b")).seen == ["a?b"]
