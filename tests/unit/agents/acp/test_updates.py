"""What an agent tells, as entries of the transcript: nothing lost, nothing believed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.agents.acp.updates import PROGRESS_SECONDS, TEXT_CHARS_MAX, Hearing
from perdure.agents.session import AgentEvent, TurnUsage


def chunk(text: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def call(**told: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", "toolCallId": "c1", **told}


def progress(**told: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c1", **told}


def heard(*updates: Any, hearing: Hearing | None = None) -> list[AgentEvent]:
    hearing = hearing or Hearing()
    return [event for update in updates for event in hearing.hear(update, 0.0)]


def test_the_final_message_is_what_was_said_after_the_last_tool_call() -> None:
    hearing = Hearing()
    heard(chunk("I will "), chunk("look."), call(title="read"), chunk("It is "), chunk("fine."), hearing=hearing)
    assert hearing.message == "It is fine."


def test_what_was_said_before_the_last_tool_call_counts_if_nothing_follows() -> None:
    hearing = Hearing()
    heard(chunk("All done."), call(title="hand in"), progress(status="completed"), hearing=hearing)
    assert hearing.message == "All done."


def test_thoughts_and_late_news_of_a_tool_do_not_cut_the_message() -> None:
    hearing = Hearing()
    heard(call(title="read"), chunk("It "), chunk("hm", "agent_thought_chunk"), hearing=hearing)
    heard(progress(status="completed"), chunk("is fine."), hearing=hearing)
    assert hearing.message == "It is fine."


def test_a_new_turn_starts_with_no_message() -> None:
    hearing = Hearing()
    heard(chunk("One."), hearing=hearing)
    hearing.begin_turn()
    assert hearing.message == ""


def test_a_tool_call_is_shown_when_its_input_becomes_known_and_ends_once() -> None:
    events = heard(
        call(title="edit", status="pending"),
        progress(status="in_progress"),
        progress(title="edit a.txt", rawInput={"path": "a.txt"}, locations=[{"path": "/x/a.txt"}]),
        progress(status="completed", content=[{"type": "content", "content": {"type": "text", "text": "ok"}}]),
        progress(status="completed"),
    )
    assert [(event.kind, event.text) for event in events] == [
        ("tool_call", "edit"), ("tool_call", "edit a.txt"), ("tool_result", "ok"),
    ]  # fmt: skip
    assert events[1].data == {"id": "c1", "kind": "other", "input": {"path": "a.txt"}, "paths": ["/x/a.txt"]}


def test_the_end_of_a_tool_call_that_was_never_begun_is_shown() -> None:
    events = heard(progress(title="read", status="failed", rawOutput={"error": "gone"}))
    assert [event.kind for event in events] == ["tool_call", "tool_result"]
    assert events[1].data == {"id": "c1", "title": "read", "status": "failed", "output": {"error": "gone"}}


def test_a_tool_call_that_goes_on_gives_a_sign_of_life_now_and_then() -> None:
    hearing = Hearing()
    hearing.hear(call(title="build"), 0.0)
    signs = [hearing.hear(progress(status="in_progress"), second) for second in range(100)]
    assert [second for second, events in enumerate(signs) if events] == [
        PROGRESS_SECONDS, 2 * PROGRESS_SECONDS, 3 * PROGRESS_SECONDS,
    ]  # fmt: skip


def test_long_texts_in_a_tool_calls_record_are_cut() -> None:
    (event,) = heard(call(title="write", rawInput={"content": "x" * (TEXT_CHARS_MAX + 1)}))
    assert event.data is not None
    assert event.data["input"]["content"].endswith("x\n[... cut]")


def test_an_unknown_update_is_kept_whole() -> None:
    update = {"sessionUpdate": "mood", "mood": {"is": "good"}}
    assert heard(update) == [AgentEvent("note", "The agent told of mood.", {"update": update})]


@settings(max_examples=50)
@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["sessionUpdate", "content", "toolCallId", "locations", "entries", "cost", "type", "text"]), inner
)), st.sampled_from(["tool_call", "tool_call_update", "plan", "usage_update", "agent_message_chunk", "x"]))  # fmt: skip
def test_no_update_breaks_the_hearing(update: Any, kind: str) -> None:
    if isinstance(update, dict):
        update["sessionUpdate"] = kind
    heard(update)


def status(kind: str) -> dict[str, Any]:
    return {"sessionUpdate": "session_info_update", "_meta": {"codex": {"threadStatus": {"type": kind}}}}


def test_an_agent_that_tells_its_models_failure_as_an_answer_is_seen_through() -> None:
    hearing = Hearing()
    heard(chunk("Warning."), status("active"), status("systemError"), chunk("429 too many"), hearing=hearing)
    heard(status("systemError"), status("idle"), hearing=hearing)
    assert (hearing.is_broken, hearing.message) == (True, "429 too many")


def test_an_agent_that_recovers_is_not_broken() -> None:
    hearing = Hearing()
    heard(status("systemError"), chunk("high demand"), status("active"), chunk("Fine."), hearing=hearing)
    assert not hearing.is_broken


# --- usage


def test_usage_is_the_answers_tokens_and_what_the_cost_grew_by_in_the_turn() -> None:
    hearing = Hearing()
    for total, expected in ((0.5, 500_000_000), (0.75, 250_000_000)):
        hearing.begin_turn()
        heard(
            {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": total, "currency": "USD"}},
            hearing=hearing,
        )
        told = {"inputTokens": 3, "cachedReadTokens": 4, "outputTokens": 5}
        assert hearing.usage(told) == TurnUsage(7, 5, expected)


def test_a_cost_that_is_not_told_in_the_turn_is_unknown() -> None:
    hearing = Hearing()
    heard(
        {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 1, "currency": "USD"}},
        hearing=hearing,
    )
    hearing.begin_turn()
    assert hearing.usage({"inputTokens": 0, "outputTokens": 0}) == TurnUsage(0, 0, None)


@pytest.mark.parametrize("told", [None, {}, {"inputTokens": "many"}, {"inputTokens": -1}, {"outputTokens": True}])
def test_usage_that_is_not_told_is_unknown(told: Any) -> None:
    assert Hearing().usage(told) is None


def test_a_cost_in_another_currency_is_unknown() -> None:
    hearing = Hearing()
    heard({"sessionUpdate": "usage_update", "cost": {"amount": 1, "currency": "EUR"}}, hearing=hearing)
    assert hearing.usage(None) is None


def test_the_first_cost_of_a_reopened_session_is_unknown_unless_its_past_is_told() -> None:
    def told(total: float) -> dict[str, Any]:
        return {"sessionUpdate": "usage_update", "cost": {"amount": total, "currency": "USD"}}

    unknown, known = Hearing(is_reopened=True), Hearing(is_reopened=True)
    heard(told(0.5), hearing=known)
    for hearing in (unknown, known):
        hearing.begin_turn()
        heard(told(0.75), hearing=hearing)
    assert unknown.usage(None) is None
    assert known.usage(None) == TurnUsage(cost_nanos=250_000_000)


def test_the_same_usage_told_again_is_shown_once() -> None:
    update = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    assert [event.text for event in heard(update, update)] == ["1 of 2 tokens in context"]
