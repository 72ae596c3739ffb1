"""Texts for patterns: what is returned matches, and nothing is returned rather than a text that does not."""

from __future__ import annotations

import re

import pytest

from perdure.agents.pattern import text_for
from perdure.agents.sample import Draws

PATTERNS = [
    r"^[a-f0-9]{40}$",
    r"^\S+@\S+\.\w{2,}$",
    r"^(?:https?|ftp)://[^\s/]+(?:/[^\s]*)?$",
    r"^[^a-z]{3}$",
    r"^[^\d\s]+$",
    r"^\D\W\S$",
    r"^(?P<year>\d{4})-(?:0[1-9]|1[0-2])$",
    r"needle",
    r"^a*?b+?c??$",
    r"^.{10,12}$",
    r"^[\w.-]+$",
    r"^(?!draft)[a-z]{4,8}$",
    r"",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_text_is_found_that_the_pattern_matches(pattern: str) -> None:
    draws = Draws(pattern)
    for _ in range(20):
        text = text_for(pattern, draws.below)
        assert text is not None
        assert re.search(pattern, text)


def test_length_bounds_are_kept() -> None:
    text = text_for(r"^[a-z]+$", Draws().below, 50, 60)
    assert text is not None
    assert 50 <= len(text) <= 60


@pytest.mark.parametrize(("pattern", "most"), [(r"^a{9}$", 5), (r"(", 9), (r"^\b$", 9), (r"^a\Bb\b\Bc$", 9)])
def test_no_text_is_invented_where_none_fits(pattern: str, most: int) -> None:
    assert text_for(pattern, Draws().below, 0, most) is None
