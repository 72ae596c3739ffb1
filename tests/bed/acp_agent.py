"""An agent that speaks ACP, for tests: plain JSON-RPC on standard input and output, steered by words in the prompt.

    WRITE path text     writes a file through fs/write_text_file and says what came of it
    READ path           reads one through fs/read_text_file and says it
    RUN command         runs a command through terminal/* and says its output
    MAY path            (MAY TERSE path: tells of the call first, and names it only in the question)
                        asks for permission to edit a file, and says which option was chosen
    TOOL name {json}    calls a tool of the first MCP server it was given by stdio, and says what came of it
    PLAN                tells a plan, thoughts, a tool call with a diff, its usage and something unknown
    SLOW                says "tick" for ever, every 20 ms, until it is cancelled
    DEAF                the same, and does not obey a cancel
    FLOOD               writes a megabyte to standard error, then answers
    GARBAGE             prints lines that are not of the protocol, for ever
    DIE                 complains and exits with code 7 in mid-turn
    FORK                starts a child in a session of its own that holds the pipes, says "forked", then as SLOW
    LATE                ends its turn first and says its message afterwards
    REFUSE text         answers the prompt with an error of that text
    SILENT              ends its turn without a message

Anything else is answered with "You said: ...". On the command line:

    --hang              never answers
    --garbage           prints something else than the protocol
    --login             wants authentication
    --refuse TEXT       answers every prompt with that error
    --state FOLDER      keeps sessions there, so that they can be loaded
    --resume            offers session/resume too
    --modes, --models   offers a choice of them
    --http              takes MCP servers by HTTP
    --version N         of the protocol
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Refused(Exception):
    """A JSON-RPC error answer."""


class Agent:
    """Reads in the main thread; each turn is a thread of its own."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.lock = threading.Lock()
        self.answers: dict[int, Any] = {}
        self.answered = threading.Condition()
        self.last_id = 0
        self.cancelled = threading.Event()
        self.sessions: dict[str, list[str]] = {}
        self.servers: list[Any] = []
        self.mode = "auto"
        self.model = "small"

    # --- wire

    def send(self, message: dict[str, Any]) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def ask(self, method: str, params: Any) -> Any:
        with self.answered:
            self.last_id += 1
            number = self.last_id
        self.send({"id": number, "method": method, "params": params})
        with self.answered:
            self.answered.wait_for(lambda: number in self.answers)
            return self.answers.pop(number)

    def update(self, session: str, **update: Any) -> None:
        self.send({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def say(self, session: str, text: str) -> None:
        self.update(session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def run(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                with self.answered:
                    self.answers[message["id"]] = message
                    self.answered.notify_all()
            elif message["method"] == "session/cancel":
                self.cancelled.set()
            elif message["method"] == "session/prompt":
                self.cancelled.clear()
                threading.Thread(target=self.turn, args=(message["id"], message["params"]), daemon=True).start()
            else:
                self.reply(message["id"], message["method"], message["params"])

    def reply(self, number: int, method: str, params: dict[str, Any]) -> None:
        if self.arguments.hang:
            return
        try:
            result = getattr(self, method.replace("/", "_"), self.unknown)(params)
        except Refused as refused:
            self.send({"id": number, "error": refused.args[0]})
        else:
            self.send({"id": number, "result": result})

    # --- methods

    def unknown(self, params: Any) -> None:
        raise Refused({"code": -32601, "message": "Method not found"})

    def initialize(self, params: Any) -> dict[str, Any]:
        can: dict[str, Any] = {"loadSession": bool(self.arguments.state)}
        can["mcpCapabilities"] = {"http": self.arguments.http, "sse": False}
        if self.arguments.resume:
            can["sessionCapabilities"] = {"resume": {}}
        return {
            "protocolVersion": self.arguments.version,
            "agentCapabilities": can,
            "agentInfo": {"name": "bed", "version": "1.0"},
            "authMethods": [{"id": "key", "name": "by key"}],
        }

    def authenticate(self, params: Any) -> dict[str, Any]:
        self.arguments.login = False
        return {}

    def session_new(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.arguments.login:
            raise Refused({"code": -32000, "message": "Authentication required"})
        session = f"bed-{os.getpid()}-{len(self.sessions)}"
        self.sessions[session] = []
        self.keep(session)
        return {"sessionId": session, **self.opened(params)}

    def session_load(self, params: dict[str, Any]) -> dict[str, Any]:
        self.known(params)
        for text in self.sessions[params["sessionId"]]:
            self.update(params["sessionId"], sessionUpdate="user_message_chunk", content={"type": "text", "text": text})
            self.say(params["sessionId"], "an old answer")
        return self.opened(params)

    def session_resume(self, params: dict[str, Any]) -> dict[str, Any]:
        self.known(params)
        return self.opened(params)

    def session_set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        self.mode = params["modeId"]
        return {}

    def session_set_config_option(self, params: dict[str, Any]) -> dict[str, Any]:
        self.model = params["value"]
        return {"configOptions": []}

    def opened(self, params: dict[str, Any]) -> dict[str, Any]:
        self.servers = params["mcpServers"]
        opened: dict[str, Any] = {}
        if self.arguments.modes:
            modes = [{"id": one, "name": one} for one in ("auto", "default")]
            opened["modes"] = {"currentModeId": self.mode, "availableModes": modes}
        if self.arguments.models:
            options = [{"value": one, "name": one} for one in ("maker/small", "maker/large")]
            choice = {"id": "model", "name": "Model", "category": "model", "type": "select"}
            opened["configOptions"] = [{**choice, "currentValue": "maker/small", "options": options}]
        return opened

    def known(self, params: dict[str, Any]) -> None:
        path = Path(self.arguments.state or ".") / f"{params['sessionId']}.json"
        if not path.is_file():
            raise Refused({"code": -32002, "message": "Resource not found", "data": {"uri": params["sessionId"]}})
        self.sessions[params["sessionId"]] = json.loads(path.read_text())

    def keep(self, session: str) -> None:
        if self.arguments.state:
            path = Path(self.arguments.state) / f"{session}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(f".{threading.get_ident()}")
            new.write_text(json.dumps(self.sessions[session]))
            new.replace(path)

    # --- turns

    def turn(self, number: int, params: dict[str, Any]) -> None:
        session, text = params["sessionId"], "".join(block.get("text", "") for block in params["prompt"])
        self.sessions[session].append(text)
        self.keep(session)
        word, _, rest = text.partition(" ")
        act = getattr(self, f"do_{word.strip('.').lower()}", None) if word.isupper() or word.isalpha() else None
        try:
            if self.arguments.refuse:
                self.do_refuse(session, self.arguments.refuse)
            if act is None or not word.strip(".").isupper():
                self.say(session, f"You said: {text}")
            else:
                act(session, rest)
        except Refused as refused:
            self.send({"id": number, "error": refused.args[0]})
            return
        stop = "cancelled" if self.cancelled.is_set() else "end_turn"
        usage = {"totalTokens": 30, "inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 15}
        self.send({"id": number, "result": {"stopReason": stop, "usage": usage}})
        if word.startswith("LATE"):
            self.say(session, "better late")

    def do_write(self, session: str, rest: str) -> None:
        path, _, text = rest.partition(" ")
        answer = self.ask("fs/write_text_file", {"sessionId": session, "path": path, "content": text})
        self.say(session, "Written." if "result" in answer else f"Refused: {answer['error']['message']}")

    def do_read(self, session: str, rest: str) -> None:
        answer = self.ask("fs/read_text_file", {"sessionId": session, "path": rest.strip()})
        self.say(session, answer["result"]["content"] if "result" in answer else answer["error"]["message"])

    def do_run(self, session: str, rest: str) -> None:
        made = self.ask("terminal/create", {"sessionId": session, "command": "sh", "args": ["-c", rest]})["result"]
        place = {"sessionId": session, **made}
        ended = self.ask("terminal/wait_for_exit", place).get("result")
        if ended is None:
            return
        output = self.ask("terminal/output", place)["result"]["output"]
        self.ask("terminal/release", place)
        self.say(session, f"{ended['exitCode']}: {output}")

    def do_may(self, session: str, rest: str) -> None:
        call = {"toolCallId": "may-1", "title": f"edit {rest}", "kind": "edit", "locations": [{"path": rest}]}
        if rest.startswith("TERSE "):
            rest = rest.removeprefix("TERSE ")
            self.update(session, sessionUpdate="tool_call", **{**call, "locations": [{"path": rest}]})
            call = {"toolCallId": "may-1", "title": "edit it"}
        options = [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        asked = {"sessionId": session, "toolCall": call, "options": options}
        outcome = self.ask("session/request_permission", asked)["result"]["outcome"]
        self.say(session, f"Chosen: {outcome.get('optionId', outcome['outcome'])}")

    def do_tool(self, session: str, rest: str) -> None:
        name, _, arguments = rest.partition(" ")
        self.say(session, call_tool(self.servers[0], name, json.loads(arguments.split("\n")[0] or "{}")))

    def do_plan(self, session: str, rest: str) -> None:
        entries = [{"content": "think", "status": "completed", "priority": "high"}]
        self.update(session, sessionUpdate="plan", entries=entries)
        self.update(session, sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "hm"})
        self.say(session, "First I look.")
        self.update(session, sessionUpdate="tool_call", toolCallId="c1", title="edit", kind="edit", status="pending")
        diff = {"type": "diff", "path": "/x/a.txt", "oldText": "a", "newText": "b"}
        told = {"toolCallId": "c1", "title": "edit a.txt", "status": "completed", "content": [diff]}
        self.update(session, sessionUpdate="tool_call_update", **told)
        self.update(session, sessionUpdate="usage_update", used=9, size=99, cost={"amount": 0.5, "currency": "USD"})
        self.update(session, sessionUpdate="of_a_later_version", what=[1, 2])
        self.say(session, f"Done in mode {self.mode} with {self.model}.")

    def do_slow(self, session: str, rest: str) -> None:
        while not self.cancelled.wait(0.02):
            self.say(session, "tick")

    def do_deaf(self, session: str, rest: str) -> None:
        while True:
            self.say(session, "tick")
            time.sleep(0.02)

    def do_flood(self, session: str, rest: str) -> None:
        for _ in range(1024):
            sys.stderr.write("x" * 1023 + "\n")
        self.say(session, "Flooded.")

    def do_garbage(self, session: str, rest: str) -> None:
        while True:
            sys.stdout.write("this is not the protocol\n")
            sys.stdout.flush()

    def do_die(self, session: str, rest: str) -> None:
        sys.stderr.write("the ceiling came down\n")
        sys.stderr.flush()
        os._exit(7)

    def do_fork(self, session: str, rest: str) -> None:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if rest.startswith("DIE"):
            self.do_die(session, "")
        self.say(session, "forked")
        self.do_slow(session, "")

    def do_late(self, session: str, rest: str) -> None:
        pass

    do_silent = do_late

    def do_refuse(self, session: str, rest: str) -> None:
        raise Refused({"code": -32603, "message": "Internal error", "data": {"details": rest}})


def call_tool(server: dict[str, Any], name: str, arguments: dict[str, Any]) -> str:
    """The text a tool of an MCP server gives that is started by a command."""
    env = {**os.environ, **{pair["name"]: pair["value"] for pair in server["env"]}}
    child = subprocess.Popen(
        [server["command"], *server["args"]], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bed", "version": "1"}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list", "params": {}},
        {"id": 3, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
    ]
    answer: dict[str, Any] = {}
    for message in messages:
        child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        child.stdin.flush()
        while "id" in message and (line := child.stdout.readline()):
            answer = json.loads(line)
            if answer.get("id") == message["id"]:
                break
    child.stdin.close()
    child.wait(10)
    if "error" in answer:
        return f"error: {answer['error']['message']}"
    return "".join(block.get("text", "") for block in answer["result"]["content"])


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("hang", "garbage", "login", "resume", "modes", "models", "http"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--state")
    parser.add_argument("--refuse")
    parser.add_argument("--version", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.garbage:
        print("Welcome! This program is for people.", flush=True)
        sys.stdin.read()
        return
    Agent(arguments).run()


if __name__ == "__main__":
    main()
