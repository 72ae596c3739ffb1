"""The tool server with the official client, by both transports; who may connect, and what closing leaves."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from msgspec import UNSET
from pydantic import BaseModel

from perdure.engine.loop import LaneLoop
from perdure.engine.stagetools import SOCKET, TOKEN
from perdure.engine.toolserver import ToolServer
from perdure.operations.engine_tool import Reply
from perdure.operations.result_tool import ResultTool
from perdure.shapes import schema_of

pytestmark = pytest.mark.timeout(30)


class Findings(BaseModel):
    approved: bool
    problems: list[str]


class Broken:
    name, description, input_schema = "perdure_broken", "Fails.", {"type": "object"}

    async def call(self, arguments):
        raise RuntimeError("secret detail")


class Echo:
    name, description, input_schema = "perdure_echo", "Says it again.", {"type": "object"}

    async def call(self, arguments):
        return Reply(arguments["text"])


def on_our_loop(scenario):
    with asyncio.Runner(loop_factory=LaneLoop) as runner:
        return runner.run(scenario)


@asynccontextmanager
async def by_stdio(stage):
    argv, env = stage.stdio()
    async with Client(StdioServerParameters(command=argv[0], args=argv[1:], env=env)) as client:
        yield client


@asynccontextmanager
async def by_http(stage):
    url, headers = stage.http()
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


BOTH = pytest.mark.parametrize("connect", [by_stdio, by_http])


def result_tool():
    return ResultTool(*schema_of(Findings))


@BOTH
def test_an_agent_lists_the_tools_of_its_session_and_hands_in_a_value(connect):
    async def scenario():
        async with ToolServer() as server:
            stage = await server.open([result_tool()])
            stage.begin_turn()
            assert not stage.answered
            async with connect(stage) as client:
                listed = (await client.list_tools()).tools
                assert [tool.name for tool in listed] == ["perdure_result"]
                assert listed[0].input_schema["required"] == ["approved", "problems"]
                assert stage.answered
                unfit = await client.call_tool("perdure_result", {"approved": "maybe", "problems": []})
                assert unfit.is_error
                assert "approved" in unfit.content[0].text
                assert stage.result is UNSET
                fit = await client.call_tool("perdure_result", {"approved": True, "problems": []})
                assert not fit.is_error, fit
                again = await client.call_tool("perdure_result", {"approved": False, "problems": []})
                assert again.is_error
            assert stage.result == {"approved": True, "problems": []}

    on_our_loop(scenario())


@BOTH
def test_two_sessions_at_once_see_only_their_own_tools(connect):
    async def scenario():
        async with ToolServer() as server:
            first, second = await server.open([Echo()]), await server.open([result_tool()])
            async with connect(first) as one, connect(second) as other:
                assert [tool.name for tool in (await one.list_tools()).tools] == ["perdure_echo"]
                assert (await one.call_tool("perdure_echo", {"text": "hä?"})).content[0].text == "hä?"
                refused = await other.call_tool("perdure_echo", {"text": "x"})
                assert refused.is_error
                assert "perdure_result" in refused.content[0].text

    on_our_loop(scenario())


@BOTH
def test_a_tool_that_breaks_is_an_error_for_the_agent_without_our_details(connect, caplog):
    async def scenario():
        async with ToolServer() as server:
            stage = await server.open([Broken()])
            async with connect(stage) as client:
                reply = await client.call_tool("perdure_broken", {})
                assert reply.is_error
                assert "secret" not in reply.content[0].text

    on_our_loop(scenario())
    assert "secret detail" in caplog.text


async def talk(path: str, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_a_token_that_opens_nothing_is_refused_by_the_socket():
    async def scenario():
        async with ToolServer() as server:
            stage = await server.open([Echo()])
            path = stage.stdio()[1][SOCKET]
            assert b"opens no stage" in await talk(path, b"wrong\n")
            assert b"opens no stage" in await talk(path, b"\n")
            await stage.close()
            assert b"opens no stage" in await talk(path, stage.token.encode() + b"\n")

    on_our_loop(scenario())


def test_a_token_that_opens_nothing_is_refused_by_http():
    async def scenario():
        async with ToolServer() as server:
            stage = await server.open([Echo()])
            url, headers = stage.http()
            hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            async with create_mcp_http_client() as http:
                for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {stage.token}"}):
                    assert (await http.post(url, json=hello, headers=wrong)).status_code == 401
                rebound = {**headers, "Host": "evil.example"}
                assert (await http.post(url, json=hello, headers=rebound)).status_code == 421
                assert (await http.post(url + "/x", json=hello, headers=headers)).status_code == 404
                await stage.close()
                assert (await http.post(url, json=hello, headers=headers)).status_code == 401

    on_our_loop(scenario())


def test_the_token_is_in_the_environment_only_and_the_socket_is_for_this_user():
    async def scenario():
        async with ToolServer() as server:
            stage = await server.open([Echo()])
            argv, env = stage.stdio()
            assert env[TOKEN] == stage.token
            assert not any(stage.token in word for word in argv)
            folder = Path(env[SOCKET]).parent
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stage.http()[0].startswith("http://127.0.0.1:")
        assert not folder.exists()

    on_our_loop(scenario())


async def used_after_its_end(connect, stage):
    async with connect(stage) as client:
        await client.list_tools()
        await stage.close()
        async with asyncio.timeout(5):
            await client.call_tool("perdure_echo", {"text": "x"})


@BOTH
def test_closing_a_session_ends_its_connections_and_no_other(connect):
    async def scenario():
        async with ToolServer() as server:
            ended, stays = await server.open([Echo()]), await server.open([Echo()])
            async with connect(stays) as other:
                with pytest.raises(BaseException):  # noqa: B017  the client says it in its own ways
                    await used_after_its_end(connect, ended)
                assert (await other.call_tool("perdure_echo", {"text": "still"})).content[0].text == "still"

    on_our_loop(scenario())


def test_closing_the_server_leaves_no_task_and_may_be_done_twice():
    async def scenario():
        server = ToolServer()
        await server.close()
        stage = await server.open([Echo()])
        stage.http()
        async with by_http(stage) as client:
            await client.list_tools()
        talking = await asyncio.open_unix_connection(stage.stdio()[1][SOCKET])
        await server.close()
        await server.close()
        assert await talking[0].read() == b""
        talking[1].close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    on_our_loop(scenario())


def test_the_bridge_says_why_it_cannot_start(tmp_path):
    async def scenario(env):
        argv, given = ([], env)
        async with ToolServer() as server:
            stage = await server.open([Echo()])
            argv, real = stage.stdio()
            given = {**os.environ, **real, **env}
            process = await asyncio.create_subprocess_exec(
                *argv, env=given, cwd=tmp_path, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            _, said = await process.communicate()
            return process.returncode, said.decode()

    code, said = on_our_loop(scenario({TOKEN: "wrong"}))
    assert code == 1
    assert "opens no stage" in said
    code, said = on_our_loop(scenario({SOCKET: str(tmp_path / "gone")}))
    assert code == 1
    assert "cannot be reached" in said


def test_a_file_in_the_agents_folder_is_not_taken_for_a_module(tmp_path):
    (tmp_path / "argparse.py").write_text("raise SystemExit('taken')")

    async def scenario():
        async with ToolServer() as server:
            stage = await server.open([Echo()])
            argv, env = stage.stdio()
            where = StdioServerParameters(command=argv[0], args=argv[1:], env=env, cwd=tmp_path)
            async with Client(where) as client:
                assert (await client.call_tool("perdure_echo", {"text": "here"})).content[0].text == "here"

    on_our_loop(scenario())
