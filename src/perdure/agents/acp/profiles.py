"""What is special about each agent that speaks ACP: how it is started, what it may see, which mode is pinned.

A profile is a starting point: every field can be set in the configuration, so an agent without a profile is a command
and a few settings. Modes are pinned because some agents start in one where a model of theirs judges, and silently
refuses, calls of the engine's tools.

An endpoint is a model server to use instead of the agent's own: told by variables, by a file in a folder of the
session, or by the protocol's `providers/set`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Policy = Literal["allow", "ask", "deny"]
Api = Literal["openai", "anthropic"]

FOLDER: Final = "{folder}"  # in `set`: the folder of the session that `files` are written to
ENDPOINT_MODEL: Final = "default"  # the model's name at an endpoint that names none


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model server to use. `key` is the secret itself, read from the variable that the settings name."""

    base_url: str
    api: Api = "openai"
    key: str = "none"
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What makes an agent use an endpoint, and ask for permission: what is added to its profile."""

    set: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    by_protocol: bool = False  # the endpoint is told by `providers/set`
    tells_model: bool = True  # the endpoint's model is told too


def _by_protocol(endpoint: Endpoint | None, _asks: bool) -> Arrangement:
    return Arrangement(by_protocol=endpoint is not None, tells_model=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How to run one agent."""

    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # variables it may see beside HOME, PATH and the like
    set: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    asking_mode: str | None = None  # instead of `mode`, if it is to ask for permission
    auth: str | None = None  # the way to authenticate, for agents that must be told
    auth_env: str | None = None  # the variable without which `auth` is not tried
    fs: bool = True  # whether to say that we read and write files; requests are answered either way
    terminal: bool = False  # whether to say that we run commands
    mcp: bool = True  # whether it can be given the engine's tools
    reopen: bool = True
    install: str = ""  # the command that installs it
    login: str = ""  # what to do to log in
    arrange: Callable[[Endpoint | None, bool], Arrangement] = _by_protocol  # for an endpoint; whether it is to ask


# --- arrangements


def _arrange_codex(endpoint: Endpoint | None, _asks: bool) -> Arrangement:
    if endpoint is None:
        return Arrangement()
    model = {"CODEX_CONFIG": json.dumps({"model": endpoint.model})} if endpoint.model else {}
    return Arrangement(set=model, by_protocol=True)


def _arrange_claude(endpoint: Endpoint | None, _asks: bool) -> Arrangement:
    if endpoint is None:
        return Arrangement()
    model = {"ANTHROPIC_MODEL": endpoint.model} if endpoint.model else {}
    return Arrangement(set={"ANTHROPIC_BASE_URL": endpoint.base_url, "ANTHROPIC_API_KEY": endpoint.key, **model})


def _arrange_gemini(endpoint: Endpoint | None, _asks: bool) -> Arrangement:
    if endpoint is None:
        return Arrangement()
    model = {"GEMINI_MODEL": endpoint.model} if endpoint.model else {}
    return Arrangement(set={"GOOGLE_GEMINI_BASE_URL": endpoint.base_url, "GEMINI_API_KEY": endpoint.key, **model})


def _arrange_qwen(endpoint: Endpoint | None, _asks: bool) -> Arrangement:
    if endpoint is None:
        return Arrangement()
    model = endpoint.model or ENDPOINT_MODEL
    return Arrangement(
        set={"OPENAI_BASE_URL": _versioned(endpoint), "OPENAI_API_KEY": endpoint.key, "OPENAI_MODEL": model}
    )


def _arrange_opencode(endpoint: Endpoint | None, asks: bool) -> Arrangement:
    config: dict[str, Any] = {"$schema": "https://opencode.ai/config.json"}
    variables = {"OPENCODE_CONFIG": f"{FOLDER}/opencode.json"}
    if asks:  # unasked it allows everything
        config["permission"] = dict.fromkeys(("edit", "bash", "webfetch"), "ask")
    if endpoint is not None:
        model = endpoint.model or ENDPOINT_MODEL
        kind = "anthropic" if endpoint.api == "anthropic" else "openai-compatible"
        provider = {
            "npm": f"@ai-sdk/{kind}",
            "name": "endpoint",
            "options": {"baseURL": _versioned(endpoint), "apiKey": "{env:PERDURE_ENDPOINT_KEY}"},
            "models": {model: {"name": model}},
        }
        config |= {"provider": {"endpoint": provider}}
        config |= dict.fromkeys(("model", "small_model"), f"endpoint/{model}")
        variables |= {"PERDURE_ENDPOINT_KEY": endpoint.key, "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return Arrangement(set=variables, files={"opencode.json": json.dumps(config)}) if len(config) > 1 else Arrangement()


def _arrange_kimi(endpoint: Endpoint | None, _asks: bool) -> Arrangement:
    if endpoint is None:
        return Arrangement()
    model = json.dumps(endpoint.model or ENDPOINT_MODEL)
    config = (
        f"default_model = {model}\n"
        f"[providers.endpoint]\ntype = {json.dumps(endpoint.api)}\nbase_url = {json.dumps(_versioned(endpoint))}\n"
        f"api_key = {json.dumps(endpoint.key)}\n"
        f'[models.{model}]\nprovider = "endpoint"\nmodel = {model}\nmax_context_size = 131072\n'
    )
    return Arrangement(files={".kimi-code/config.toml": config}, set={"HOME": FOLDER})


def _arrange_pi(endpoint: Endpoint | None, _asks: bool) -> Arrangement:
    if endpoint is None:
        return Arrangement()
    model = endpoint.model or ENDPOINT_MODEL
    api = "anthropic-messages" if endpoint.api == "anthropic" else "openai-completions"
    provider = {"baseUrl": _versioned(endpoint), "api": api, "apiKey": endpoint.key, "models": [{"id": model}]}
    files = {
        ".pi/agent/models.json": json.dumps({"providers": {"endpoint": provider}}),
        ".pi/agent/settings.json": json.dumps(
            {"defaultProvider": "endpoint", "defaultModel": model, "quietStartup": True}
        ),
    }
    return Arrangement(files=files, set={"HOME": FOLDER})


def _versioned(endpoint: Endpoint) -> str:
    """The base URL with the version that clients of such APIs want in it."""
    base = endpoint.base_url.rstrip("/")
    return base if re.search(r"/v\d+$", base) else f"{base}/v1"


# --- agents

_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
                   "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
                   "XDG_CACHE_HOME", "XDG_STATE_HOME")  # fmt: skip

PROFILES: Final[Mapping[str, Profile]] = {
    "opencode": Profile(
        command=("opencode", "acp"),
        env=(*_PROXIES, "OPENCODE_CONFIG_DIR", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"),
        set={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        install="npm install -g opencode-ai",
        login="Run: opencode auth login",
        arrange=_arrange_opencode,
    ),
    "claude": Profile(
        command=("claude-agent-acp",),
        env=(*_PROXIES, "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
             "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "AWS_REGION", "AWS_PROFILE", "CLAUDE_CODE_USE_BEDROCK",
             "CLAUDE_CODE_USE_VERTEX"),
        # Without the first the engine's tools hide behind a search tool of its own.
        set={"ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1",
             "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        mode="default",  # in "auto" a classifier denies calls of MCP tools
        install="npm install -g @agentclientprotocol/claude-agent-acp",
        login="Run: claude /login, or set ANTHROPIC_API_KEY",
        arrange=_arrange_claude,
    ),
    "codex": Profile(
        command=("codex-acp",),
        env=(*_PROXIES, "OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"),
        mode="agent-full-access",  # in "agent" a reviewing model denies calls of MCP tools
        asking_mode="read-only",
        # The second is used only where nobody is logged in.
        set={"NO_BROWSER": "1", "DEFAULT_AUTH_REQUEST": json.dumps({"methodId": "api-key"})},
        install="npm install -g @agentclientprotocol/codex-acp",
        login="Run: codex login, or set OPENAI_API_KEY",
        arrange=_arrange_codex,
    ),
    "gemini": Profile(
        command=("gemini", "--acp", "--skip-trust"),  # an untrusted folder silently drops MCP servers
        env=(*_PROXIES, "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"),
        auth="gemini-api-key",
        auth_env="GEMINI_API_KEY",
        fs=False,  # it cannot create a file through us: its look at the missing one fails
        install="npm install -g @google/gemini-cli",
        login="Run: gemini, and log in, or set GEMINI_API_KEY",
        arrange=_arrange_gemini,
    ),
    "kimi": Profile(
        command=("kimi", "acp"),
        env=(*_PROXIES, "MOONSHOT_API_KEY", "KIMI_API_KEY"),
        install="npm install -g @moonshot-ai/kimi-code",
        login="Run: kimi login",
        arrange=_arrange_kimi,
    ),
    "qwen": Profile(
        command=("qwen", "--acp"),
        env=(*_PROXIES, "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"),
        auth="openai",
        auth_env="OPENAI_API_KEY",
        install="npm install -g @qwen-code/qwen-code",
        login="Run: qwen, and log in, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL",
        arrange=_arrange_qwen,
    ),
    "pi": Profile(
        command=("pi-acp",),
        env=(*_PROXIES, "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        set={"PI_OFFLINE": "1"},
        mcp=False,  # its adapter takes no MCP servers
        install="npm install -g @earendil-works/pi-coding-agent pi-acp",
        login="Run: pi, and log in",
        arrange=_arrange_pi,
    ),
}  # fmt: skip
