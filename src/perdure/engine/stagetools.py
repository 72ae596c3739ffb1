"""The engine's tools of one stage's session: what its agent is told, and what it has called.

It is what an agent's side knows as `EngineTools` (agents/session.py). The token is the whole authority: it names this
session and nothing else, lives as long as the session, and is never in an argument list, where others could read it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from perdure.ids import new_token
from perdure.operations.engine_tool import EngineTool, Reply
from perdure.operations.result_tool import ResultTool

SOCKET: Final = "PERDURE_TOOLS_SOCKET"  # variables that `perdure bridge` reads (surfaces/cli/bridge.py)
TOKEN: Final = "PERDURE_TOOLS_TOKEN"  # noqa: S105  the name of a variable

_BRIDGE: Final = ("-P", "-m", "perdure", "bridge")  # -P: a file in the agent's folder must not be taken for a module
_logger = logging.getLogger("perdure.engine")


class StageTools:
    """The tools of one session, and the ways to them."""

    def __init__(
        self,
        tools: Sequence[EngineTool],
        *,
        socket_path: str,
        url: Callable[[], str],
        on_close: Callable[[StageTools], Awaitable[None]],
    ) -> None:
        """`url` starts the HTTP door when it is first asked; `on_close` ends what is connected."""
        self.tools = tuple(tools)
        self.token = new_token()
        self.answered = False
        self._socket_path, self._url, self._on_close = socket_path, url, on_close

    # --- for the agent's side

    def stdio(self) -> tuple[list[str], dict[str, str]]:
        """See agents.session.EngineTools."""
        return [sys.executable, *_BRIDGE], {SOCKET: self._socket_path, TOKEN: self.token}

    def http(self) -> tuple[str, dict[str, str]] | None:
        """See agents.session.EngineTools."""
        return self._url(), {"Authorization": f"Bearer {self.token}"}

    @property
    def result(self) -> Any:
        """See agents.session.EngineTools."""
        tool = self._result_tool()
        return UNSET if tool is None else tool.value

    def begin_turn(self) -> None:
        """See agents.session.EngineTools."""
        tool = self._result_tool()
        if tool is not None:
            tool.begin_turn()

    # --- for the wire

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """What a tool answers. A failure of ours is an error for the agent and a line in the log, never a hang."""
        self.answered = True
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            names = ", ".join(tool.name for tool in self.tools) or "none"
            return Reply(f"There is no tool {name!r} here. Tools: {names}.", is_error=True)
        try:
            return await tool.call(arguments)
        except Exception:  # author callback: the schema's own validators may raise anything
            _logger.exception("The tool %s failed", name)
            return Reply("The tool failed. Go on without it.", is_error=True)

    async def close(self) -> None:
        """The session is over: the token opens nothing any more. Safe twice."""
        await self._on_close(self)

    def _result_tool(self) -> ResultTool | None:
        return next((tool for tool in self.tools if isinstance(tool, ResultTool)), None)
