"""Agents that speak ACP, by settings:

kind = "acp"
profile = "opencode"          # opencode, claude, codex, gemini, kimi, qwen, pi; the agent's own name if that is one
command = ["opencode", "acp"] # without a profile; else instead of the profile's
env = ["OPENAI_API_KEY"]      # variables it may see, beside HOME, PATH and the like and the profile's
set = { NAME = "value" }      # variables it gets; "{folder}" stands for a folder of the session
files = { "config.json" = "..." }  # written into that folder first
mode = "default"              # pinned when the session opens
model = "provider/id:high"    # if the stage names none
permissions = "allow"         # inside the stage's folder; or "ask" (a person), "deny"
endpoint = { base_url = "http://127.0.0.1:8080/v1", api = "openai", key = "NAME_OF_VARIABLE", model = "id" }
fs = true                     # whether to say that we read and write files for it
terminal = false              # whether to say that we run commands for it
auth = "method"               # the way to authenticate that it is told to use
start_timeout = 60            # seconds until the session is open
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any, Final

from perdure.agents.acp.client import Client
from perdure.agents.acp.connection import Connection, Launch, connect
from perdure.agents.acp.opening import Agreed, Wanted, agree, open_session, split_effort
from perdure.agents.acp.profiles import FOLDER, PROFILES, Arrangement, Endpoint, Policy, Profile
from perdure.agents.acp.session import AcpSession
from perdure.agents.session import Capabilities, Emit, SessionSpec
from perdure.errors import AgentProtocolError, AgentUnavailable, ConfigInvalid, TimedOut
from perdure.host.processes import environment, find_command
from perdure.ids import new_id

START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """An agent's profile with what the configuration changes."""

    profile: Profile
    model: str | None = None
    policy: Policy = "allow"
    endpoint: Endpoint | None = None
    start_seconds: float = START_SECONDS


def build(name: str, settings: Mapping[str, Any]) -> AcpAgent:
    """The agent for these settings; ConfigInvalid listing everything that does not fit."""
    problems = [_unknown(key, list(_READERS), "setting") for key in settings if key not in _READERS]
    made: dict[str, Any] = {}
    for key, given in settings.items():
        if key in _READERS:
            try:
                made[key] = _READERS[key](given)
            except ValueError as error:
                problems.append(f"{key} {error}")
    profile = PROFILES.get(made.get("profile", name), Profile())
    changed = {key: made[key] for key in ("command", "mode", "fs", "terminal", "auth") if key in made}
    if made.get("permissions", "allow") != "allow" and profile.asking_mode is not None:
        profile = replace(profile, mode=profile.asking_mode)
    profile = replace(
        profile,
        **changed,
        env=(*profile.env, *made.get("env", ())),
        set={**profile.set, **made.get("set", {})},
        files={**profile.files, **made.get("files", {})},
    )
    if not profile.command and "command" not in settings:
        problems.append(f"command is missing, and no profile is named (profiles: {', '.join(PROFILES)})")
    if problems:
        raise ConfigInvalid(f"Agent {name!r}: {'; '.join(problems)}.", agent=name, problems=problems)
    return AcpAgent(
        name,
        Settings(
            profile=profile,
            model=made.get("model"),
            policy=made.get("permissions", "allow"),
            endpoint=made.get("endpoint"),
            start_seconds=made.get("start_timeout", START_SECONDS),
        ),
    )


class AcpAgent:
    """An agent that speaks ACP."""

    kind = "acp"

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.capabilities = Capabilities(reopen=settings.profile.reopen, mcp=settings.profile.mcp)

    async def open(self, spec: SessionSpec, emit: Emit) -> AcpSession:
        """A running agent with an open session. Raises AgentError; nothing of it is left then."""
        settings = self.settings
        env, arranged = await asyncio.to_thread(self._prepare, spec)
        client = Client(spec, emit, settings.policy, env)
        wanted = Wanted(
            profile=settings.profile,
            spec=spec,
            model=spec.model or settings.model,
            is_model_told=settings.endpoint is not None and arranged.tells_model,
            endpoint=settings.endpoint if arranged.by_protocol else None,
            has_key=settings.profile.auth_env is None or settings.profile.auth_env in env,
        )
        launch = Launch(argv=settings.profile.command, cwd=spec.cwd, env=env, log=spec.scratch / f"acp-{new_id()}")
        connection = await connect(self.name, launch, client)
        try:
            session_id, agreed = await self._started(connection, client, wanted)
        except BaseException:
            await connection.close()
            raise
        return AcpSession(session_id, connection, client, agreed)

    def environment(self) -> dict[str, str]:
        """What the agent sees of our variables, with the profile's own."""
        profile = self.settings.profile
        return environment(profile.env, profile.set)

    def find(self, cwd: Path) -> str:
        """The path of the agent's command. Raises AgentUnavailable that says how to install it."""
        profile = self.settings.profile
        try:
            return find_command(profile.command[0], self.environment(), cwd)
        except FileNotFoundError as error:
            how = f"Install it: {profile.install}" if profile.install else "Install it, or correct its command."
            raise AgentUnavailable(
                f"Agent {self.name!r} cannot start: {error} {how}", agent=self.name, command=profile.command[0]
            ) from error

    async def _started(self, connection: Connection, client: Client, wanted: Wanted) -> tuple[str, Agreed]:
        seconds = self.settings.start_seconds
        try:
            async with asyncio.timeout(seconds):
                agreed = await agree(connection, wanted.profile)
                return await open_session(connection, client, agreed, wanted), agreed
        except TimeoutError as error:
            evidence = connection.evidence
            if connection.has_printed_noise:
                raise AgentProtocolError(
                    f"Agent {self.name!r} does not speak the Agent Client Protocol. {evidence}", agent=self.name
                ) from error
            raise TimedOut(
                f"Agent {self.name!r} opened no session within {seconds:g} s and was ended. {evidence} Raise "
                "start_timeout in its settings if it only needs longer.",
                agent=self.name,
                timeout=seconds,
                stderr=connection.stderr_tail,
            ) from error

    def _prepare(self, spec: SessionSpec) -> tuple[dict[str, str], Arrangement]:
        """Write the session's files; the agent's environment, and how it is pointed at its endpoint."""
        self.find(spec.cwd)
        settings, profile = self.settings, self.settings.profile
        endpoint = settings.endpoint
        if endpoint is not None and (model := spec.model or settings.model):
            endpoint = replace(endpoint, model=split_effort(model)[0])
        arranged = profile.arrange(endpoint, settings.policy != "allow")
        folder = spec.scratch / "agent"
        for name, text in {**arranged.files, **profile.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "w", encoding="utf-8", opener=_private) as file:
                file.write(text)
        given = {**arranged.set, **profile.set}
        return environment(profile.env, {k: v.replace(FOLDER, str(folder)) for k, v in given.items()}), arranged


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


# --- reading settings: each reader gives the value or raises ValueError that goes on after the setting's name


def _unknown(key: str, known: list[str], what: str) -> str:
    near = get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown {what} {key!r} ({hint})"


def _profile(given: Any) -> str:
    if given not in PROFILES:
        raise ValueError(f"must be one of {', '.join(PROFILES)}, got {given!r:.60}")
    return str(given)


def _command(given: Any) -> tuple[str, ...]:
    if not given:
        raise ValueError('must be a list of words, such as ["opencode", "acp"]')
    return _words(given)


def _words(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(word, str) and word for word in given):
        raise ValueError(f"must be a list of words, got {given!r:.60}")
    return tuple(given)


def _table(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        raise ValueError(f"must be a table of texts, got {given!r:.60}")
    return dict(given)


def _files(given: Any) -> dict[str, str]:
    for name in _table(given):
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"names {name!r}, which must be a relative path inside the session's folder")
    return dict(given)


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(f"must be a text, got {given!r:.60}")
    return given


def _yes_or_no(given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"must be true or false, got {given!r:.60}")  # noqa: TRY004  collected like the others
    return given


def _seconds(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        raise ValueError(f"must be seconds above 0, got {given!r:.60}")
    return float(given)


def _policy(given: Any) -> str:
    if given not in ("allow", "ask", "deny"):
        raise ValueError(f"must be allow, ask or deny, got {given!r:.60}")
    return str(given)


def _endpoint(given: Any) -> Endpoint:
    known = ("base_url", "api", "key", "model")
    if not isinstance(given, Mapping) or set(given) - set(known) or not isinstance(given.get("base_url"), str):
        raise ValueError(f"must be a table with base_url, and perhaps {', '.join(known[1:])}")
    if given.get("api", "openai") not in ("openai", "anthropic"):
        raise ValueError(f"has api = {given['api']!r:.40}, which must be openai or anthropic")
    variable = given.get("key")
    key = "none" if variable is None else os.environ.get(str(variable), "")
    if not key:
        raise ValueError(f"takes its key from the variable {variable}, which is not set")
    model = given.get("model")
    return Endpoint(
        base_url=given["base_url"],
        api=given.get("api", "openai"),
        key=key,
        model=None if model is None else _text(model),
    )


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "profile": _profile,
    "command": _command,
    "env": _words,
    "set": _table,
    "files": _files,
    "mode": _text,
    "model": _text,
    "permissions": _policy,
    "endpoint": _endpoint,
    "fs": _yes_or_no,
    "terminal": _yes_or_no,
    "auth": _text,
    "start_timeout": _seconds,
}
