"""Models that fail: who is asked again, when, and what stands in the history then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelContextWindowExceededError

from perdure.agents.acp.peer import Refused
from perdure.agents.house import loop
from perdure.agents.house.history import DROPPED
from tests.bed.house import (
    PRIMARY,
    SECOND,
    Call,
    Script,
    begun,
    limited,
    new,
    prompts_of,
    results_of,
    run,
    served,
)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits between two tries, which take no time."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(loop, "wait", wait)
    return waited


def test_a_rate_limit_is_waited_out_and_the_prompt_is_there_once(tmp_path: Path, waits: list[float]) -> None:
    script = Script([limited(), limited(), "Here."])
    client, (turn,) = run(script, tmp_path, "Ask.")
    assert turn["stopReason"] == "end_turn"
    assert waits == [2.0, 4.0]
    assert script.by == [PRIMARY] * 3
    assert prompts_of(script) == ["Ask."]
    assert "rate_limited; asking it again in 2 s" in client.said("agent_thought_chunk")


def test_a_refused_key_moves_on_to_the_next_model_which_stays_first(tmp_path: Path, waits: list[float]) -> None:
    script = Script([limited(401), "Here.", "Again."])
    run(script, tmp_path, "Ask.", "More.")
    assert script.by == [PRIMARY, SECOND, SECOND]
    assert prompts_of(script) == ["Ask.", "More."]
    assert waits == [0.0]


def test_an_answer_that_breaks_off_is_dropped_and_marked_and_asked_again(tmp_path: Path) -> None:
    script = Script([Call("search", {}), ["Half an ans", limited(503)], "The whole answer."])
    client, _ = run(script, tmp_path, "Ask.")
    assert len(results_of(script)) == 1  # what was done stays done
    assert client.said() == "Half an ansThe whole answer."
    broken = next(n for n, one in enumerate(client.updates) if one.get("kind") == "think")
    assert client.updates[broken]["sessionUpdate"] == "tool_call"
    assert [one["content"]["text"] for one in client.updates[broken + 1 :] if "content" in one] == ["The whole answer."]


def test_what_is_too_much_for_the_model_is_made_less_before_another_is_asked(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("long line\n" * 200)
    too_much = ModelContextWindowExceededError("primary", "too long")
    script = Script([*[Call("read", {"path": "long.txt"})] * 4, too_much, "Still here."])
    run(script, tmp_path, "Read.")
    assert script.by == [PRIMARY] * 6
    assert [text == DROPPED for text in results_of(script)] == [True, False, False, False]


def test_when_no_model_answers_the_client_gets_the_code_and_the_session_goes_on(tmp_path: Path) -> None:
    script = Script([limited(401), limited(401), "Better now."])

    async def scenario() -> dict[str, Any]:
        async with served(script, tmp_path) as client:
            session_id = await new(client, tmp_path)
            with pytest.raises(Refused) as caught:
                await client.prompt(session_id, "Ask.")
            assert (await client.prompt(session_id, "Once more."))["stopReason"] == "end_turn"
            return dict(caught.value.data)

    assert asyncio.run(scenario())["code"] == "invalid_api_key"


def test_after_a_cancelled_turn_a_prompt_that_needs_two_tries_is_there_once(tmp_path: Path) -> None:
    script = Script([["a", asyncio.Event()], limited(), "Here."])

    async def scenario() -> None:
        async with served(script, tmp_path) as client:
            session_id = await new(client, tmp_path)
            turn = asyncio.create_task(client.prompt(session_id, "First."))
            await begun(client)
            assert client.peer is not None
            client.peer.notify("session/cancel", {"sessionId": session_id})
            assert (await turn)["stopReason"] == "cancelled"
            await client.prompt(session_id, "Second.")

    asyncio.run(scenario())
    assert prompts_of(script) == ["First.", "Second."]
