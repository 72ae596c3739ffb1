"""From a candidate to a model object, and from a model's error to what it means.

`base_url` and the key belong to the provider of the first candidate; other providers find their own in the
environment. `openai/...` at a base URL speaks chat completions, as compatible servers do; `openai-responses/...` asks
for the responses API there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic_ai import exceptions as ai
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings, ThinkingEffort

from perdure.agents.house.candidate import Candidate
from perdure.agents.house.chain import Trouble
from perdure.errors import AgentUnavailable, ExtraMissing

REQUEST_SECONDS: Final = 1800.0  # for one answer of a model, all of it
SILENCE_SECONDS: Final = 300.0  # until its first word
_KEY_UNSET: Final = "none"  # servers at a base URL often want no key, but their clients do


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the models of one provider are. Empty: where that provider usually is."""

    provider: str = ""
    base_url: str = ""
    api_key: str = ""


def build_model(candidate: Candidate, endpoint: Endpoint) -> Model:
    """The model of a candidate. Raises AgentUnavailable for an unknown provider or missing key, ExtraMissing."""
    provider = candidate.provider
    given = _given(endpoint) if endpoint.provider == provider else {}
    if provider == "openai" and "base_url" in given:
        provider = "openai-chat"

    def connect(name: str) -> Provider[Any]:
        return infer_provider_class(name)(**given)

    try:
        return infer_model(f"{provider}:{candidate.model}", connect)
    except ImportError as error:
        raise ExtraMissing(
            f"Models of {candidate.provider} need a package that is not installed: {error}", extra="house"
        ) from error
    except (ai.UserError, ValueError, TypeError) as error:
        code = "missing_api_key" if "api_key" in str(error) else "unknown_model"
        raise AgentUnavailable(f"Model {candidate} cannot be used: {error}", model=str(candidate), code=code) from error


def _given(endpoint: Endpoint) -> dict[str, str]:
    given = {"base_url": endpoint.base_url, "api_key": endpoint.api_key or (_KEY_UNSET if endpoint.base_url else "")}
    return {key: value for key, value in given.items() if value}


def settings_for(candidate: Candidate) -> ModelSettings:
    """The settings of its requests. The client library must not retry: the chain does."""
    settings = ModelSettings(
        max_retries=0, request_timeout=REQUEST_SECONDS, first_event_timeout=SILENCE_SECONDS, cache=True
    )
    if candidate.effort:
        settings["thinking"] = _thinking(candidate.effort)
    return settings


def _thinking(effort: str) -> ThinkingEffort | Literal[False]:
    return False if effort == "off" else effort  # type: ignore[return-value]  # one of EFFORTS


_PASSING: Final = (
    ai.ModelRateLimitError,
    ai.ModelUnavailableError,
    ai.ModelServerError,
    ai.ModelConnectionError,
    ai.ModelRequestTimeout,
)
# Each row: class, the code that is recorded. The first that fits; subclasses stand before their bases.
_CODES: Final = (
    (ai.ModelQuotaExceededError, "quota_limited"),
    (ai.ModelRateLimitError, "rate_limited"),
    (ai.ModelNotFoundError, "unknown_model"),
    (_PASSING, "provider_unavailable"),
)


def trouble_of(error: BaseException) -> Trouble:
    """What kind of cure a failure has."""
    if isinstance(error, _PASSING) or (isinstance(error, ai.ModelHTTPError) and error.status_code == 408):
        return "passing"
    return "model" if isinstance(error, ai.ModelAPIError | AgentUnavailable | ExtraMissing) else "final"


def code_of(error: BaseException) -> str:
    """The failure code that the class of an error proves; empty if it proves none."""
    if isinstance(error, AgentUnavailable):
        return str(error.details.get("code", ""))
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), "")
