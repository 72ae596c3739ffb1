"""What may be stored: the JSON check, the canonical text, digests, bounds, redaction (spec/journal.md 3 and 4).

One check, before any transaction. Exact types only: a subclass or a tuple would come back as something else after a
resume, and then the resumed code would not do what the first one did.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from msgspec import Raw

from perdure.errors import LimitReached, PayloadInvalid

VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
TEXT_BYTES_MAX: Final = 16 * 1024

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DEPTH_FAST: Final = 50


def _make_encoder() -> Callable[[Any], str]:
    """Canonical JSON of a plain value: sorted keys, no spaces, no NaN.

    `json` builds its C encoder anew at each call, which costs more than a small value; this one is built once. It
    keeps no list of the containers it is inside of, so what it gets has been checked for cycles.
    """
    try:
        from json.encoder import c_make_encoder  # type: ignore[attr-defined]  # noqa: PLC0415  absent outside CPython

        encode = c_make_encoder(None, _refuse, json.encoder.encode_basestring, None, ":", ",", True, False, False)
        return lambda value: "".join(encode(value, 0))
    except (ImportError, TypeError):
        return json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not plain JSON")


_dumps = _make_encoder()
_loads: Final = json.JSONDecoder().decode
_scan: Final[Any] = vars(json.JSONDecoder())["scan_once"]  # `decode` without its two looks for white space
_SCALARS: Final = frozenset({str, int, bool, type(None)})


def dump(value: Any, *, what: str = "value", bytes_max: int = VALUE_BYTES_MAX) -> str:
    """The canonical JSON text of a value (sorted keys, no spaces).

    Raises PayloadInvalid with the path of what is not plain JSON, LimitReached when the text is too long.
    """
    check(value, what)
    try:
        text = _dumps(value)
    except RecursionError:
        problem = "it is nested too deeply"
        raise PayloadInvalid(f"{what} cannot be stored as JSON: {problem}.", path=what, got=problem) from None
    if len(text) > bytes_max // 4 and len(text.encode()) > bytes_max:
        raise LimitReached(
            f"{what} is larger than {bytes_max} bytes, the most a stored value may have.", limit=bytes_max
        )
    return text


def raw(value: Any, *, what: str = "value") -> Raw:
    """`dump` in the form that events carry."""
    return Raw(dump(value, what=what).encode())


def load(text: str | bytes | Raw) -> Any:
    """The value of a stored text. Small and large integers keep every digit."""
    if type(text) is not str:
        text = bytes(text).decode()  # type: ignore[arg-type]
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return _loads(text)  # says what is wrong
    return value if end == len(text) else _loads(text)


def digest_of_text(text: str) -> str:
    """`digest` of something whose canonical JSON text is at hand."""
    return "h" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def digest(*parts: Any) -> str:
    """'h' and 32 hex digits over the canonical JSON of checked parts: what a call is compared by on replay."""
    return "h" + sha256(_dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def check(value: Any, what: str = "value") -> None:
    """Raise PayloadInvalid unless the value is plain JSON. Iterative; sharing is fine, cycles are not."""
    if not _is_plain(value):
        path, problem = _first_problem(value)
        raise PayloadInvalid(f"{what}{path} cannot be stored as JSON: {problem}.", path=what + path, got=problem)


def _is_plain(root: Any) -> bool:
    try:
        return _is_plain_within([root], _DEPTH_FAST)
    except RecursionError:
        return _is_plain_at_any_depth(root)


def _is_plain_within(values: Iterable[Any], depth: int) -> bool:
    """The fast walk. It does not look for cycles, but no cycle ends within `depth`: then it raises RecursionError."""
    for value in values:
        kind = type(value)
        if kind is str:
            if not value.isascii() and _SURROGATE.search(value):
                return False
        elif kind is int or kind is bool or value is None:
            pass
        elif kind is float:
            if not math.isfinite(value):
                return False
        elif kind is dict:
            if depth == 0:
                raise RecursionError
            if not _are_keys(value) or not _is_plain_within(value.values(), depth - 1):
                return False
        elif kind is list:
            if depth == 0:
                raise RecursionError
            if not _is_plain_within(value, depth - 1):
                return False
        else:
            return False
    return True


def _are_keys(keys: Iterable[Any]) -> bool:
    return all([type(key) is str and (key.isascii() or not _SURROGATE.search(key)) for key in keys])  # noqa: C419  a list is faster


def _is_plain_at_any_depth(root: Any) -> bool:
    open_ids: set[int] = set()  # the containers we are inside of
    stack: list[Any] = [root]
    while stack:
        value = stack.pop()
        kind = type(value)
        if kind is _Leave:
            open_ids.discard(value.id)
        elif kind is dict or kind is list:
            if id(value) in open_ids or (kind is dict and not _are_keys(value)):
                return False
            open_ids.add(id(value))
            stack.append(_Leave(id(value)))
            stack.extend(value.values() if kind is dict else value)
        elif not _is_plain_within([value], 0):
            return False
    return True


class _Leave:
    """Marks on the stack where a container ends."""

    __slots__ = ("id",)

    def __init__(self, identity: int) -> None:
        self.id = identity


def _has_surrogate(text: str) -> bool:
    return _SURROGATE.search(text) is not None


def _first_problem(root: Any) -> tuple[str, str]:
    """Where and what the first problem is; only a refusal pays for this walk."""
    stack: list[tuple[Any, str, tuple[int, ...]]] = [(root, "", ())]
    while stack:
        value, path, inside = stack.pop()
        if id(value) in inside:
            return path, "got a cycle"
        kind = type(value)
        if kind is dict:
            for key in value:
                if type(key) is not str or _has_surrogate(key):
                    return path, f"got the key {key!r}"
            stack.extend((v, f"{path}.{k}", (*inside, id(value))) for k, v in reversed(value.items()))
        elif kind is list:
            stack.extend((v, f"{path}[{i}]", (*inside, id(value))) for i, v in reversed(list(enumerate(value))))
        elif kind is str and _has_surrogate(value):
            return path, "got a lone surrogate"
        elif kind is float and not math.isfinite(value):
            return path, f"got {'NaN' if math.isnan(value) else 'an infinite number'}"
        elif kind not in _SCALARS and kind is not float:
            return path, f"got {kind.__name__}"
    return "", "it changed while it was read"


# --- redaction

# Each pattern begins with fixed text and repeats within bounds, so that redacting takes time in proportion to the text.
_KEYWORD: Final = r"(?:api_?key|token|credential|secret|password|cookie)"
_PATTERNS: Final = tuple(
    (re.compile(pattern, flags), replacement)
    for pattern, flags, replacement in (
        (r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,8192}?-----END [A-Z ]{0,40}PRIVATE KEY-----", re.DOTALL,
         "[redacted key]"),
        (r"\beyJ[\w-]{8,4096}\.[\w-]{4,4096}\.[\w-]{4,4096}", 0, "[redacted token]"),
        (r"\b(?:sk-[\w-]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,})",
         0, "[redacted key]"),
        (r"(?i)\b(authorization\s{0,8}[:=]\s{0,8}(?:bearer|basic)\s{1,8})[^\s\"',;]+", 0, r"\1[redacted]"),
        (r"(?i)\b(bearer\s{1,8})(?!\[redacted)[\w.~+/=-]{8,}", 0, r"\1[redacted]"),
        (rf"(?i)({_KEYWORD}[\w-]{{0,64}}\"\s{{0,8}}:\s{{0,8}}\")(?!\[redacted)[^\"]+", 0, r"\1[redacted]"),
        (rf"(?i)({_KEYWORD}\s{{0,8}}[:=]\s{{0,8}}[\"']?)(?!\[redacted)[^\s\"',;&}}]+", 0, r"\1[redacted]"),
        (r"(://)(?!\[redacted)[^\s/@:]{1,256}(?::[^\s/@]{0,256})?@", 0, r"\1[redacted]@"),
    )
)  # fmt: skip
_SECRET_NAMES: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD")


# What every pattern above needs somewhere: most texts have none of it and are done after one look.
_SUSPECT: Final = re.compile(
    r"(?i)://|eyJ|sk-|gh[pousr]_|github_pat|xox|akia|aiza|api_?key|token|credential|secret|password|cookie|bearer|basic"
    r"|private key"
)


@lru_cache(maxsize=4)
def _secrets(_variables: int) -> tuple[str, ...]:
    """The values of environment variables that are secrets by their name; read again when variables come or go."""
    return tuple(v for k, v in os.environ.items() if len(v) >= 8 and k.upper().endswith(_SECRET_NAMES))


def redact(text: str) -> str:
    """`text` without secrets; redacting again changes nothing (spec/control.md 2)."""
    for value in _secrets(len(os.environ)):
        if value in text:
            text = text.replace(value, "[redacted]")
    if _SUSPECT.search(text) is None:
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def bounded(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """`text` redacted, then cut to its last `bytes_max` bytes with a mark where it was cut."""
    if len(text) > 4 * bytes_max:  # far more than is kept, so that no secret is cut in two at what is kept
        text = "[... cut]\n" + text[-4 * bytes_max :]
    text = redact(text)
    if len(text) <= bytes_max // 4 and text.isascii():
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    return "[... cut]\n" + data[-bytes_max:].decode("utf-8", "ignore")
