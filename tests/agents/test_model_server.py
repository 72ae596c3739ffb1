"""The stand-in model itself: what real agents are tested against must be right first."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.bed.model_server import ModelServer

SCHEMA = {"type": "object", "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}}}
CHAT_TOOL = {"type": "function", "function": {"name": "write_file", "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": "write_file", "parameters": SCHEMA}
MESSAGES_TOOL = {"name": "write_file", "input_schema": SCHEMA}
TOLD = "Please do this:\nWRITE a.txt hello you\nSAY It is done."

ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": TOLD}], "tools": [CHAT_TOOL]}),
    "responses": ("/v1/responses", {"input": [{"role": "user", "content": TOLD}], "tools": [RESPONSES_TOOL]}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": TOLD}], "tools": [MESSAGES_TOOL]}),
}
RESULTS: dict[str, dict[str, Any]] = {
    "chat": {"role": "tool", "content": "ok", "tool_call_id": "call_1_0"},
    "responses": {"type": "function_call_output", "output": "ok", "call_id": "call_1_0"},
    "messages": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1_0", "content": "ok"}]},
}


def ask(server: ModelServer, dialect: str, stream: bool, *more: dict[str, Any]) -> tuple[int, str]:
    path, body = ASKS[dialect]
    key = "input" if "input" in body else "messages"
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    try:
        text = json.dumps(body | {key: [*body[key], *more], "model": "m", "stream": stream})
        connection.request("POST", path, text)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ASKS)
def test_the_lines_of_a_prompt_are_done_one_a_request(dialect: str, stream: bool) -> None:
    with ModelServer() as server:
        first = ask(server, dialect, stream)[1]
        second = ask(server, dialect, stream, RESULTS[dialect])[1]
    assert "write_file" in first
    assert json.loads(json.dumps("hello you"))[1:-1] in first
    assert "write_file" not in second
    assert "done." in second
    assert [one.said.answered for one in server.turns] == [0, 1]
    assert all(one.is_answered for one in server.turns)


@pytest.mark.parametrize("dialect", ASKS)
def test_a_slow_answer_ends_when_nobody_listens(dialect: str) -> None:
    path, body = ASKS[dialect]
    slow = json.loads(json.dumps(body).replace("WRITE a.txt hello you", "SLOW")) | {"model": "m", "stream": True}
    with ModelServer() as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        connection.request("POST", path, json.dumps(slow))
        answer = connection.getresponse()
        assert answer.read(10)
        answer.close()
        connection.close()
        server.wait_for(lambda turns: bool(turns) and turns[-1].is_aborted, 5)


def test_failures_are_answered_as_often_as_told_and_only_for_their_model() -> None:
    with ModelServer() as server:
        server.fail(429, times=2, model="m")
        server.fail(500, model="other")
        assert [ask(server, "chat", stream=False)[0] for _ in range(3)] == [429, 429, 200]


def test_a_request_without_tools_is_a_side_question() -> None:
    with ModelServer() as server:
        path, body = ASKS["chat"]
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        connection.request("POST", path, json.dumps({**body, "tools": [], "model": "m"}))
        assert "Untitled" in connection.getresponse().read().decode()
        connection.close()
        assert server.turns == []
        assert len(server.asked) == 1


def test_an_unknown_path_is_refused_and_noted() -> None:
    with ModelServer() as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        connection.request("GET", "/telemetry")
        assert connection.getresponse().status == 404
        connection.close()
        assert server.unknown == ["GET /telemetry"]
