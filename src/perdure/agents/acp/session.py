"""One conversation with an agent over ACP: a process from open to close, one turn at a time.

    prompt -> session/prompt --(answer)--> Turn
                 |--(cancel)--> session/cancel --(answer within CANCEL_SECONDS)--> cancelled, the session goes on
                 |                              --(silence)--> the group is killed, cancelled
                 '--(the agent ends)--> AgentError with its exit code and last words

A killed agent's session is lost to this object, not to the world: it can be reopened by its id.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from perdure.agents.acp.client import Client
from perdure.agents.acp.connection import Connection, unavailable
from perdure.agents.acp.opening import Agreed
from perdure.agents.acp.peer import PeerLost, Refused
from perdure.agents.session import Stop, Turn, Turns
from perdure.errors import AgentError, AgentProtocolError

CANCEL_SECONDS: Final = 2.0  # for an agent to end its turn when told to
LATE_SECONDS: Final = 1.0  # for a message that comes after the end of its turn

_STOPS: Final[dict[Any, Stop]] = {
    "end_turn": "end_turn",
    "cancelled": "cancelled",
    "refusal": "refusal",
    "max_tokens": "max_tokens",
}


class AcpSession:
    """A session with one agent."""

    def __init__(self, session_id: str, connection: Connection, client: Client, agreed: Agreed) -> None:
        """Made by `AcpAgent.open`."""
        self.session_id = session_id
        self.agreed = agreed
        self._connection, self._client = connection, client
        self._turns = Turns()

    async def prompt(self, text: str) -> Turn:
        """Run one turn to its end."""
        return await self._turns.run(self._answer(text))

    async def steer(self, text: str) -> bool:  # noqa: ARG002  part of the contract
        """The protocol takes no text in mid-turn."""
        return False

    async def cancel(self) -> None:
        """End the running turn; the session goes on if the agent obeys in time."""
        await self._turns.stop()

    async def close(self) -> None:
        """End the session and the agent."""
        try:
            await self._turns.close()
            await self._client.end_commands()
        finally:
            await self._connection.close()

    async def _answer(self, text: str) -> Turn:
        hearing = self._client.hearing
        hearing.begin_turn()
        request = self._connection.peer.request(
            "session/prompt", {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}]}
        )
        try:
            answer = await asyncio.shield(request)
        except (Refused, PeerLost) as error:
            raise await self._connection.failure(error, "session/prompt") from error
        except asyncio.CancelledError:
            await self._wind_down(request)
            raise
        finally:
            await self._client.end_commands()
        told = answer if isinstance(answer, dict) else {}
        stop = self._stop(told.get("stopReason"))
        if stop == "end_turn" and hearing.is_broken:
            name = self._connection.name
            raise unavailable(f"Agent {name!r} says that its model failed: {hearing.message}", agent=name)
        if stop == "end_turn" and not hearing.message and not self._client.has_result:
            await self._client.wait_news(LATE_SECONDS)
        return Turn(stop, hearing.message, usage=hearing.usage(told.get("usage")))

    async def _wind_down(self, request: asyncio.Future[Any]) -> None:
        """Have the cancelled turn end; kill the agent if it does not, or if nobody waits any more."""
        peer = self._connection.peer
        if not request.done():
            peer.notify("session/cancel", {"sessionId": self.session_id})
            peer.drop_requests()
        try:
            await asyncio.wait([request], timeout=CANCEL_SECONDS)
        finally:
            if not request.done():
                await self._connection.kill()
            if not request.cancelled():
                request.exception()  # marks it as looked at

    def _stop(self, reason: Any) -> Stop:
        if reason in _STOPS:
            return _STOPS[reason]
        name = self._connection.name
        if reason == "max_turn_requests":
            raise AgentError(f"Agent {name!r} reached its own limit of requests in one turn. Raise that, or ask less.")
        raise AgentProtocolError(f"Agent {name!r} ended its turn for a reason nobody knows: {reason!r}.", agent=name)
