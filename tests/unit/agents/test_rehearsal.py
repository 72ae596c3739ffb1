"""The rehearsal agent: repeatable, scripted where asked, and open about what it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from perdure.agents.rehearsal import RehearsalAgent, build
from perdure.agents.session import AgentEvent, SessionSpec, Turn, TurnUsage
from perdure.errors import AgentError, PerdureError, TimedOut
from perdure.failures import classify

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer"}},
    "required": ["ok", "n"],
}


def agent(script: dict[str, Any] | None = None, seed: int = 0) -> RehearsalAgent:
    return build("rehearsal", {"seed": seed, "script": script})


def spec(folder: Path, stage: str = "review", **more: Any) -> SessionSpec:
    return SessionSpec("run-1", "node-1", stage, folder, folder, **more)


async def ask(one: RehearsalAgent, at: SessionSpec, text: str = "Do it.") -> Turn:
    session = await one.open(at, lambda _event: None)
    try:
        return await session.prompt(text)
    finally:
        await session.close()


def test_answers_depend_on_seed_stage_turn_and_schema_alone(tmp_path: Path) -> None:
    async def values(seed: int, stage: str) -> list[Any]:
        one = agent(seed=seed)
        return [(await ask(one, spec(tmp_path, stage, schema=SCHEMA), f"prompt {n}")).value for n in range(5)]

    async def scenario() -> None:
        first = await values(1, "review")
        assert first == await values(1, "review")
        assert first != await values(2, "review")
        assert first != await values(1, "other")
        assert len({value["n"] for value in first}) > 1

    asyncio.run(scenario())


def test_without_a_schema_there_is_no_value_and_the_text_says_what_it_is(tmp_path: Path) -> None:
    turn = asyncio.run(ask(agent(), spec(tmp_path)))
    assert turn.value is UNSET
    assert turn.text.startswith("[rehearsal] Stage 'review', turn 1")
    assert turn.usage == TurnUsage(0, 0, 0)


def test_a_session_opens_with_a_note_that_no_model_is_asked(tmp_path: Path) -> None:
    said: list[AgentEvent] = []
    asyncio.run(agent().open(spec(tmp_path), said.append))
    assert [(event.kind, event.text) for event in said] == [("note", "This is a rehearsal: no model is asked.")]


def test_session_ids_come_from_run_and_node_and_reopening_keeps_the_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        one = await agent().open(spec(tmp_path), lambda _event: None)
        two = await agent(seed=5).open(spec(tmp_path), lambda _event: None)
        again = await agent().open(spec(tmp_path, reopen_id="rehearsal-x"), lambda _event: None)
        assert one.session_id == two.session_id
        assert again.session_id == "rehearsal-x"

    asyncio.run(scenario())


def test_the_script_gives_text_value_and_usage_untouched(tmp_path: Path) -> None:
    script = {"review": {"text": "Looks good.", "value": {"ok": 1}, "usage": {"tokens_in": 3}}}
    turn = asyncio.run(ask(agent(script), spec(tmp_path, schema=SCHEMA)))
    assert turn == Turn("end_turn", "Looks good.", {"ok": 1}, TurnUsage(3, None, None))


def test_the_script_writes_files_and_runs_commands_in_the_stages_folder(tmp_path: Path) -> None:
    script = {"review": {"files": {"a/b.txt": "hello"}, "commands": [["cp", "a/b.txt", "c.txt"]]}}
    asyncio.run(ask(agent(script), spec(tmp_path)))
    assert (tmp_path / "c.txt").read_text() == "hello"


def test_a_runs_own_script_and_seed_come_before_the_agents_and_turns_are_counted_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        one = agent({"*": {"text": "the agent's"}}, seed=1)
        assert (await ask(one, spec(tmp_path))).text == "the agent's"
        own = spec(tmp_path, options={"script": {"*": [{"text": "first"}, {"text": "second"}]}})
        assert (await ask(one, own)).text == "second"
        plain = agent()
        seeded = [
            (await ask(plain, spec(tmp_path, f"s{n}", schema=SCHEMA, options={"seed": n}))).value for n in range(3)
        ]
        assert seeded != [(await ask(agent(), spec(tmp_path, f"s{n}", schema=SCHEMA))).value for n in range(3)]

    asyncio.run(scenario())


def test_a_link_does_not_lead_the_script_out_of_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    with pytest.raises(AgentError, match="leads out of"):
        asyncio.run(ask(agent({"review": {"files": {"link/x": "x"}}}), spec(inside)))
    assert not list(outside.iterdir())


def test_a_command_that_fails_is_a_failure_with_its_evidence(tmp_path: Path) -> None:
    script = {"review": {"commands": [["sh", "-c", "echo broken >&2; exit 3"]]}}
    with pytest.raises(AgentError) as caught:
        asyncio.run(ask(agent(script), spec(tmp_path)))
    assert (caught.value.details["exit_code"], caught.value.details["stderr"]) == (3, "broken\n")


@pytest.mark.parametrize(
    ("code", "kind"), [("timed_out", TimedOut), ("rate_limited", AgentError), ("invalid_api_key", AgentError)]
)
def test_a_scripted_failure_is_classified_by_its_code(tmp_path: Path, code: str, kind: type[PerdureError]) -> None:
    script = {"review": {"fail": {"code": code, "message": "scripted"}}}
    with pytest.raises(kind, match="scripted") as caught:
        asyncio.run(ask(agent(script), spec(tmp_path)))
    assert classify(caught.value, "provider").code == code


def test_a_failed_turn_counts_so_that_a_retry_gets_the_next_entry(tmp_path: Path) -> None:
    async def scenario() -> None:
        one = agent({"review": [{"fail": {"code": "overloaded"}}, {"text": "fine now"}]})
        with pytest.raises(AgentError):
            await ask(one, spec(tmp_path))
        assert (await ask(one, spec(tmp_path))).text == "fine now"

    asyncio.run(scenario())


def test_a_delay_ends_at_once_when_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        session = await agent({"review": {"delay": 3600}}).open(spec(tmp_path), lambda _event: None)
        prompt = asyncio.create_task(session.prompt("wait"))
        await asyncio.sleep(0)
        await session.cancel()
        assert (await prompt).stop == "cancelled"

    asyncio.run(asyncio.wait_for(scenario(), 5))


def test_steering_reaches_a_running_turn_only_and_shows_in_its_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        session = await agent({"review": {"commands": [["cat"]]}}).open(spec(tmp_path), lambda _event: None)
        assert not await session.steer("too early")
        prompt = asyncio.create_task(session.prompt("go"))
        await asyncio.sleep(0)
        assert await session.steer("use tabs")
        text = (await prompt).text
        assert "Steered by: use tabs" in text
        assert "too early" not in text

    asyncio.run(scenario())
