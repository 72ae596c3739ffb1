"""Which model is asked next, by what went wrong."""

from __future__ import annotations

from perdure.agents.house.candidate import Candidate
from perdure.agents.house.chain import RETRIES_MAX, WAIT_SECONDS_MAX, Chain, Try

FIRST, SECOND, THIRD = (Candidate("p", name) for name in ("first", "second", "third"))


def chain() -> Chain:
    return Chain((FIRST, SECOND, THIRD))


def test_a_passing_trouble_is_waited_out_longer_each_time_then_the_next_is_asked() -> None:
    one = chain()
    tries = [one.after("passing") for _ in range(RETRIES_MAX + 1)]
    assert tries == [Try(FIRST, 2.0), Try(FIRST, 4.0), Try(FIRST, 8.0), Try(SECOND)]


def test_every_candidate_has_tries_of_its_own_and_the_last_one_ends_the_turn() -> None:
    one = chain()
    tries = [one.after("passing") for _ in range(3 * (RETRIES_MAX + 1))]
    assert [t.candidate for t in tries if t] == [FIRST] * 3 + [SECOND] * 4 + [THIRD] * 4
    assert tries[-1] is None


def test_a_trouble_with_the_model_moves_on_at_once() -> None:
    one = chain()
    assert [one.after("model"), one.after("model"), one.after("model")] == [Try(SECOND), Try(THIRD), None]


def test_any_other_trouble_ends_the_turn() -> None:
    assert chain().after("final") is None


def test_the_provider_may_ask_for_a_longer_wait_but_not_for_a_shorter() -> None:
    assert chain().after("passing", 30.0) == Try(FIRST, 30.0)
    assert chain().after("passing", 0.1) == Try(FIRST, 2.0)


def test_a_provider_that_asks_for_too_long_a_wait_is_left() -> None:
    assert chain().after("passing", WAIT_SECONDS_MAX) == Try(FIRST, WAIT_SECONDS_MAX)
    assert chain().after("passing", WAIT_SECONDS_MAX + 1) == Try(SECOND)
    assert Chain((FIRST,)).after("passing", WAIT_SECONDS_MAX + 1) is None


def test_an_answer_gives_the_candidate_its_tries_back() -> None:
    one = chain()
    for _ in range(RETRIES_MAX):
        one.after("passing")
    one.answered()
    assert one.after("passing") == Try(FIRST, 2.0)


def test_a_new_turn_begins_with_the_last_good_candidate_then_the_primary() -> None:
    one = chain()
    one.after("model")
    one.answered()
    one.restart()
    assert one.current == SECOND
    assert [one.after("model"), one.after("model"), one.after("model")] == [Try(FIRST), Try(THIRD), None]
