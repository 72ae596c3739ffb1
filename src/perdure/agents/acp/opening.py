"""From a started agent to a session that can be prompted: agree on the protocol, log in, open, pin mode and model.

    initialize -> authenticate? -> providers/set? -> session/new, or resume, or load -> mode -> model

The law: a session that was to go on with another is that one, or opening fails; it is never silently a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from perdure.agents.acp.client import Client
from perdure.agents.acp.connection import Connection
from perdure.agents.acp.profiles import Endpoint, Profile
from perdure.agents.session import SessionSpec
from perdure.errors import AgentError, AgentProtocolError, AgentUnavailable

PROTOCOL_VERSION: Final = 1
SERVER_NAME: Final = "perdure"  # of the engine's tools, in the agent's list of MCP servers
EFFORTS: Final = frozenset({"off", "minimal", "low", "medium", "high", "xhigh", "max"})
OFFERED_MAX: Final = 30  # models named in an error

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What the agent said of itself."""

    name: str
    version: str
    load: bool
    resume: bool
    http: bool  # takes MCP servers by HTTP
    auth: tuple[str, ...] = ()
    raw: Answer = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a session shall be like, beyond what the profile says."""

    profile: Profile
    spec: SessionSpec
    model: str | None = None
    is_model_told: bool = False  # in another way, so it does not matter if the agent offers no such
    endpoint: Endpoint | None = None  # to be told by the protocol
    has_key: bool = False  # the variable that the profile's way to authenticate needs is set


async def agree(connection: Connection, profile: Profile) -> Agreed:
    """Agree on the protocol. Raises AgentError, AgentProtocolError if the agent speaks another version."""
    answer = await connection.call(
        "initialize",
        {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {
                "fs": {"readTextFile": profile.fs, "writeTextFile": profile.fs},
                "terminal": profile.terminal,
            },
            "clientInfo": {"name": "perdure", "version": version("perdure")},
        },
    )
    told = _object(answer)
    if told.get("protocolVersion") != PROTOCOL_VERSION:
        raise AgentProtocolError(
            f"Agent {connection.name!r} speaks version {told.get('protocolVersion')!r} of the Agent Client Protocol; "
            f"perdure speaks {PROTOCOL_VERSION}. Install a version of it that speaks that too.",
            agent=connection.name,
        )
    can, info = _object(told.get("agentCapabilities")), _object(told.get("agentInfo"))
    methods = told.get("authMethods")
    return Agreed(
        name=str(info.get("name") or connection.name),
        version=str(info.get("version") or ""),
        load=can.get("loadSession") is True,
        resume=isinstance(_object(can.get("sessionCapabilities")).get("resume"), Mapping),
        http=_object(can.get("mcpCapabilities")).get("http") is True,
        auth=tuple(str(_object(one).get("id")) for one in methods) if isinstance(methods, list) else (),
        raw=told,
    )


async def open_session(connection: Connection, client: Client, agreed: Agreed, wanted: Wanted) -> str:
    """The id of the session that was opened or reopened. Raises AgentError."""
    profile = wanted.profile
    if profile.auth in agreed.auth and wanted.has_key:
        await connection.call("authenticate", {"methodId": profile.auth})
    if wanted.endpoint is not None:
        await _set_provider(connection, wanted.endpoint)
    session_id, opened = await _opened(connection, client, agreed, wanted)
    if profile.mode is not None:
        await _pin_mode(connection, client, (session_id, opened), profile.mode)
    if wanted.model is not None:
        await _choose_model(connection, client, (session_id, opened), wanted)
    return session_id


async def _opened(connection: Connection, client: Client, agreed: Agreed, wanted: Wanted) -> tuple[str, Answer]:
    spec = wanted.spec
    place = {"cwd": str(spec.cwd), "mcpServers": _servers(spec, agreed)}
    if spec.reopen_id is None:
        answer = _object(await connection.call("session/new", place))
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise AgentProtocolError(f"Agent {connection.name!r} opened a session without an id.", answer=dict(answer))
        return session_id, answer
    if not (agreed.resume or agreed.load):
        raise AgentUnavailable(
            f"Agent {connection.name!r} cannot go on with a session: it offers no session/resume, no session/load.",
            agent=connection.name,
        )
    client.is_reloading = True
    try:
        method = "session/resume" if agreed.resume else "session/load"
        return spec.reopen_id, _object(await connection.call(method, {"sessionId": spec.reopen_id, **place}))
    finally:
        client.is_reloading = False


def _servers(spec: SessionSpec, agreed: Agreed) -> list[dict[str, Any]]:
    """The engine's tools as the agent can reach them: by HTTP if it takes that, else by a command."""
    if spec.tools is None:
        return []
    by_http = spec.tools.http() if agreed.http else None
    if by_http is not None:
        url, headers = by_http
        return [{"type": "http", "name": SERVER_NAME, "url": url, "headers": _pairs(headers)}]
    argv, env = spec.tools.stdio()
    return [{"name": SERVER_NAME, "command": argv[0], "args": argv[1:], "env": _pairs(env)}]


async def _set_provider(connection: Connection, endpoint: Endpoint) -> None:
    """Point the agent's provider at an endpoint. Raises AgentError if it takes none of that kind."""
    listed = _objects(_object(await connection.call("providers/list", {})).get("providers"))
    fitting = next((one for one in listed if endpoint.api in (one.get("supported") or ())), None)
    if fitting is None:
        raise AgentError(
            f"Agent {connection.name!r} has no provider that takes an endpoint of the kind {endpoint.api!r}.",
            agent=connection.name,
            providers=[one.get("providerId") for one in listed],
        )
    await connection.call(
        "providers/set",
        {
            "providerId": fitting.get("providerId"),
            "apiType": endpoint.api,
            "baseUrl": endpoint.base_url,
            "headers": {"Authorization": f"Bearer {endpoint.key}", "x-api-key": endpoint.key},
        },
    )


# --- mode and model

Session = tuple[str, Answer]


async def _pin_mode(connection: Connection, client: Client, session: Session, mode: str) -> None:
    session_id, opened = session
    modes = _object(opened.get("modes"))
    offered = [str(one.get("id")) for one in _objects(modes.get("availableModes"))]
    option = _option(opened, "mode")
    if mode in offered:
        if modes.get("currentModeId") != mode:
            await connection.call("session/set_mode", {"sessionId": session_id, "modeId": mode})
    elif option is not None and mode in (offered := _values(option)):
        await _set_option(connection, session_id, option, mode)
    else:
        client.note(f"The agent offers no mode {mode} (it offers {', '.join(offered) or 'none'}); it stays as it is.")


def split_effort(model: str) -> tuple[str, str]:
    """Name and effort of `name` or `name:effort`; no effort is empty."""
    name, _, effort = model.rpartition(":")
    return (name, effort) if name and effort in EFFORTS else (model, "")


async def _choose_model(connection: Connection, client: Client, session: Session, wanted: Wanted) -> None:
    """Have the agent use a model. Raises AgentError if it offers others only."""
    model = wanted.model or ""
    session_id, opened = session
    option, older = _option(opened, "model"), _object(opened.get("models"))
    offered = _values(option) if option else [str(one.get("modelId")) for one in _objects(older.get("availableModels"))]
    name, effort = split_effort(model)
    found = model if model in offered else _match(name, offered)
    if found == model:
        effort = ""
    if found is None and wanted.is_model_told:
        return
    if not offered:
        client.note(f"The agent takes no model over the protocol; {model} is not passed on.")
        return
    if found is None:
        raise AgentError(
            f"Agent {connection.name!r} does not offer the model {model!r}. It offers: "
            f"{', '.join(offered[:OFFERED_MAX])}.",
            agent=connection.name,
            code="unknown_model",
            model=model,
        )
    if option is not None:
        opened = {**opened, **_object(await _set_option(connection, session_id, option, found))}
    else:
        await connection.call("session/set_model", {"sessionId": session_id, "modelId": found})
    if not effort:
        return
    level = _option(opened, "thought_level")
    if level is not None and effort in _values(level):
        await _set_option(connection, session_id, level, effort)
    else:
        client.note(f"The agent offers no effort {effort} for {found}.")


def _match(wanted: str, offered: list[str]) -> str | None:
    """The offered model that is meant: the same, or the only one that is so called behind its provider."""
    if wanted in offered:
        return wanted
    alike = [one for one in offered if one.rpartition("/")[2] == wanted or wanted.rpartition("/")[2] == one]
    return alike[0] if len(alike) == 1 else None


def _option(opened: Answer, category: str) -> Answer | None:
    options = _objects(opened.get("configOptions"))
    return next((one for one in options if category in (one.get("category"), one.get("id"))), None)


def _values(option: Answer) -> list[str]:
    """The values of a choice; its options may be in groups."""
    found: list[str] = []
    for one in _objects(option.get("options")):
        found += [str(inner.get("value")) for inner in _objects(one.get("options"))]
        found += [str(one["value"])] if "value" in one else []
    return found


async def _set_option(connection: Connection, session_id: str, option: Answer, value: str) -> Any:
    return await connection.call(
        "session/set_config_option", {"sessionId": session_id, "configId": option.get("id"), "value": value}
    )


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _object(value: Any) -> Answer:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Answer]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
