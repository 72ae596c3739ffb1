"""Our side of the protocol: what the agent asks of us and tells us, for one stage.

Requests are answered whether or not the capability was advertised, since some agents ask without looking. The law: a
request reaches nothing outside the stage's folder, and nothing of a turn is left when it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from perdure.agents.acp import permissions
from perdure.agents.acp.files import read_text_file, write_text_file
from perdure.agents.acp.peer import METHOD_NOT_FOUND, Refused
from perdure.agents.acp.profiles import Policy
from perdure.agents.acp.terminals import Terminals
from perdure.agents.acp.updates import Hearing
from perdure.agents.session import AgentEvent, Emit, SessionSpec


class Client:
    """Answers the agent of one stage."""

    def __init__(self, spec: SessionSpec, emit: Emit, policy: Policy, env: Mapping[str, str]) -> None:
        """`env` is what commands see that the agent runs through us."""
        self.hearing = Hearing(is_reopened=spec.reopen_id is not None)
        self.is_reloading = False  # the agent tells the session's past, which the transcript has already
        self._spec, self._emit, self._policy = spec, emit, policy
        self._terminals = Terminals(spec.cwd, env)
        self._news = asyncio.Event()

    def note(self, text: str) -> None:
        """Say something of our own in the transcript."""
        self._emit(AgentEvent("note", text))

    def notified(self, method: str, params: Any) -> None:
        """The agent told something."""
        if method != "session/update" or not isinstance(params, Mapping):
            if not method.startswith("_"):  # extensions of its own, which the frames keep
                self._emit(AgentEvent("note", f"The agent sent {method}."))
            return
        update = params.get("update")
        if self.is_reloading and not (isinstance(update, Mapping) and update.get("sessionUpdate") == "usage_update"):
            return
        for event in self.hearing.hear(update, asyncio.get_running_loop().time()):
            self._emit(event)
        self._news.set()

    @property
    def has_result(self) -> bool:
        """Whether the agent has handed in a value, so that no message need follow."""
        tools = self._spec.tools
        return tools is not None and tools.result is not UNSET

    async def wait_news(self, seconds: float) -> None:
        """Return when something more was told, or after `seconds`."""
        self._news.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def requested(self, method: str, params: Any) -> Any:
        """The result of the agent's request. Raises Refused."""
        match method:
            case "session/request_permission":
                return await self._permit(params)
            case "fs/read_text_file":
                return await asyncio.to_thread(read_text_file, params, self._spec.cwd)
            case "fs/write_text_file":
                return await asyncio.to_thread(write_text_file, params, self._spec.cwd)
            case "terminal/create":
                return await self._terminals.create(params)
            case "terminal/output":
                return await self._terminals.output(params)
            case "terminal/wait_for_exit":
                return await self._terminals.wait_for_exit(params)
            case "terminal/kill":
                return await self._terminals.kill(params)
            case "terminal/release":
                return await self._terminals.release(params)
            case _:
                raise Refused(METHOD_NOT_FOUND, f"perdure does not answer {method}.", {"method": method})

    async def end_commands(self) -> None:
        """End what the agent runs through us; the client goes on."""
        await self._terminals.close()

    async def _permit(self, params: Any) -> dict[str, Any]:
        call = params.get("toolCall") if isinstance(params, Mapping) else None
        if isinstance(call, Mapping):  # the request may only name a call that was told of in full
            told = {key: value for key, value in call.items() if value is not None}
            params = {**params, "toolCall": {**self.hearing.call(call.get("toolCallId")), **told}}
        try:
            result, line = await permissions.answer(params, self._policy, self._spec.cwd, self._spec.permit)
        except asyncio.CancelledError:
            return permissions.CANCELLED  # the protocol's answer to a question of a cancelled turn
        self.note(line)
        return result
