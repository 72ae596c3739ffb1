"""Models by the names people write."""

from __future__ import annotations

import pytest

from perdure.agents.house.candidate import EFFORTS, Candidate, parse_candidate, parse_candidates
from perdure.errors import UsageError


@pytest.mark.parametrize(
    ("text", "candidate"),
    [
        ("openai/gpt-5.2", Candidate("openai", "gpt-5.2")),
        ("anthropic/claude-sonnet-5:high", Candidate("anthropic", "claude-sonnet-5", "high")),
        ("openrouter/qwen/qwen3-coder:free", Candidate("openrouter", "qwen/qwen3-coder:free")),
        ("openrouter/qwen/qwen3-coder:free:off", Candidate("openrouter", "qwen/qwen3-coder:free", "off")),
        ("ollama/qwen3:8b", Candidate("ollama", "qwen3:8b")),
    ],
)
def test_a_name_is_provider_model_and_perhaps_an_effort(text: str, candidate: Candidate) -> None:
    assert parse_candidate(text) == candidate
    assert str(candidate) == text


@pytest.mark.parametrize("text", ["", "gpt-5.2", "/gpt-5.2", "openai/", "openai/:high", "high", ":high"])
def test_what_names_no_provider_and_model_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"openai/gpt-5\.2"):
        parse_candidate(text)


def test_every_effort_is_understood() -> None:
    assert [parse_candidate(f"a/b:{effort}").effort for effort in EFFORTS] == list(EFFORTS)


def test_a_candidate_named_twice_is_asked_once() -> None:
    assert [str(one) for one in parse_candidates(["a/b", "c/d", "a/b"])] == ["a/b", "c/d"]
