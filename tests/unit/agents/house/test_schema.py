"""What the agent says fits the protocol's own schema, as its official library has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelConnectionError

from perdure.agents.house import loop, updates
from tests.bed.house import Call, Script, served

schema = pytest.importorskip("acp.schema", reason="the protocol's library is not installed")


async def no_wait(_seconds: float) -> None:
    """No time between two tries."""


def check(model: str, value: Any) -> None:
    """Raise unless the value is one, with no field that the schema does not know."""
    read = getattr(schema, model).model_validate(value)
    known = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert known == value


def test_every_answer_and_update_fits_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "wait", no_wait)
    (tmp_path / "old.txt").write_text("a b")
    script = Script(
        [
            ["Hm", ModelConnectionError("m", "cut")],
            ModelConnectionError("m", "cut"),
            Call("write", {"path": "new.txt", "content": "x"}),
            Call("edit", {"path": "old.txt", "old": "a", "new": "c"}),
            Call("shell", {"command": "echo out"}),
            Call("read", {"path": "../no"}),
            "Done.",
        ]
    )

    async def scenario() -> None:
        async with served(script, tmp_path) as client:
            place = {"cwd": str(tmp_path), "mcpServers": []}
            check("InitializeResponse", await client.call("initialize", protocolVersion=1))
            opened = await client.call("session/new", **place)
            check("NewSessionResponse", opened)
            session_id = opened["sessionId"]
            chosen = await client.call(
                "session/set_config_option", sessionId=session_id, configId="model", value="test/third"
            )
            check("SetSessionConfigOptionResponse", chosen)
            check("PromptResponse", await client.prompt(session_id, "Go."))
            loaded = await client.call("session/load", sessionId=session_id, **place)
            check("LoadSessionResponse", loaded)
            for update in [*client.updates, updates.used(10, 200, 0.5)]:
                check("SessionNotification", {"sessionId": session_id, "update": update})
            for asked in client.asked:
                check("RequestPermissionRequest", asked)

    asyncio.run(scenario())
    assert not script.steps
