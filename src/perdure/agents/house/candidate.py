"""A model by the name people write: `provider/id[:effort]`, such as `anthropic/claude-sonnet-5:high`.

The id may hold slashes and colons of its own (`openrouter/qwen/qwen3-coder:free`): only one of the known efforts after
the last colon is an effort.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from perdure.errors import UsageError

EFFORTS: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model that may answer. `effort` is how hard it is to think; empty = as it likes."""

    provider: str
    model: str
    effort: str = ""

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.provider}/{self.model}{f':{self.effort}' if self.effort else ''}"


def parse_candidate(text: str) -> Candidate:
    """The candidate that a text names. Raises UsageError unless it names a provider and a model."""
    rest, _, effort = text.rpartition(":")
    if effort not in EFFORTS or not rest:
        rest, effort = text, ""
    provider, slash, model = rest.partition("/")
    if not (provider and slash and model):
        raise UsageError(
            f"{text!r} names no model: write provider/model, such as openai/gpt-5.2 or anthropic/claude-sonnet-5, and "
            f"an effort after a colon if you like ({', '.join(EFFORTS)}).",
            model=text,
        )
    return Candidate(provider, model, effort)


def parse_candidates(texts: Iterable[str]) -> tuple[Candidate, ...]:
    """The candidates in order, each once."""
    return tuple(dict.fromkeys(parse_candidate(text) for text in texts))
