"""Why something failed: from an exception to one stable code, and from a code to what it means.

`classify` looks at evidence in a fixed order: process output vetoes "cancelled"; then the error's own class, code and
name; then related errors (causes, groups, bodies); then an HTTP status; the text of a message last, and only that of
a foreign program. Only the code and redacted text are stored. What a code means (`facts`) is derived from the table on
every read, so old records follow a corrected table. Nothing but this file and phrases.py decides by a message's text.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from typing import Any, Final, Literal, NamedTuple

from perdure import errors
from perdure.clock import SystemClock
from perdure.events import Failure
from perdure.phrases import code_of_text
from perdure.values import bounded

Origin = Literal["provider", "tool", "engine", "author"]
Disposition = Literal["active_blocked", "terminal_failed", "terminal_killed"]
Verdict = Literal["blocked", "failed", "killed"]

DEPTH_MAX: Final = 8
CAUSES_MAX: Final = 3

# --- what a code means


class Facts(NamedTuple):
    """What a failure code means. `guidance` is said to people instead of the provider's own words."""

    kind: str
    retryable: bool
    resumable: bool
    recoverability: Literal["recoverable", "non_recoverable", "unknown"]
    disposition: Disposition
    guidance: str = ""


def _rows(facts: Facts, *codes: str) -> dict[str, Facts]:
    return dict.fromkeys(codes, facts)


_UNKNOWN: Final = Facts("unknown", False, True, "unknown", "terminal_failed")
_AUTH: Final = Facts("auth", True, True, "recoverable", "active_blocked")
# A wrong key or model blocks the run instead of killing it: hours of finished steps are worth more than a rotated key.
_WRONG: Final = Facts("provider", False, True, "non_recoverable", "active_blocked")

_FACTS: Final[dict[str, Facts]] = {
    "login_required": _AUTH._replace(guidance="The agent is not logged in. Log in, then resume the run."),
    "missing_api_key": _AUTH._replace(guidance="The provider has no API key. Set it, then resume the run."),
    "invalid_api_key": _WRONG._replace(
        kind="auth", guidance="The provider refused the API key. Correct it, then resume the run."
    ),
    "unknown_model": _WRONG._replace(
        guidance="The provider does not know the model. Name another, then resume the run."
    ),
    "forbidden_config": _WRONG._replace(
        guidance="The provider denied access. Correct the account, model or permissions, then resume the run."
    ),
    **_rows(Facts("rate_limit", True, True, "recoverable", "active_blocked"), "rate_limited", "quota_limited"),
    **_rows(Facts("provider", True, True, "recoverable", "active_blocked"), "provider_unavailable"),
    **_rows(Facts("cancelled", False, False, "non_recoverable", "terminal_killed"), "cancelled"),
    **_rows(
        Facts("infrastructure", True, True, "recoverable", "terminal_failed"),
        "worker_lost",
        "worker_cleanup_unconfirmed",
        "worker_retry_limit",
        "worker_startup_failed",
        "stale_work_lease",
        "intercom_unavailable",
        "storage_unavailable",
    ),
    **_rows(Facts("infrastructure", True, True, "recoverable", "active_blocked"), "pending_stage_delivery_failed"),
    **_rows(Facts("definition", False, True, "recoverable", "active_blocked"), "replay_mismatch"),
    **_rows(Facts("budget", False, True, "recoverable", "active_blocked"), "budget_exceeded"),
    **_rows(
        Facts("task", False, True, "unknown", "terminal_failed"),
        "timed_out",
        "schema_unmet",
        "agent_unavailable",
        "agent_protocol",
        "human_input_unavailable",
        "git_failed",
        "corrupt",
    ),
}


def facts(code: str) -> Facts:
    """What a recorded code means. A code this version does not list reads as unknown."""
    return _FACTS.get(code, _UNKNOWN)


def user_message(failure: Failure) -> str:
    """What to tell a person: fixed guidance where the cause is the configuration, else the redacted message."""
    return facts(failure.code).guidance or failure.message


def verdict(codes: Iterable[str], *, stages_existed: bool = True) -> Verdict:
    """How a run ends by the codes of its failures: killed, else failed, else blocked if every one is recoverable."""
    known = [(code, facts(code)) for code in codes]
    killed = [code for code, one in known if one.disposition == "terminal_killed"]
    if killed:
        return "killed" if stages_existed or "cancelled" in killed else "failed"
    if known and all(one.disposition == "active_blocked" for _, one in known):
        return "blocked"
    return "failed"


# --- evidence

_SIGNALS: Final[dict[str, str]] = {
    **dict.fromkeys(("auth_required", "not_logged_in", "login_required"), "login_required"),
    **dict.fromkeys(("missing_api_key", "no_api_key"), "missing_api_key"),
    **dict.fromkeys(("invalid_api_key", "invalid_credentials", "authentication_error"), "invalid_api_key"),
    **dict.fromkeys(("rate_limited", "rate_limit_exceeded", "too_many_requests", "rate_limit_error"), "rate_limited"),
    **dict.fromkeys(("quota_exceeded", "insufficient_quota", "usage_limit_exceeded"), "quota_limited"),
    **dict.fromkeys(("overloaded", "overloaded_error", "timeout", "network_error"), "provider_unavailable"),
    **dict.fromkeys(("unknown_model", "model_not_found", "unsupported_model"), "unknown_model"),
    **dict.fromkeys(("forbidden", "permission_denied", "model_access_denied"), "forbidden_config"),
    **{code: code for code in _FACTS if code != "cancelled"},
}
_BY_STATUS: Final[dict[int, str]] = {
    401: "invalid_api_key",
    403: "forbidden_config",
    429: "rate_limited",
    **dict.fromkeys((500, 502, 503, 504), "provider_unavailable"),
}
_ABOUT_ACCESS: Final = frozenset({"invalid_api_key", "missing_api_key", "unknown_model", "forbidden_config"})
_WALK_MAX: Final = 256


class _Finding(NamedTuple):
    code: str
    strong: bool = True  # a class, code, name or status; not a text


class _Seen(NamedTuple):
    """What one walk over an error shares: where it came from, process evidence, who was visited."""

    origin: Origin
    vetoed: bool
    ids: set[int]


def classify(error: BaseException, origin: Origin = "author", *, now_ms: int | None = None) -> Failure:
    """The failure to record for an exception: code, hint and redacted text. Never raises, never looks deeper than 8.

    `origin` says whose error it is; only a provider's and the engine's messages are read for meaning. `now_ms` (wall
    clock) turns a retry-after date into milliseconds.
    """
    known = getattr(error, "failure", None)
    if isinstance(error, errors.OperationFailed) and isinstance(known, Failure):
        return known
    related = list(_walk(error))
    process = next((one for one in related if _is_process(one)), None)
    found = _find(error, _Seen(origin, process is not None, set()), 0)
    now = SystemClock().wall_ms() if now_ms is None else now_ms
    return Failure(
        code=found.code if found else _own_code(error),
        message=bounded(_text(error) or type(error).__name__),
        type=type(error).__name__,
        retry_after_ms=next((ms for one in related if (ms := _retry_after_ms(one, now)) is not None), None),
        exit_code=_integer(_field(process, "exit_code", "returncode")) if process is not None else None,
        stdout=bounded(_string(_field(process, "stdout"))) if process is not None else "",
        stderr=bounded(_string(_field(process, "stderr"))) if process is not None else "",
        cause=_cause(error, CAUSES_MAX),
    )


def _own_code(error: BaseException) -> str:
    """A code that no row of the table has: perdure's own refusals keep theirs, which reads as unknown."""
    return error.code if isinstance(error, errors.PerdureError) else "unknown"


def _cause(error: BaseException, left: int) -> Failure | None:
    cause = error.__cause__
    if cause is None or left == 0:
        return None
    return Failure(
        code=_own_code(cause),
        message=bounded(_text(cause) or type(cause).__name__),
        type=type(cause).__name__,
        cause=_cause(cause, left - 1),
    )


def _find(one: Any, seen: _Seen, depth: int) -> _Finding | None:
    if depth > DEPTH_MAX or id(one) in seen.ids or len(seen.ids) >= _WALK_MAX:
        return None
    seen.ids.add(id(one))
    text = _text(one)
    if not seen.vetoed and _is_cancellation(one):
        return _Finding("cancelled")
    own = _own_evidence(one, text, seen.origin)
    if own is not None:
        return own
    related = _related_evidence(one, seen, depth)
    if related is not None and related.strong:
        return related
    status = _status(one)
    if status in _BY_STATUS:
        return _Finding(_refined(status, text))
    if related is not None:
        return related
    said = code_of_text(text, seen.origin)
    return _Finding(said, strong=False) if said else None


def _own_evidence(one: Any, text: str, origin: Origin) -> _Finding | None:
    """By class, then by semantic code, then by the name of the class."""
    if isinstance(one, TimeoutError) and not isinstance(one, errors.PerdureError):
        return _Finding("provider_unavailable" if origin == "provider" else "timed_out")
    if isinstance(one, ConnectionError) and origin == "provider":
        return _Finding("provider_unavailable")
    if isinstance(one, AssertionError) and origin == "engine":
        return _Finding("corrupt")
    found = next((_SIGNALS[code] for code in _semantic_codes(one) if code in _SIGNALS), None) or _by_class_name(one)
    if found == "login_required":  # a login code says little; the text may prove that a key is the trouble
        said = code_of_text(text, "provider")
        found = said if said in {"invalid_api_key", "missing_api_key"} else found
    return _Finding(found) if found else None


def _by_class_name(one: Any) -> str | None:
    if not isinstance(one, BaseException) or isinstance(one, errors.PerdureError | OSError | AssertionError):
        return None
    name = errors.snake(type(one).__name__)
    return _SIGNALS.get(name) or _SIGNALS.get(name.removesuffix("_error").removesuffix("_exception"))


def _related_evidence(one: Any, seen: _Seen, depth: int) -> _Finding | None:
    if isinstance(one, BaseExceptionGroup):
        return _of_group([_find(member, seen, depth + 1) for member in one.exceptions])
    found = [f for other in _related(one) if (f := _find(other, seen, depth + 1)) is not None]
    return next((f for f in found if f.strong), found[0] if found else None)


def _of_group(found: list[_Finding | None]) -> _Finding:
    """Any killed member wins; all recoverable: the first; members that disagree: unknown."""
    members = [f if f is not None else _Finding("unknown") for f in found]
    killed = [f for f in members if facts(f.code).disposition == "terminal_killed"]
    if killed:
        return killed[0]
    if all(f.code == members[0].code for f in members) or all(
        facts(f.code).recoverability == "recoverable" for f in members
    ):
        return members[0]._replace(strong=True)
    return _Finding("unknown")


# --- looking into errors


def _related(one: Any) -> Iterator[Any]:
    """What an error carries: nested errors, bodies, causes, members of a group."""
    for name in ("error", "response", "body"):
        nested = _field(one, name)
        if nested is not None and not isinstance(nested, str | bytes | int | float):
            yield nested
    diagnostics = _field(one, "diagnostics")
    if isinstance(diagnostics, list | tuple):
        yield from diagnostics
    if isinstance(one, BaseException):
        if one.__cause__ is not None:
            yield one.__cause__
        elif one.__context__ is not None and not one.__suppress_context__:
            yield one.__context__
    if isinstance(one, BaseExceptionGroup):
        yield from one.exceptions


def _walk(root: Any) -> Iterator[Any]:
    """The error and all it carries, nearest first, each once, at most 8 deep."""
    seen: set[int] = set()
    level = [root]
    for _ in range(DEPTH_MAX + 1):
        new = {id(one): one for one in level if id(one) not in seen}
        seen.update(new)
        yield from new.values()
        level = [other for one in new.values() for other in _related(one)][:_WALK_MAX]


def _field(one: Any, *names: str) -> Any:
    """The first of these fields that an error, its `details` or a JSON body has."""
    details = one.details if isinstance(one, errors.PerdureError) else one
    for name in names:
        try:
            value = details.get(name) if isinstance(details, Mapping) else getattr(details, name, None)
        except Exception:  # noqa: BLE001  a foreign object's property may do anything
            value = None
        if value is not None:
            return value
    return None


def _text(one: Any) -> str:
    if isinstance(one, BaseException):
        try:
            return str(one)
        except Exception:  # noqa: BLE001  an author's __str__ may do anything
            return ""
    return one if isinstance(one, str) else _string(_field(one, "message", "detail", "title"))


def _semantic_codes(one: Any) -> Iterator[str]:
    own = one.code if isinstance(one, errors.PerdureError) else one.get("type") if isinstance(one, Mapping) else None
    for code in (_field(one, "code"), own):
        if isinstance(code, str):
            yield re.sub(r"[-\s]+", "_", code.strip().lower())


def _status(one: Any) -> int:
    for name in ("status_code", "status", "http_status", "code"):
        status = _integer(_field(one, name))
        if status is not None and 100 <= status <= 599:
            return status
    return 0


def _is_process(one: Any) -> bool:
    if isinstance(one, BaseException | Mapping):
        exit_code = _integer(_field(one, "exit_code", "returncode"))
        return bool(exit_code) or bool(_string(_field(one, "stdout")) or _string(_field(one, "stderr")))
    return False


def _is_cancellation(one: Any) -> bool:
    return isinstance(one, asyncio.CancelledError) or _field(one, "stop_reason") in {"aborted", "cancelled"}


def _string(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _refined(status: int, text: str) -> str:
    """What a 401 or 403 is about, if its text says so."""
    may_say = {401: _ABOUT_ACCESS | {"login_required"}, 403: _ABOUT_ACCESS}.get(status, frozenset())
    said = code_of_text(text, "provider")
    return said if said in may_say else _BY_STATUS[status]


def _integer(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{3}", value) else None


def _retry_after_ms(one: Any, now_ms: int) -> int | None:
    """Milliseconds until a retry makes sense, from whatever form the hint has. A date in the past is 0."""
    headers = _field(one, "headers")
    spread = {str(k).lower(): v for k, v in headers.items()} if isinstance(headers, Mapping) else {}
    for value, unit_ms in (
        (_field(one, "retry_after_ms"), 1),
        (_field(one, "retry_after_seconds"), 1000),
        (_field(one, "retry_after"), 1000),
        (spread.get("retry-after"), 1000),
    ):
        ms = _delay_ms(value, unit_ms, now_ms)
        if ms is not None:
            return ms
    return None


def _delay_ms(value: Any, unit_ms: int, now_ms: int) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _until_date_ms(_string(value), now_ms)
    return round(number * unit_ms) if 0 <= number < 1e12 else None


def _until_date_ms(text: str, now_ms: int) -> int | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  only a retry hint with a date pays for it

    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0, round(aware.timestamp() * 1000) - now_ms)
