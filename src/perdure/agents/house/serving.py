"""The agent's side of the Agent Client Protocol (v1): what `perdure agent` speaks on standard input and output.

One process may hold several sessions, each with one turn at a time. The end of the input ends everything: turns are
cancelled, their commands and tool servers ended, and only then does `serve` return.

    session/new, load (tells what was said), resume (does not), close, prompt, cancel, set_mode,
    set_config_option("model", "provider/model[:effort]")
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from perdure.agents.acp.peer import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Direction, Peer, PeerLost, Refused
from perdure.agents.house import updates
from perdure.agents.house.history import History
from perdure.agents.house.loop import Ended
from perdure.agents.house.model import code_of
from perdure.agents.house.permission import MODES, OPTIONS, Action, Verdict
from perdure.agents.house.session import Session, Setup
from perdure.agents.house.updates import Update
from perdure.errors import PerdureError, UsageError
from perdure.failures import classify

PROTOCOL: Final = 1
RESOURCE_NOT_FOUND: Final = -32002
MODEL_OPTION: Final = "model"

_VERDICTS: Final[dict[str, Verdict]] = {name: name for name, _ in OPTIONS}


class Serving:
    """Answers a client's requests. `requested` and `notified` are what its peer calls."""

    def __init__(self, setup: Setup) -> None:
        """`connect` it before anything is read."""
        self._setup = setup
        self._sessions: dict[str, Session] = {}
        self._peer: Peer | None = None
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/close": self._close,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the input ends; returns when nothing of this agent is left."""
        self._peer = Peer(writer, _observe, self)
        try:
            await self._peer.read(reader)
        finally:
            self._peer.lose("closed its output")
            await asyncio.gather(*(session.close() for session in self._sessions.values()))
            await self._peer.settle()

    async def requested(self, method: str, params: Any) -> Any:
        """The result of a request. Raises Refused, whatever went wrong."""
        answer = self._methods.get(method)
        if answer is None:
            raise Refused(METHOD_NOT_FOUND, f"There is no {method} here.")
        try:
            return await answer(params if isinstance(params, dict) else {})
        except Refused:
            raise
        except UsageError as error:
            raise Refused(INVALID_PARAMS, error.message, {"code": error.code}) from error
        except Exception as error:
            raise refusal(error) from error

    def notified(self, method: str, params: Any) -> None:
        """Take a notification in."""
        if method == "session/cancel" and isinstance(params, dict):
            session = self._sessions.get(str(params.get("sessionId")))
            if session is not None:
                session.cancel()

    # --- sessions

    async def _initialize(self, _params: dict[str, Any]) -> Any:
        return {
            "protocolVersion": PROTOCOL,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"resume": {}, "close": {}},
            },
            "agentInfo": {"name": "perdure-house", "title": "perdure's own agent", "version": version("perdure")},
            "authMethods": [],
        }

    async def _authenticate(self, _params: dict[str, Any]) -> Any:
        return {}

    async def _new(self, params: dict[str, Any]) -> Any:
        cwd = _folder(params)
        session = await self._opened(History.create(self._setup.folder, cwd), cwd, params)
        return {"sessionId": session.id, **_offer(session)}

    async def _load(self, params: dict[str, Any]) -> Any:
        opened = await self._resume(params)
        session = self._session(params)
        for update in updates.replayed(session.history.messages):
            self._tell(session.id, update)
        return opened

    async def _resume(self, params: dict[str, Any]) -> Any:
        session_id = _word(params, "sessionId")
        if (before := self._sessions.pop(session_id, None)) is not None:
            await before.close()
        return _offer(await self._opened(History.load(self._setup.folder, session_id), _folder(params), params))

    async def _opened(self, history: History, cwd: Path, params: dict[str, Any]) -> Session:
        session_id = history.session_id

        async def ask(action: Action) -> Verdict:
            return await self._ask(session_id, action)

        def tell(update: Update) -> None:
            self._tell(session_id, update)

        session = Session(history, self._setup, cwd, tell, ask)
        servers = [one for one in params.get("mcpServers") or () if one.get("type", "stdio") == "stdio"]
        await session.open(servers)
        self._sessions[session_id] = session
        return session

    async def _close(self, params: dict[str, Any]) -> Any:
        session = self._session(params)
        del self._sessions[session.id]
        await session.close()
        return {}

    async def _set_mode(self, params: dict[str, Any]) -> Any:
        session, mode = self._session(params), _word(params, "modeId")
        found = next((known for known in MODES if known == mode), None)
        if found is None:
            raise UsageError(f"There is no mode {mode!r}; there are {', '.join(MODES)}.", mode=mode)
        session.permissions.mode = found
        return {}

    async def _set_option(self, params: dict[str, Any]) -> Any:
        session = self._session(params)
        if (option := _word(params, "configId")) != MODEL_OPTION:
            raise UsageError(f"There is no option {option!r}; there is {MODEL_OPTION}.", option=option)
        session.choose_model(_word(params, "value"))
        return {"configOptions": _options(session)}

    # --- turns

    async def _prompt(self, params: dict[str, Any]) -> Any:
        ended = await self._session(params).prompt(_text_of(params.get("prompt")))
        if ended is None:
            return {"stopReason": "cancelled"}
        return {"stopReason": ended.stop, "usage": _usage(ended)}

    async def _ask(self, session_id: str, action: Action) -> Verdict:
        call: dict[str, Any] = {"toolCallId": action.call_id, "title": action.title, "kind": action.kind}
        if action.path is not None:
            call["locations"] = [{"path": str(action.path)}]
        if action.after is not None:
            diff = {"type": "diff", "path": str(action.path), "newText": action.after}
            call["content"] = [diff if action.before is None else {**diff, "oldText": action.before}]
        else:
            call["rawInput"] = {"command": action.title}
        options = [{"optionId": name, "name": label, "kind": name} for name, label in OPTIONS]
        assert self._peer is not None
        try:
            answer = await self._peer.request(
                "session/request_permission", {"sessionId": session_id, "toolCall": call, "options": options}
            )
        except (Refused, PeerLost):
            return "reject_once"
        outcome = answer.get("outcome", {})
        return _VERDICTS.get(
            outcome.get("optionId", ""), "cancelled" if outcome.get("outcome") == "cancelled" else "reject_once"
        )

    def _tell(self, session_id: str, update: Update) -> None:
        assert self._peer is not None
        self._peer.notify("session/update", {"sessionId": session_id, "update": update})

    def _session(self, params: dict[str, Any]) -> Session:
        session_id = _word(params, "sessionId")
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(RESOURCE_NOT_FOUND, f"There is no session {session_id} here; load it first.")
        return session


def refusal(error: Exception) -> Refused:
    """A failure of the agent as the client gets it: a sentence, and in `data` the code that says what it means."""
    failure = classify(error, "provider")
    data: dict[str, Any] = {"code": code_of(error) or failure.code, "type": failure.type}
    if failure.retry_after_ms is not None:
        data["retry_after_ms"] = failure.retry_after_ms
    message = error.message if isinstance(error, PerdureError) else failure.message
    return Refused(INTERNAL_ERROR, message, data)


def _folder(params: dict[str, Any]) -> Path:
    cwd = Path(_word(params, "cwd"))
    if not cwd.is_absolute() or not cwd.is_dir():
        raise UsageError(f"The session's folder {cwd} must be absolute and there.", cwd=str(cwd))
    return cwd


def _word(params: dict[str, Any], name: str) -> str:
    """A field of a request that must be a text. Raises UsageError."""
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"The request needs a text in {name!r}, got {value!r:.80}.", field=name)
    return value


def _text_of(blocks: Any) -> str:
    """The text of a prompt. Raises UsageError for what a text cannot hold."""
    if not isinstance(blocks, list):
        raise UsageError(f"A prompt is a list of blocks, got {blocks!r:.80}.")
    parts = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "resource_link", "uri": str(uri)}:
                parts.append(f"See {uri}")
            case {"type": "resource", "resource": {"text": str(text), "uri": str(uri)}}:
                parts.append(f"{uri}:\n{text}")
            case _:
                raise UsageError(f"This block of the prompt is not understood; send text: {block!r:.80}.")
    if not any(part.strip() for part in parts):
        raise UsageError("The prompt is empty.")
    return "\n\n".join(parts)


def _offer(session: Session) -> dict[str, Any]:
    """What the client may choose in a session."""
    modes = [{"id": mode, "name": mode.capitalize(), "description": text} for mode, text in MODES.items()]
    state = {"currentModeId": session.permissions.mode, "availableModes": modes}
    return {"modes": state, "configOptions": _options(session)}


def _options(session: Session) -> list[dict[str, Any]]:
    names = [str(one) for one in session.candidates]
    return [
        {
            "id": MODEL_OPTION,
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": names[0],
            "options": [{"value": name, "name": name} for name in names],
        }
    ]


def _usage(ended: Ended) -> dict[str, Any]:
    return {
        "totalTokens": ended.tokens_in + ended.tokens_out,
        "inputTokens": max(0, ended.tokens_in - ended.cache_read - ended.cache_write),  # the protocol counts apart
        "outputTokens": ended.tokens_out,
        "cachedReadTokens": ended.cache_read,
        "cachedWriteTokens": ended.cache_write,
    }


def _observe(_way: Direction, _line: bytes) -> None:
    """The client keeps the record of frames."""
