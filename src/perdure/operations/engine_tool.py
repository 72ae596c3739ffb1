"""A tool of the engine, as an agent may call it: a name, a JSON Schema of its arguments, an answer in words.

The engine serves these over MCP (engine/toolserver.py). The law: who calls is known from the connection and never an
argument, so a tool object belongs to one session of one stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Reply(NamedTuple):
    """What the agent is told. An error is for the agent to correct; it never ends the stage by itself."""

    text: str
    is_error: bool = False


class EngineTool(Protocol):
    """One tool of one session."""

    name: str  # prefixed with perdure_, since agents have tools of the same plain names
    description: str
    input_schema: Mapping[str, Any]  # of an object

    async def call(self, arguments: Mapping[str, Any]) -> Reply:
        """Do it."""
        ...
