"""What the engine relies on of a session, with real coding agents whose model is the stand-in."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.registry import build_agent
from perdure.agents.session import AgentEvent, AgentSession, PermissionAsked, PermissionChosen, SessionSpec
from perdure.engine.toolserver import ToolServer
from perdure.errors import AgentError, InputInvalid
from perdure.failures import classify, facts
from perdure.operations.result_tool import ResultTool
from tests.agents.real import Real, processes_of
from tests.bed.model_server import Asked, ModelServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VERDICT = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
    "additionalProperties": False,
}


def typed(value: Any) -> Any:
    if not isinstance(value.get("approved"), bool):
        raise InputInvalid("approved must be true or false.")
    return value


class Bed:
    """One agent, its folder, and what it told."""

    def __init__(self, real: Real, model: ModelServer, folder: Path) -> None:
        self.real, self.model, self.folder = real, model, folder
        self.told: list[AgentEvent] = []

    async def open(self, reopen_id: str | None = None, **more: Any) -> AgentSession:
        spec_more = {key: more.pop(key) for key in ("tools", "permit") if key in more}
        agent = build_agent(self.real.name, self.real.pointed_at(self.model, **more))
        scratch = self.folder.parent / "scratch"
        spec = SessionSpec("run-1", "node-1", "work", self.folder, scratch, reopen_id=reopen_id, **spec_more)
        return await agent.open(spec, self.told.append)

    def kinds(self) -> set[str]:
        return {event.kind for event in self.told}

    async def until(self, is_so: Callable[[list[Asked]], bool]) -> None:
        await asyncio.to_thread(self.model.wait_for, is_so)

    async def until_heard(self, text: str) -> None:
        """Return when the agent says so; the test's time limit ends the wait."""
        while text not in "".join(event.text for event in self.told if event.kind == "text"):
            await asyncio.sleep(0.01)


@pytest.fixture
def bed(real: Real, model: ModelServer, tmp_path: Path) -> Bed:
    folder = tmp_path / "project"
    folder.mkdir()
    return Bed(real, model, folder)


def test_a_file_is_written_by_a_tool_of_the_agent_and_the_turn_is_told_and_counted(bed: Bed) -> None:
    async def scenario() -> None:
        session = await bed.open()
        turn = await session.prompt(f"Please:\nWRITE {bed.folder}/hello.txt hello you\nSAY It is written.")
        await session.close()
        assert (turn.stop, turn.text) == ("end_turn", "It is written.")
        assert turn.usage is not None
        assert turn.usage.tokens_in
        assert turn.usage.tokens_out

    asyncio.run(scenario())
    assert (bed.folder / "hello.txt").read_text().strip() == "hello you"
    assert {"tool_call", "tool_result", "text"} <= bed.kinds()


def test_a_value_is_handed_in_by_the_engines_tool_and_corrected_within_the_turn(bed: Bed) -> None:
    async def scenario() -> None:
        async with ToolServer() as server:
            result = ResultTool(VERDICT, typed)
            tools = await server.open([result])
            session = await bed.open(tools=tools)
            tools.begin_turn()
            turn = await session.prompt('Judge:\nRESULT {"approved": "maybe"}\nRESULT {"approved": true}')
            await session.close()
            assert turn.stop == "end_turn"
            assert tools.answered
            assert (result.value, result.unfit) == ({"approved": True}, 1)

    asyncio.run(scenario())


def test_cancel_in_mid_turn_ends_it_within_a_second_and_the_session_goes_on(bed: Bed) -> None:
    async def scenario() -> None:
        session = await bed.open()
        prompt = asyncio.create_task(session.prompt("Now:\nSLOW"))
        await bed.until_heard("Slowly")
        async with asyncio.timeout(1):
            await session.cancel()
            assert (await prompt).stop == "cancelled"
        await bed.until(lambda turns: all(one.is_aborted for one in turns if "SLOW" in one.prompt))
        assert (await session.prompt("Then:\nSAY again here")).text == "again here"
        await session.close()

    asyncio.run(scenario())


def test_a_session_is_reopened_after_its_agent_was_killed_in_mid_turn(bed: Bed, home: Path) -> None:
    async def scenario() -> None:
        session = await bed.open()
        await session.prompt("First:\nSAY the first answer")
        prompt = asyncio.create_task(session.prompt("Second:\nSLOW"))
        await bed.until_heard("Slowly")
        for pid in processes_of(home):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(AgentError) as caught:
            await prompt
        await session.close()
        assert facts(classify(caught.value, "provider").code).retryable

        again = await bed.open(reopen_id=session.session_id)
        assert again.session_id == session.session_id
        assert (await again.prompt("Third:\nSAY welcome back")).text == "welcome back"
        await again.close()

    asyncio.run(scenario())
    last = next(one for one in reversed(bed.model.turns) if "Third" in one.prompt)
    assert [sum(word in prompt for prompt in last.said.prompts) for word in ("First", "Third")] == [1, 1]
    assert sum("Second" in prompt for prompt in last.said.prompts) <= 1


def test_what_is_denied_is_not_done(bed: Bed) -> None:
    if not bed.real.asks:
        pytest.skip(f"{bed.real.name} is pinned to a mode that does not ask")

    async def scenario() -> None:
        session = await bed.open(permissions="deny")
        turn = await session.prompt(f"Please:\nWRITE {bed.folder}/hello.txt hello you")
        await session.close()
        assert turn.stop in {"end_turn", "cancelled", "refusal"}

    asyncio.run(scenario())
    assert not (bed.folder / "hello.txt").exists()
    assert any(event.kind == "note" and event.text.startswith("Denied") for event in bed.told)


def test_a_person_may_allow_what_the_agent_asks(bed: Bed) -> None:
    if not bed.real.asks:
        pytest.skip(f"{bed.real.name} is pinned to a mode that does not ask")
    asked: list[PermissionAsked] = []

    async def permit(question: PermissionAsked) -> PermissionChosen:
        asked.append(question)
        return PermissionChosen(next(one.option_id for one in question.options if one.kind == "allow_once"))

    async def scenario() -> None:
        session = await bed.open(permissions="ask", permit=permit)
        await session.prompt(f"Please:\nWRITE {bed.folder}/hello.txt hello you")
        await session.close()

    asyncio.run(scenario())
    assert (bed.folder / "hello.txt").read_text().strip() == "hello you"
    assert len(asked) == 1
