"""Our own agent as the engine has it: an agent that speaks ACP whose command is `perdure agent`. Settings:

    kind = "house"
    model = "anthropic/claude-sonnet-5:high"  # provider/id[:effort], if the stage names none
    fallback_models = ["openai/gpt-5.2"]      # asked when the one before fails for a reason another may not have
    base_url = "http://127.0.0.1:8080/v1"     # of the first model's provider; openai/... may be any compatible server
    api_key = "LOCAL_API_KEY"                 # the variable with its key, if not the provider's usual one
    permissions = "allow"                     # inside the stage's folder; or "ask" (a person), "deny"
    env = ["DATABASE_URL"]                    # variables that its shell commands may see, beside PATH and the like
    steps_max = 200                           # requests to models in one turn

Nothing of the library that talks to models is imported here: the agent is a process of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

from perdure.agents.acp.agent import AcpAgent, Settings
from perdure.agents.acp.profiles import Policy, Profile
from perdure.agents.acp.session import AcpSession
from perdure.agents.house.candidate import parse_candidate
from perdure.agents.session import Emit, SessionSpec
from perdure.config import data_folder
from perdure.errors import AgentUnavailable, ConfigInvalid, ExtraMissing, UsageError

INSTALL: Final = "pip install 'perdure[house]'"
KEYS: Final = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY", "GEMINI_API_KEY"),
    *("GOOGLE_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "MOONSHOTAI_API_KEY", "OLLAMA_BASE_URL", "OPENAI_API_KEY"),
    *("OPENAI_BASE_URL", "OPENROUTER_API_KEY", "TOGETHER_API_KEY", "XAI_API_KEY", "ZAI_API_KEY"),
)  # it may see; its shell commands may not
NETWORK: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
                  "SSL_CERT_FILE", "SSL_CERT_DIR")  # fmt: skip
POLICIES: Final[tuple[Policy, ...]] = ("allow", "ask", "deny")

_SETTINGS: Final = ("model", "fallback_models", "base_url", "api_key", "permissions", "env", "steps_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How `perdure agent` is started."""

    models: tuple[str, ...]
    base_url: str
    api_key: str
    shell_env: tuple[str, ...]
    steps_max: int | None

    def command(self, model: str | None) -> tuple[str, ...]:
        """The argument list, `model` before all others. `-P` keeps the stage's folder out of its imports."""
        models = [model] if model else []
        models += [one for one in self.models if one != model]
        sessions = data_folder(os.environ) / "house"
        words = [sys.executable, "-P", "-m", "perdure", "agent", "--sessions", str(sessions)]
        for flag, values in (("--model", models), ("--env", self.shell_env)):
            words += [word for value in values for word in (flag, value)]
        for flag, value in (("--base-url", self.base_url), ("--api-key", self.api_key)):
            words += [flag, value] if value else []
        return (*words, *(("--steps-max", str(self.steps_max)) if self.steps_max else ()))


def build(name: str, settings: Mapping[str, Any]) -> HouseAgent:
    """The agent for these settings; ConfigInvalid listing what does not fit, ExtraMissing without its library."""
    problems = [f"unknown setting {key!r} (known: {', '.join(_SETTINGS)})" for key in settings if key not in _SETTINGS]
    model, fallbacks = settings.get("model"), settings.get("fallback_models", [])
    models = ([] if model is None else [model]) + (fallbacks if _are_words(fallbacks) else [])
    problems += [problem for one in models if (problem := _model_problem(one))]
    words = {key: settings.get(key, "") for key in ("base_url", "api_key")}
    problems += [f"{key} must be a text, got {value!r}" for key, value in words.items() if not isinstance(value, str)]
    for key in ("fallback_models", "env"):
        if not _are_words(settings.get(key, [])):
            problems.append(f"{key} must be a list of names, got {settings[key]!r}")
    policy, steps_max = settings.get("permissions", "allow"), settings.get("steps_max")
    if policy not in POLICIES:
        problems.append(f"permissions must be one of {', '.join(POLICIES)}, got {policy!r}")
    if steps_max is not None and (type(steps_max) is not int or steps_max < 1):
        problems.append(f"steps_max must be a whole number of 1 or more, got {steps_max!r}")
    if problems:
        raise ConfigInvalid(f"Agent {name!r}: {'; '.join(problems)}.", agent=name, problems=problems)
    if find_spec("pydantic_ai") is None:
        raise ExtraMissing(f"Agent {name!r} needs the library that talks to models: {INSTALL}", extra="house")
    program = Program(models=tuple(models), **words, shell_env=tuple(settings.get("env", ())), steps_max=steps_max)
    return HouseAgent(name, program, policy)


class HouseAgent(AcpAgent):
    """Our own agent."""

    kind = "house"

    def __init__(self, name: str, program: Program, policy: Policy) -> None:
        env = (*KEYS, *NETWORK, *program.shell_env, *filter(None, [program.api_key]))
        profile = Profile(command=program.command(None), env=env, fs=False)
        super().__init__(name, Settings(profile=profile, policy=policy))
        self._program = program

    async def open(self, spec: SessionSpec, emit: Emit) -> AcpSession:
        """As every agent that speaks ACP; the model is in the command. AgentUnavailable if there is none."""
        if spec.model is None and not self._program.models:
            raise AgentUnavailable(
                f"Agent {self.name!r} needs a model: give the stage one, such as openai/gpt-5.2, or set model under "
                f"[agents.{self.name}].",
                agent=self.name,
            )
        if spec.model is not None and (problem := _model_problem(spec.model)):
            raise AgentUnavailable(f"Agent {self.name!r}: {problem}", agent=self.name, model=spec.model)
        profile = replace(self.settings.profile, command=self._program.command(spec.model))
        one = AcpAgent(self.name, replace(self.settings, profile=profile))
        return await one.open(replace(spec, model=None), emit)


def _model_problem(model: Any) -> str:
    try:
        parse_candidate(model if isinstance(model, str) else repr(model))
    except UsageError as error:
        return error.message
    return ""


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) and word for word in value)
