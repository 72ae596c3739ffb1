"""What perdure sends fits the protocol's own schema, as its official library has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp.session import AcpSession
from tests.bed.acp import Bed

schema = pytest.importorskip("acp.schema", reason="the protocol's library is not installed")

REQUESTS = {
    "initialize": "InitializeRequest",
    "authenticate": "AuthenticateRequest",
    "session/new": "NewSessionRequest",
    "session/load": "LoadSessionRequest",
    "session/resume": "ResumeSessionRequest",
    "session/set_mode": "SetSessionModeRequest",
    "session/set_config_option": "SetSessionConfigOptionSelectRequest",
    "session/prompt": "PromptRequest",
    "session/cancel": "CancelNotification",
}
ANSWERS = {
    "session/request_permission": "RequestPermissionResponse",
    "fs/read_text_file": "ReadTextFileResponse",
    "fs/write_text_file": "WriteTextFileResponse",
    "terminal/create": "CreateTerminalResponse",
    "terminal/output": "TerminalOutputResponse",
    "terminal/wait_for_exit": "WaitForTerminalExitResponse",
    "terminal/release": "ReleaseTerminalResponse",
}


class Tools:
    """Engine tools that nobody serves."""

    result: Any = None
    answered = False

    def stdio(self) -> tuple[list[str], dict[str, str]]:
        return ["perdure", "bridge"], {}

    def http(self) -> tuple[str, dict[str, str]] | None:
        return "http://127.0.0.1:1/mcp", {}

    def begin_turn(self) -> None:
        pass


@pytest.mark.slow
def test_every_frame_of_ours_fits_the_schema(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    state = str(tmp_path / "state")

    async def first(session: AcpSession) -> str:
        for prompt in ("WRITE a.txt text", "READ a.txt", "RUN echo x", "MAY a.txt", "PLAN"):
            await session.prompt(prompt)
        slow = asyncio.create_task(session.prompt("SLOW"))
        while bed.heard[-1].text != "tick":
            await asyncio.sleep(0.01)
        await session.cancel()
        await slow
        return session.session_id

    flags = ["--state", state, "--modes", "--models", "--login"]
    settings = {"mode": "default", "model": "large", "auth": "key"}
    session_id = bed.play(first, *flags, spec={"tools": Tools()}, **settings)
    sent, came = bed.frames("out"), bed.frames("in")
    for more in ([], ["--resume", "--http"]):
        bed.scratch = bed.scratch / "again"
        bed.say("Hello.", *flags[:-1], *more, spec={"reopen_id": session_id, "tools": Tools()}, **settings)
        sent += bed.frames("out")

    asked = {frame["id"]: frame["method"] for frame in came if "method" in frame and "id" in frame}
    checked = set()
    for frame in sent:
        name = REQUESTS.get(frame["method"]) if "method" in frame else ANSWERS.get(asked[frame["id"]])
        assert name is not None, frame
        body = _unblanked(frame["params"] if "method" in frame else frame["result"])
        getattr(schema, name).model_validate(body)
        checked.add(name)
    assert checked == {*REQUESTS.values(), *ANSWERS.values()}


def _unblanked(value: Any) -> Any:
    """The frame with lists where the record keeps none, because they may hold secrets."""
    if isinstance(value, dict):
        return {key: [] if inner == "[redacted]" else _unblanked(inner) for key, inner in value.items()}
    return [_unblanked(inner) for inner in value] if isinstance(value, list) else value
