"""From names to models, and from a model's error to its meaning."""

from __future__ import annotations

import pytest
from pydantic_ai import exceptions as ai
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from perdure.agents.house.candidate import Candidate, parse_candidate
from perdure.agents.house.model import Endpoint, build_model, code_of, settings_for, trouble_of
from perdure.errors import AgentUnavailable

LOCAL = Endpoint("openai", "http://127.0.0.1:8080/v1")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_openai_at_a_base_url_speaks_chat_and_needs_no_key() -> None:
    model = build_model(Candidate("openai", "qwen3"), LOCAL)
    assert isinstance(model, OpenAIChatModel)
    assert (model.model_name, model.base_url) == ("qwen3", "http://127.0.0.1:8080/v1/")


def test_openai_itself_speaks_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert isinstance(build_model(Candidate("openai", "gpt-5.2"), Endpoint()), OpenAIResponsesModel)


def test_a_base_url_is_for_its_own_provider_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    model = build_model(Candidate("anthropic", "claude-sonnet-4-5"), LOCAL)
    assert isinstance(model, AnthropicModel)
    assert "127.0.0.1" not in model.base_url


@pytest.mark.parametrize(
    ("name", "code"), [("anthropic/claude-sonnet-4-5", "missing_api_key"), ("nobody/model", "unknown_model")]
)
def test_a_model_that_cannot_be_used_says_why_and_the_next_may_be_asked(name: str, code: str) -> None:
    with pytest.raises(AgentUnavailable, match=name) as caught:
        build_model(parse_candidate(name), Endpoint())
    assert (trouble_of(caught.value), code_of(caught.value)) == ("model", code)


@pytest.mark.parametrize(("effort", "thinking"), [("high", "high"), ("off", False), ("", None)])
def test_an_effort_is_passed_on_and_the_client_never_retries_by_itself(effort: str, thinking: object) -> None:
    settings = settings_for(Candidate("openai", "x", effort))
    assert settings.get("thinking") == thinking
    assert settings["max_retries"] == 0


@pytest.mark.parametrize(
    ("error", "trouble", "code"),
    [
        (ai.ModelRateLimitError("m", "slow down"), "passing", "rate_limited"),
        (ai.ModelOverloadedError("m", "busy"), "passing", "provider_unavailable"),
        (ai.ModelServerError("m", "oops"), "passing", "provider_unavailable"),
        (ai.ModelConnectionError("m", "cut"), "passing", "provider_unavailable"),
        (ai.ModelRequestTimeout("m", 5.0), "passing", "provider_unavailable"),
        (ai.ModelHTTPError(408, "m"), "passing", ""),
        (ai.ModelQuotaExceededError("m", "pay"), "model", "quota_limited"),
        (ai.ModelNotFoundError("m", "who?"), "model", "unknown_model"),
        (ai.ModelAuthenticationError("m", "no"), "model", ""),
        (ai.ModelContextWindowExceededError("m", "long"), "model", ""),
        (ai.UnexpectedModelBehavior("odd"), "final", ""),
        (ai.ContentFilterError("no"), "final", ""),
        (ValueError("a bug"), "final", ""),
    ],
)
def test_each_error_has_its_cure_and_its_code(error: Exception, trouble: str, code: str) -> None:
    assert (trouble_of(error), code_of(error)) == (trouble, code)
