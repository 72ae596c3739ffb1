"""A stand-in for every model: an HTTP server on loopback that does what the lines of a prompt tell it, one a request.

    SAY text               answers with the text
    WRITE path text        writes the file with whichever tool of the agent writes files
    RUN command            runs a shell command with whichever tool of the agent does that
    RESULT json            hands the value in through the engine's tool `perdure_result`
    CALL tool json         calls the tool whose name ends so
    SLOW                   answers word by word for a minute, or until nobody listens

Only lines of the last prompt count, and the first one that no tool has answered yet; a prompt without such lines, or
with all of them done, gets "Done.". A side question of the agent, a title perhaps, gets "Untitled"; it offers no tools
or is known by its beginning. Every request is kept in `asked`.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.bed.model_dialects import DIALECTS, Call, Conversation, Reply, Tool

PIECE_SECONDS = 0.05
MODELS = ("stand-in", "stand-in-2")
RESULT = "perdure_result"

_LINE = re.compile(r"^(SAY|WRITE|RUN|RESULT|CALL|SLOW)\b ?(.*)$", re.MULTILINE)
# How agents begin what they ask beside the conversation.
_SIDE = re.compile(r"\A(<session>|\[SUGGESTION MODE|Generate a title|Your task is to generate a very short title)")
_PATHS = ("filePath", "file_path", "absolute_path", "path", "file")
_CONTENTS = ("content", "contents", "text", "file_text")
_COMMANDS = ("command", "cmd")


@dataclass
class Asked:
    """A request for an answer. `is_aborted`: whoever asked hung up before the end."""

    path: str
    body: dict[str, Any]
    said: Conversation
    headers: dict[str, str] = field(default_factory=dict)
    is_aborted: bool = False
    is_answered: bool = False

    @property
    def prompt(self) -> str:
        """What a person said last."""
        return self.said.prompts[-1] if self.said.prompts else ""

    @property
    def is_side_question(self) -> bool:
        return not self.said.tools or bool(_SIDE.match(self.prompt))


class ModelServer:
    """Serves from `with` to its end. `base_url` ends in /v1, as OpenAI's does; `url` is what Anthropic's wants."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.unknown: list[str] = []  # paths nobody serves
        self._failures: list[tuple[str | None, int]] = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Connection)
        self._http.model = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.base_url = f"{self.url}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def fail(self, status: int, times: int = 1, model: str | None = None) -> None:
        """Answer the next requests (for that model, if given) with an HTTP error."""
        self._failures += [(model, status)] * times

    @property
    def turns(self) -> list[Asked]:
        """The requests that are no side questions."""
        return [one for one in self.asked if not one.is_side_question]

    def wait_for(self, is_so: Callable[[list[Asked]], bool], seconds: float = 60) -> None:
        """Return as soon as it is so of the turns asked."""
        with self._changed:
            if not self._changed.wait_for(lambda: is_so(self.turns), seconds):
                raise AssertionError(f"It never came true of {[one.prompt[-200:] for one in self.turns]}")

    # --- what connections call

    def add(self, one: Asked) -> None:
        with self._changed:
            self.asked.append(one)
            self._changed.notify_all()

    def end(self, one: Asked, *, is_answered: bool) -> None:
        with self._changed:
            one.is_answered, one.is_aborted = is_answered, not is_answered
            self._changed.notify_all()

    def failure_for(self, one: Asked) -> int | None:
        with self._changed:
            for index, (model, status) in enumerate(self._failures):
                if model in {None, one.said.model} and not one.is_side_question:
                    del self._failures[index]
                    return status
        return None

    def pause(self) -> bool:
        """Wait between two pieces; whether to stop."""
        return self._closing.wait(PIECE_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    model: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is nothing to tell."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Requests are kept, not printed."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0].endswith("/models"):
            self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})
        else:
            self._refuse_path()

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": 1})
            return
        dialect = next((one for one in DIALECTS if path.endswith(one.path)), None)
        if dialect is None:
            self._refuse_path()
            return
        model = self.server.model
        asked = Asked(path, body, dialect.parse(body), dict(self.headers))
        model.add(asked)
        if status := model.failure_for(asked):
            self._json(status, {"type": "error", "error": {"type": "stand_in", "message": f"told to fail: {status}"}})
            return
        reply = Reply("Untitled") if asked.is_side_question else decide(asked.said)
        try:
            if asked.said.streams:
                self._stream(reply, dialect.events(reply, asked.said), dialect.ends_with)
            else:
                self._json(200, dialect.whole(reply, asked.said))
            model.end(asked, is_answered=True)
        except (OSError, _HungUp):
            self.close_connection = True
            model.end(asked, is_answered=False)

    def _stream(self, reply: Reply, events: Iterator[tuple[str | None, dict[str, Any]]], end: bytes) -> None:
        self.close_connection = True  # the end of the stream is the end of the connection
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            line = f"event: {name}\n" if name else ""
            self.wfile.write(f"{line}data: {json.dumps(data)}\n\n".encode())
            self.wfile.flush()
            if reply.is_slow and (self.server.model.pause() or self._is_gone()):
                raise _HungUp
        self.wfile.write(end)

    def _is_gone(self) -> bool:
        """Whether the client has closed its end."""
        self.connection.setblocking(False)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        finally:
            self.connection.setblocking(True)

    def _json(self, status: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse_path(self) -> None:
        self.server.model.unknown.append(f"{self.command} {self.path}")
        self._json(404, {"type": "error", "error": {"type": "not_found_error", "message": f"no {self.path} here"}})


class _HungUp(Exception):
    """The client listens no more."""


# --- deciding


def decide(said: Conversation) -> Reply:
    """What the model says to this."""
    lines = _LINE.findall(said.prompts[-1]) if said.prompts else []
    if said.answered >= len(lines):
        return Reply("Done.")
    word, rest = lines[said.answered]
    match word:
        case "SAY":
            return Reply(rest)
        case "SLOW":
            return Reply("Slowly: ", is_slow=True)
        case _:
            call = _call(word, rest, said.tools)
            return Reply(call=call) if call else Reply(f"I have no tool for {word}: {[t.name for t in said.tools]}")


def _call(word: str, rest: str, tools: tuple[Tool, ...]) -> Call | None:
    script = next((tool for tool in tools if tool.is_free_form and tool.name == "exec"), None)
    if script is not None:
        return Call(script, _script(word, rest))
    if word == "WRITE":
        path, _, text = rest.partition(" ")
        return _writing(path, text, tools) or _running(f"printf %s {shlex.quote(text)} > {shlex.quote(path)}", tools)
    if word == "RUN":
        return _running(rest, tools)
    name, arguments = _named(word, rest)
    tool = next((tool for tool in tools if tool.name.endswith(name)), None)
    return Call(tool, arguments) if tool else None


def _named(word: str, rest: str) -> tuple[str, dict[str, Any]]:
    """The end of a tool's name, and its arguments. A result that is no object goes in as `value`."""
    name, _, text = (RESULT, "", rest) if word == "RESULT" else rest.partition(" ")
    value = json.loads(text or "{}")
    return name, value if isinstance(value, dict) else {"value": value}


def _script(word: str, rest: str) -> str:
    """JavaScript that does it, for agents whose only tool runs scripts that call the others."""
    if word == "WRITE":
        path, _, text = rest.partition(" ")
        patch = f"*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch"
        return f"text(await tools.apply_patch({json.dumps(patch)}))"
    if word == "RUN":
        return f"text(await tools.exec_command({json.dumps({'cmd': rest})}))"
    name, arguments = _named(word, rest)
    find = f"ALL_TOOLS.find(tool => tool.name.endsWith({json.dumps(name)}))"
    return f"text(await tools[{find}.name]({json.dumps(arguments)}))"


def _writing(path: str, text: str, tools: tuple[Tool, ...]) -> Call | None:
    for tool in tools:
        if re.search(r"write|create", tool.name, re.IGNORECASE):
            place, content = _first(tool, _PATHS), _first(tool, _CONTENTS)
            if place and content:
                return Call(tool, {place: path, content: text})
    return None


def _running(command: str, tools: tuple[Tool, ...]) -> Call | None:
    for tool in tools:
        if re.search(r"bash|shell|exec|terminal|run", tool.name, re.IGNORECASE) and (word := _first(tool, _COMMANDS)):
            is_list = tool.schema["properties"][word].get("type") == "array"
            arguments: dict[str, Any] = {word: ["bash", "-lc", command] if is_list else command}
            if "description" in tool.schema["properties"]:
                arguments["description"] = "as told"
            return Call(tool, arguments)
    return None


def _first(tool: Tool, names: tuple[str, ...]) -> str | None:
    properties = tool.schema.get("properties", {})
    return next((name for name in names if name in properties), None)
