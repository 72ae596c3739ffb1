"""Classification of failures: evidence in its order, and what the codes mean."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors
from perdure.events import Failure
from perdure.failures import classify, facts, user_message, verdict

NOW_MS = 1_700_000_000_000


class ProviderError(Exception):
    """An error of a foreign library, with whatever fields."""

    def __init__(self, text="", **fields):
        super().__init__(text)
        vars(self).update(fields)


class RateLimitError(Exception):
    pass


def code(error, origin="provider"):
    return classify(error, origin, now_ms=NOW_MS).code


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProviderError(status_code=401), "invalid_api_key"),
        (ProviderError("please log in", status_code=401), "login_required"),
        (ProviderError("No API key provided", status=401), "missing_api_key"),
        (ProviderError("please log in", status_code=403), "forbidden_config"),
        (ProviderError("model not found", status_code=403), "unknown_model"),
        (ProviderError(status_code=429), "rate_limited"),
        (ProviderError(code="503"), "provider_unavailable"),
        (ProviderError(code="Insufficient-Quota"), "quota_limited"),
        (ProviderError("incorrect api key", code="login_required"), "invalid_api_key"),
        (ProviderError("whatever", code="login_required"), "login_required"),
        (ProviderError(body={"error": {"type": "overloaded_error"}}), "provider_unavailable"),
        (ProviderError(stop_reason="aborted"), "cancelled"),
        (RateLimitError(), "rate_limited"),
        (TimeoutError(), "provider_unavailable"),
        (ConnectionResetError(), "provider_unavailable"),
        (errors.TimedOut("too slow"), "timed_out"),
        (errors.AgentError("said no", code="quota_exceeded"), "quota_limited"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_evidence_of_a_provider_has_its_code(error, expected):
    assert code(error) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Request was aborted", "unknown"),
        ("You hit your usage limit", "quota_limited"),
        ("Rate limit reached", "rate_limited"),
        ("The provided key is not valid: invalid", "invalid_api_key"),
        ("no model configured", "missing_api_key"),
        ("Please run /login", "login_required"),
        ("your OAuth access token has gone", "login_required"),
        ("model gpt-9 does not exist", "unknown_model"),
        ("access denied", "forbidden_config"),
        ("the model seems to be down", "provider_unavailable"),
        ("worker startup timeout", "unknown"),
        ("it just broke", "unknown"),
    ],
)
def test_the_text_of_a_provider_is_the_last_evidence(text, expected):
    assert code(ProviderError(text)) == expected


def test_the_text_of_a_tool_or_an_author_is_never_read_for_meaning():
    assert code(ProviderError("rate limit, please log in"), "tool") == "unknown"
    assert code(ProviderError("rate limit, please log in"), "author") == "unknown"


def test_infrastructure_words_count_only_from_the_engine():
    assert code(ProviderError("worker startup timeout"), "engine") == "worker_startup_failed"


def test_a_deeper_code_beats_an_outer_status():
    assert code(caused(ProviderError(status=503), ProviderError(code="insufficient_quota"))) == "quota_limited"


def test_an_outer_status_beats_the_text_of_a_cause():
    assert code(caused(ProviderError(status=503), ProviderError("please log in"))) == "provider_unavailable"


def test_process_evidence_vetoes_cancelled():
    failure = classify(ProviderError("aborted", exit_code=1, stderr=b"boom"), "provider")
    assert (failure.code, failure.exit_code, failure.stderr) == ("unknown", 1, "boom")
    assert code(caused(asyncio.CancelledError(), ProviderError(returncode=-9))) == "unknown"


def test_a_cycle_of_causes_ends():
    first, second = ProviderError("a"), ProviderError("b")
    caused(first, second)
    caused(second, first)
    assert code(first) == "unknown"


def test_evidence_deeper_than_eight_is_not_looked_at():
    def chain(depth):
        error = ProviderError(code="rate_limited")
        for _ in range(depth):
            error = caused(ProviderError("x"), error)
        return error

    assert code(chain(8)) == "rate_limited"
    assert code(chain(20)) == "unknown"


def test_a_suppressed_context_is_no_evidence():
    error = ProviderError("x")
    error.__context__ = ProviderError(code="rate_limited")
    assert code(error) == "rate_limited"
    error.__suppress_context__ = True
    assert code(error) == "unknown"


def test_a_group_whose_members_disagree_is_unknown():
    assert code(ExceptionGroup("g", [RateLimitError(), ValueError("x")])) == "unknown"


def test_a_group_of_recoverable_failures_keeps_the_code_and_a_hint():
    failure = classify(ExceptionGroup("g", [RateLimitError(), caused(RateLimitError(), ProviderError(retry_after=3))]))
    assert (failure.code, failure.retry_after_ms) == ("rate_limited", 3000)


def test_a_cancelled_member_kills_the_group():
    assert code(BaseExceptionGroup("g", [RateLimitError(), asyncio.CancelledError()])) == "cancelled"


def test_a_group_of_one_is_that_one():
    assert code(ExceptionGroup("g", [ProviderError(status=429)])) == "rate_limited"


def test_a_permission_error_of_a_tool_is_unknown_and_resumable():
    found = code(PermissionError("denied"), "tool")
    assert (found, facts(found).resumable, facts(found).disposition) == ("unknown", True, "terminal_failed")


def test_a_timeout_of_a_tool_timed_out():
    assert code(TimeoutError(), "tool") == "timed_out"


def test_a_failed_assertion_of_the_engine_is_corrupt_one_of_an_author_is_unknown():
    assert code(AssertionError(), "engine") == "corrupt"
    assert code(AssertionError(), "author") == "unknown"


def test_a_refusal_of_perdure_keeps_its_code_and_reads_as_unknown():
    found = code(errors.PayloadInvalid("no"), "tool")
    assert (found, facts(found)) == ("payload_invalid", facts("unknown"))


def test_a_failure_that_was_classified_before_is_kept():
    failure = Failure(code="rate_limited", message="slow down")
    assert classify(errors.StageFailed("review failed", failure=failure)) is failure


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"retry_after_ms": 12}, 12),
        ({"retry_after_seconds": 1.5}, 1500),
        ({"retry_after": "7"}, 7000),
        ({"headers": {"Retry-After": "9"}}, 9000),
        ({"headers": {"RETRY-AFTER": "Wed, 21 Oct 2015 07:28:00 GMT"}}, 0),
        ({"headers": {"retry-after": "Tue, 14 Nov 2023 22:13:30 GMT"}}, 10_000),
        ({"retry_after": -3}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": True}, None),
        ({"response": ProviderError(headers={"retry-after": "2"})}, 2000),
    ],
)
def test_a_hint_when_to_retry_is_found_in_any_form(fields, expected):
    assert classify(ProviderError(status=429, **fields), "provider", now_ms=NOW_MS).retry_after_ms == expected


def test_text_is_redacted_and_bounded_and_names_the_class():
    failure = classify(ProviderError('{"token": "abc"}' + "x" * 40_000))
    assert "abc" not in failure.message
    assert len(failure.message) < 17_000
    assert failure.type == "ProviderError"
    assert classify(ValueError()).message == "ValueError"


def test_an_explicit_cause_is_kept_three_deep():
    error = ValueError("0")
    for n in range(1, 6):
        error = caused(ValueError(str(n)), error)
    failure = classify(error)
    texts = []
    while failure is not None:
        texts.append(failure.message)
        failure = failure.cause
    assert texts == ["5", "4", "3", "2"]


def test_an_error_that_breaks_when_it_is_looked_at_is_classified_all_the_same():
    class Hostile(Exception):
        @property
        def code(self):
            raise RuntimeError

        def __str__(self):
            raise RuntimeError

    assert classify(Hostile()).message == "Hostile"


@given(st.recursive(st.sampled_from([401, 429, 503, 0]), lambda inner: st.lists(inner, min_size=1, max_size=3)))
def test_classification_always_gives_a_code_that_reads(shape):
    def build(one):
        if isinstance(one, list):
            return ExceptionGroup("g", [build(member) for member in one])
        return ProviderError("x", status=one)

    assert facts(code(build(shape))).disposition in {"active_blocked", "terminal_failed", "terminal_killed"}


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["rate_limited", "quota_limited"], "blocked"),
        (["rate_limited", "unknown"], "failed"),
        (["rate_limited", "cancelled", "unknown"], "killed"),
        (["worker_lost"], "failed"),
        (["never_heard_of"], "failed"),
        ([], "failed"),
    ],
)
def test_the_verdict_over_failures(codes, expected):
    assert verdict(codes) == expected


def test_guidance_replaces_the_providers_words_only_for_configuration():
    assert user_message(Failure(code="invalid_api_key", message="sk no")).startswith("The provider refused the API key")
    assert user_message(Failure(code="unknown", message="boom")) == "boom"
