"""The agent over the protocol: sessions, turns, tools, questions, failures. The model is a script."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ContentFilterError
from pydantic_ai.messages import ModelRequest

from perdure.agents.acp.peer import Refused
from perdure.agents.house import tools
from perdure.agents.house.session import GUIDE
from perdure.host.census import mark_of, marked_with
from perdure.host.identity import here
from tests.bed.house import Call, Client, Script, begun, new, prompts_of, results_of, run, served


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Any:
    yield
    assert marked_with(mark_of(here())) == ()


# --- turns


def test_a_turn_streams_its_answer_and_says_what_it_used(tmp_path: Path) -> None:
    client, (turn,) = run(Script([["Hel", "lo."]]), tmp_path, "Greet me.")
    assert turn["stopReason"] == "end_turn"
    assert turn["usage"]["inputTokens"] > 0
    assert turn["usage"]["outputTokens"] > 0
    assert client.said() == "Hello."
    assert [one["sessionUpdate"] for one in client.updates][:2] == ["agent_message_chunk"] * 2


def test_a_later_turn_knows_the_earlier_ones(tmp_path: Path) -> None:
    script = Script(["One.", "Two."])
    run(script, tmp_path, "First.", "Second.")
    assert prompts_of(script) == ["First.", "Second."]


def test_a_tool_changes_a_file_after_the_client_was_asked_and_is_shown_the_change(tmp_path: Path) -> None:
    script = Script([Call("write", {"path": "a.txt", "content": "hi\n"}), "Written."])
    client, _ = run(script, tmp_path, "Write it.")
    assert (tmp_path / "a.txt").read_text() == "hi\n"
    (asked,) = client.asked
    assert asked["toolCall"]["locations"] == [{"path": str(tmp_path / "a.txt")}]
    assert [option["kind"] for option in asked["options"]] == [
        "allow_once", "allow_always", "reject_once", "reject_always",
    ]  # fmt: skip
    told = [one for one in client.updates if "tool_call" in one["sessionUpdate"]]
    assert [one["status"] for one in told] == ["in_progress", "in_progress", "completed"]
    assert told[1]["content"] == [{"type": "diff", "path": str(tmp_path / "a.txt"), "newText": "hi\n"}]
    assert results_of(script) == ["Created a.txt, 3 bytes."]


def test_what_is_denied_is_not_done_and_the_model_learns_it(tmp_path: Path) -> None:
    script = Script([Call("shell", {"command": "touch done"}), "I may not."])

    async def scenario() -> str:
        async with served(script, tmp_path) as client:
            client.allow = lambda _asked: "reject_once"
            turn = await client.prompt(await new(client, tmp_path), "Run it.")
            assert [one["status"] for one in client.updates if "tool_call" in one["sessionUpdate"]][-1] == "failed"
            return str(turn["stopReason"])

    assert asyncio.run(scenario()) == "end_turn"
    assert not (tmp_path / "done").exists()
    assert results_of(script)[0].startswith("Not allowed: touch done.")


def test_a_question_called_off_ends_the_turn_as_cancelled(tmp_path: Path) -> None:
    async def scenario() -> Any:
        async with served(Script([Call("shell", {"command": "touch done"})]), tmp_path) as client:
            client.allow = lambda _asked: None
            return await client.prompt(await new(client, tmp_path), "Run it.")

    assert asyncio.run(scenario())["stopReason"] == "cancelled"
    assert not (tmp_path / "done").exists()


def test_in_mode_auto_nobody_is_asked(tmp_path: Path) -> None:
    async def scenario() -> Client:
        script = Script([Call("write", {"path": "a", "content": "x"}), "Done."])
        async with served(script, tmp_path) as client:
            session_id = await new(client, tmp_path)
            await client.call("session/set_mode", sessionId=session_id, modeId="auto")
            await client.prompt(session_id, "Write.")
            return client

    assert asyncio.run(scenario()).asked == []
    assert (tmp_path / "a").exists()


def test_a_command_sees_no_key_and_its_failure_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-commands")
    script = Script([Call("shell", {"command": "env | grep -c KEY; echo oops >&2; pwd; exit 3"}), "It failed."])
    run(script, tmp_path, "Run it.")
    assert results_of(script) == [f"0\n{tmp_path}\n[stderr]\noops\n[exit code 3]"]


def test_a_silent_command_shows_that_it_lives_and_a_loud_one_is_shown_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "ALIVE_SECONDS", 0.005)
    monkeypatch.setattr(tools, "SHOWN_CHARS_MAX", 10)
    script = Script([Call("shell", {"command": "sleep 0.05; seq 100"}), "Done."])
    client, _ = run(script, tmp_path, "Run it.")
    told = [one for one in client.updates if one.get("status") == "in_progress"]
    assert any("content" not in one for one in told[1:])
    shown = "".join(one["content"][0]["content"]["text"] for one in told if "content" in one)
    assert shown == "1\n2\n3\n4\n5\n"
    assert results_of(script)[0].endswith("99\n100")


def test_a_tool_that_refuses_does_not_end_the_turn(tmp_path: Path) -> None:
    calls = [Call("read", {"path": f"../{n}"}) for n in range(12)]
    script = Script([*calls, "I cannot."])
    _, (turn,) = run(script, tmp_path, "Read it.")
    assert turn["stopReason"] == "end_turn"
    assert "outside" in results_of(script)[-1]


def test_the_guide_of_the_folder_reaches_the_model(tmp_path: Path) -> None:
    (tmp_path / GUIDE).write_text("Use tabs, always.")
    script = Script(["Yes."])
    run(script, tmp_path, "Hello.")
    request = script.asked[0][0]
    assert isinstance(request, ModelRequest)
    assert "Use tabs, always." in str(request.instructions)


def test_too_many_requests_in_a_turn_end_it(tmp_path: Path) -> None:
    script = Script([Call("search", {}) for _ in range(9)])
    _, (turn,) = run(script, tmp_path, "Go on.", steps_max=3)
    assert turn["stopReason"] == "max_turn_requests"
    assert len(script.asked) == 3


def test_a_refusal_of_the_model_is_one(tmp_path: Path) -> None:
    _, (turn,) = run(Script([ContentFilterError("no")]), tmp_path, "Hello.")
    assert turn["stopReason"] == "refusal"


# --- cancelling, closing, reopening


def test_cancel_ends_a_turn_and_its_command_and_the_session_goes_on(tmp_path: Path) -> None:
    script = Script([Call("shell", {"command": "setsid sleep 1000 & echo up; exec sleep 1000"}), "Went on."])

    async def scenario() -> None:
        async with served(script, tmp_path) as client:
            session_id = await new(client, tmp_path)
            turn = asyncio.create_task(client.prompt(session_id, "Run it."))
            while not any("up" in str(one.get("content")) for one in client.updates):
                await asyncio.sleep(0.001)
            assert client.peer is not None
            client.peer.notify("session/cancel", {"sessionId": session_id})
            assert (await turn)["stopReason"] == "cancelled"
            assert marked_with(mark_of(here())) == ()
            assert (await client.prompt(session_id, "Go on."))["stopReason"] == "end_turn"

    asyncio.run(scenario())
    assert prompts_of(script) == ["Run it.", "Go on."]
    assert len(results_of(script)) == 1  # the command's call has an answer: it was interrupted


def test_the_end_of_the_input_ends_the_turn_and_its_command(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(Script([Call("shell", {"command": "exec sleep 1000"})]), tmp_path) as client:
            session_id = await new(client, tmp_path)
            turn = asyncio.create_task(client.prompt(session_id, "Run it."))
            await begun(client)
        await asyncio.gather(turn, return_exceptions=True)

    asyncio.run(scenario())


def test_one_turn_at_a_time(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def scenario() -> None:
        async with served(Script([["a", gate, "b"]]), tmp_path) as client:
            session_id = await new(client, tmp_path)
            turn = asyncio.create_task(client.prompt(session_id, "First."))
            await begun(client)
            with pytest.raises(Refused, match="turn under way"):
                await client.prompt(session_id, "Second.")
            gate.set()
            assert (await turn)["stopReason"] == "end_turn"

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_another_process_goes_on_with_a_session(tmp_path: Path, method: str) -> None:
    run(Script([Call("search", {}), "Noted."]), tmp_path, "Remember 7.")
    (file,) = (tmp_path / "sessions").glob("*.jsonl")
    script = Script(["It was 7."])

    async def scenario() -> list[str]:
        async with served(script, tmp_path) as client:
            await client.call(method, sessionId=file.stem, cwd=str(tmp_path), mcpServers=[])
            told = [one["sessionUpdate"] for one in client.updates]
            await client.prompt(file.stem, "What was it?")
            return told

    told = asyncio.run(scenario())
    assert prompts_of(script) == ["Remember 7.", "What was it?"]
    shown = ["user_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk"]
    assert told == (shown if method == "session/load" else [])


def test_a_session_that_is_not_there_cannot_be_loaded_or_prompted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(Script([]), tmp_path) as client:
            with pytest.raises(Refused, match="Start a new one"):
                await client.call("session/load", sessionId="house-x", cwd=str(tmp_path), mcpServers=[])
            with pytest.raises(Refused, match="load it first"):
                await client.prompt("house-x", "Hello.")
            session_id = await new(client, tmp_path)
            await client.call("session/close", sessionId=session_id)
            with pytest.raises(Refused, match="load it first"):
                await client.prompt(session_id, "Hello.")

    asyncio.run(scenario())


# --- the protocol's border


def test_another_model_may_be_chosen(tmp_path: Path) -> None:
    script = Script(["Here."])

    async def scenario() -> Any:
        async with served(script, tmp_path) as client:
            session_id = await new(client, tmp_path)
            answer = await client.call(
                "session/set_config_option", sessionId=session_id, configId="model", value="test/third:high"
            )
            await client.prompt(session_id, "Hello.")
            return answer["configOptions"][0]

    option = asyncio.run(scenario())
    assert option["currentValue"] == "test/third:high"
    assert str(script.by[0]) == "test/third:high"


@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("session/new", {"cwd": "relative", "mcpServers": []}, "absolute"),
        ("session/new", {"mcpServers": []}, "needs a text in 'cwd'"),
        ("session/nothing", {}, "There is no session/nothing"),
        ("session/prompt", {"sessionId": "x", "prompt": []}, "no session x"),
        ("session/set_mode", {"sessionId": "?", "modeId": "wild"}, "no mode 'wild'"),
        ("session/set_config_option", {"sessionId": "?", "configId": "colour", "value": "red"}, "no option 'colour'"),
        ("session/set_config_option", {"sessionId": "?", "configId": "model", "value": "gpt"}, "names no model"),
        ("session/prompt", {"sessionId": "?", "prompt": "text"}, "list of blocks"),
        ("session/prompt", {"sessionId": "?", "prompt": [{"type": "image"}]}, "not understood"),
        ("session/prompt", {"sessionId": "?", "prompt": [{"type": "text", "text": " "}]}, "empty"),
    ],
)
def test_a_wrong_request_is_refused_in_words(tmp_path: Path, method: str, params: dict[str, Any], why: str) -> None:
    async def scenario() -> None:
        async with served(Script([]), tmp_path) as client:
            session_id = await new(client, tmp_path)
            filled = {key: session_id if value == "?" else value for key, value in params.items()}
            with pytest.raises(Refused, match=why):
                await client.call(method, **filled)

    asyncio.run(scenario())
