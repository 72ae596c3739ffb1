"""What the words of a foreign program's error mean: the last resort of failures.classify.

Text is read as lower-case words and digits, so punctuation and case do not matter; the first phrase of the list that
occurs wins. A provider's message may say anything on this list but the infrastructure phrases, which only a text
relayed from another process of ours may use; a message of an author's code or tool is never read for meaning.
"""

from __future__ import annotations

import re
from typing import Final

TEXT_MAX: Final = 16 * 1024
_WORD: Final = re.compile(r"[a-z0-9]+")

_ENGINE: Final = (
    ("worker_cleanup_unconfirmed", ("cleanup unconfirmed", "cleanup was not confirmed")),
    ("worker_retry_limit", ("retry limit",)),
    ("worker_startup_failed", ("startup timeout", "startup timed out", "exit before ready", "exited before ready")),
    ("worker_lost", ("exit before acknowledgement", "exited before acknowledgement")),
    ("stale_work_lease", ("stale lease", "stale admission")),
    ("intercom_unavailable", ("messaging runtime inactive",)),
    ("storage_unavailable", ("storage unavailable",)),
)
_RATE: Final = (
    ("unknown", ("aborted", "cancelled", "canceled")),  # looks cancelled, but nobody really cancelled it
    ("rate_limited", ("429",)),
    ("quota_limited", ("quota", "usage limit")),
    ("rate_limited", ("rate limit", "rate limited", "too many requests")),
)
_MISSING_KEY: Final = (
    "missing api key", "missing key", "no api key", "api key is missing", "api key not set", "api key is not set",
    "api key required", "api key is required", "no model configured", "no model selected", "no model",
)  # fmt: skip
_LOGIN: Final = (
    "log in", "login", "logged in", "logged out", "sign in", "signed in", "signed out", "authentication required",
)  # fmt: skip
_NO_MODEL: Final = (
    "model not found", "unknown model", "model does not exist", "no such model", "unsupported model",
    "model is not supported", "model not supported",
)  # fmt: skip
_DENIED: Final = ("access denied", "permission denied", "forbidden", "not authorized", "not permitted")
_DOWN: Final = (
    "overloaded", "unavailable", "bad gateway", "gateway timeout", "connection reset", "connection refused",
    "network error", "internal server error",
)  # fmt: skip

_WRONG_WORDS: Final = frozenset({"invalid", "incorrect", "wrong", "expired", "revoked"})
_CREDENTIAL_WORDS: Final = frozenset({"token", "tokens", "credential", "credentials", "session", "expired"})
_OUTAGE_WORDS: Final = frozenset({"outage", "down", "offline", "capacity", "busy"})


def code_of_text(text: str, origin: str) -> str | None:
    """The failure code that the first known phrase of a text stands for; None when no phrase is known."""
    if origin not in {"provider", "engine"}:
        return None
    words = _WORD.findall(text[:TEXT_MAX].lower())
    line = f" {' '.join(words)} "
    if origin == "engine":
        return _first(line, _ENGINE)
    return _first(line, _RATE) or _of_access(words, line)


def _of_access(words: list[str], line: str) -> str | None:
    """Keys, logins, models, permissions, outages: in this order."""
    if _near(words, {"key", "keys"}, _WRONG_WORDS, 6):
        return "invalid_api_key"
    if _has(line, _MISSING_KEY):
        return "missing_api_key"
    if _has(line, _LOGIN) or _near(words, {"oauth"}, _CREDENTIAL_WORDS, 8):
        return "login_required"
    if _has(line, _NO_MODEL) or (" model " in line and _has(line, ("does not exist", "not found"))):
        return "unknown_model"
    if _has(line, _DENIED):
        return "forbidden_config"
    if _has(line, _DOWN) or _near(words, {"model", "provider"}, _OUTAGE_WORDS, 8):
        return "provider_unavailable"
    return None


def _first(line: str, table: tuple[tuple[str, tuple[str, ...]], ...]) -> str | None:
    return next((code for code, phrases in table if _has(line, phrases)), None)


def _has(line: str, phrases: tuple[str, ...]) -> bool:
    return any(f" {phrase} " in line for phrase in phrases)


def _near(words: list[str], these: set[str], those: frozenset[str], words_max: int) -> bool:
    """Whether one of `these` and one of `those` stand at most `words_max` words apart."""
    last: dict[bool, int] = {}
    for place, word in enumerate(words):
        if word not in these and word not in those:
            continue
        is_this = word in these
        other = last.get(not is_this)
        if other is not None and place - other <= words_max:
            return True
        last[is_this] = place
    return False
