"""A made-up value that satisfies a JSON Schema: the same for the same key, on every machine.

Understands what pydantic emits (draft 2020-12 without `not`, `if` and dynamic references). Text says that it is a
rehearsal where the schema leaves room. Recursion ends: below `DEPTH_FULL` levels the shallowest alternative is taken.
What no value can be found for raises SampleImpossible; nothing is returned that is known not to fit.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, TypeVar

from perdure.agents.pattern import text_for
from perdure.errors import AgentError

T = TypeVar("T")
Schema = dict[str, Any]

DEPTH_FULL: Final = 4
ITEMS_EXTRA_MAX: Final = 2  # items drawn beyond the least the schema asks for
UNIQUE_TRIES: Final = 60

_FORMATS: Final[dict[str, Callable[[int], str]]] = {
    "date-time": lambda n: f"2026-01-{n % 28 + 1:02}T{n % 24:02}:00:00Z",
    "date": lambda n: f"2026-01-{n % 28 + 1:02}",
    "time": lambda n: f"{n % 24:02}:{n % 60:02}:00",
    "duration": lambda n: f"PT{n % 90 + 1}S",
    "uuid": lambda n: str(uuid.uuid5(uuid.NAMESPACE_URL, f"rehearsal/{n}")),
    "uuid1": lambda n: f"{n:08x}-0000-1000-8000-000000000000",
    "uuid3": lambda n: str(uuid.uuid3(uuid.NAMESPACE_URL, f"rehearsal/{n}")),
    "uuid4": lambda n: f"{n:08x}-0000-4000-8000-000000000000",
    "uuid5": lambda n: str(uuid.uuid5(uuid.NAMESPACE_URL, f"rehearsal/{n}")),
    "email": lambda n: f"rehearsal-{n}@example.com",
    "name-email": lambda n: f"Rehearsal <rehearsal-{n}@example.com>",
    "idn-email": lambda n: f"rehearsal-{n}@example.com",
    "hostname": lambda n: f"rehearsal-{n}.example.com",
    "uri": lambda n: f"https://example.com/rehearsal/{n}",
    "multi-host-uri": lambda n: f"https://example.com/rehearsal/{n}",
    "uri-reference": lambda n: f"/rehearsal/{n}",
    "ipv4": lambda n: f"192.0.2.{n % 256}",
    "ipv4network": lambda n: f"192.0.2.{n % 256}/32",
    "ipv4interface": lambda n: f"192.0.2.{n % 256}/24",
    "ipv6": lambda n: f"2001:db8::{n:x}",
    "ipv6network": lambda n: f"2001:db8::{n:x}/128",
    "ipv6interface": lambda n: f"2001:db8::{n:x}/64",
    "ipvanyaddress": lambda n: f"192.0.2.{n % 256}",
    "ipvanynetwork": lambda n: f"192.0.2.{n % 256}/32",
    "ipvanyinterface": lambda n: f"192.0.2.{n % 256}/24",
    "path": lambda n: f"rehearsal/{n}.txt",
    "directory-path": lambda _: ".",
    "json-string": lambda n: json.dumps(f"rehearsal {n}"),
    "base64url": lambda _: "cmVoZWFyc2Fs",
    "regex": lambda _: "rehearsal",
    "color": lambda n: f"#{n:06x}",
}


class SampleImpossible(AgentError):
    """The rehearsal agent found no value that satisfies the schema. Give one in its script."""


class Draws:
    """A stream of numbers that depends on its key alone."""

    def __init__(self, *key: object) -> None:
        self._key = json.dumps([str(part) for part in key]).encode()
        self._count = 0

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        self._count += 1
        word = blake2b(self._key, digest_size=8, salt=self._count.to_bytes(8, "big")).digest()
        return int.from_bytes(word, "big") % limit

    def one(self, items: list[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]


def sample(schema: Schema, *key: object) -> Any:
    """A JSON value for the schema that depends on `schema` and `key` alone; SampleImpossible if none is found."""
    return _Sampler(schema, Draws(*key)).value(schema, 0, "")


class _Sampler:
    def __init__(self, root: Schema, draws: Draws) -> None:
        self._root = root
        self._draws = draws

    def value(self, schema: Schema | bool, depth: int, at: str) -> Any:
        if schema is False:
            raise SampleImpossible(f"The schema allows no value at {at or 'its root'}.", path=at)
        schema = {} if schema is True else self._flat(schema, at)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._draws.one(schema["enum"])
        for word in ("anyOf", "oneOf"):
            if options := schema.get(word):
                rest = {k: v for k, v in schema.items() if k != word}
                return self.value(_merged(self._pick(options, depth), rest), depth, at)
        kind = schema.get("type") or _kind_of(schema)
        if isinstance(kind, list):
            return self.value({**schema, "type": self._pick([{"type": k} for k in kind], depth)["type"]}, depth, at)
        if kind == "object":
            return self._object(schema, depth, at)
        if kind == "array":
            return self._array(schema, depth, at)
        return self._scalar(kind, schema, at)

    def _flat(self, schema: Schema, at: str) -> Schema:
        """The schema with its references and `allOf` merged in."""
        for _ in range(64):
            if "$ref" in schema:
                rest = {k: v for k, v in schema.items() if k != "$ref"}
                schema = _merged(self._target(schema["$ref"]), rest)
            elif "allOf" in schema:
                parts = schema["allOf"]
                schema = {k: v for k, v in schema.items() if k != "allOf"}
                for part in parts:
                    schema = _merged(self._flat(part, at), schema)
            else:
                return schema
        raise SampleImpossible(f"The schema's references at {at or 'its root'} lead in a circle.", path=at)

    def _target(self, ref: str) -> Schema:
        found: Any = self._root
        for part in ref.removeprefix("#").strip("/").split("/") if ref != "#" else []:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise SampleImpossible(f"The schema refers to {ref}, which is not in it.", ref=ref)
            found = found[name]
        return {} if found is True else dict(found)

    def _pick(self, alternatives: list[Schema | bool], depth: int) -> Schema:
        options = [{} if one is True else one for one in alternatives if one is not False]
        if not options:
            raise SampleImpossible("The schema has a choice of nothing.")
        if any(option.get("type") == "number" for option in options):
            # A number, or a text without any rule: how pydantic writes Decimal, which takes not any text.
            options = [option for option in options if option != {"type": "string"}]
        if depth < DEPTH_FULL:
            return self._draws.one(options)
        heights = [self._height(option, frozenset()) for option in options]
        return options[heights.index(min(heights))]

    def _height(self, schema: Schema | bool, inside: frozenset[str]) -> float:
        """How deep the shallowest value is; infinite inside a reference to itself."""
        if not isinstance(schema, dict):
            return 0
        if ref := schema.get("$ref"):
            return math.inf if ref in inside else self._height(self._target(ref), inside | {ref})
        if "const" in schema or "enum" in schema:
            return 0
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return min(self._height(option, inside) for option in schema[word])
        below = [self._height(part, inside) for part in schema.get("allOf", ())]
        fields = schema.get("properties", {})
        below += [1 + self._height(fields.get(name, True), inside) for name in schema.get("required", ())]
        if schema.get("minItems", 0):
            parts = [*schema.get("prefixItems", ()), schema.get("items", True)]
            below += [1 + self._height(part, inside) for part in parts]
        return max(below, default=0)

    def _object(self, schema: Schema, depth: int, at: str) -> dict[str, Any]:
        fields: dict[str, Any] = schema.get("properties", {})
        required = schema.get("required", [])
        shallow = depth < DEPTH_FULL
        made = {
            name: self.value(part, depth + 1, f"{at}.{name}")
            for name, part in fields.items()
            if name in required or (shallow and self._draws.below(4))
        }
        for name in required:
            made.setdefault(name, "rehearsal")
        patterns = schema.get("patternProperties")
        extra = schema.get("additionalProperties", not fields)
        least = schema.get("minProperties", 0)
        most = schema.get("maxProperties", math.inf)
        wanted = max(
            least, 1 + self._draws.below(ITEMS_EXTRA_MAX) if shallow and (isinstance(extra, dict) or patterns) else 0
        )
        for n in range(UNIQUE_TRIES):
            if len(made) >= min(wanted, most):
                break
            if patterns:
                pattern, part = self._draws.one(sorted(patterns.items()))
                name = self._scalar("string", {"pattern": pattern}, at)
            else:
                part = extra
                name = str(self.value(schema.get("propertyNames", {"const": f"rehearsal-{n + 1}"}), depth + 1, at))
            if name not in made:
                made[name] = self.value(part, depth + 1, f"{at}.{name}")
        if len(made) < least:
            raise SampleImpossible(f"The schema wants {least} properties at {at or 'its root'}.", path=at)
        return made

    def _array(self, schema: Schema, depth: int, at: str) -> list[Any]:
        made = [self.value(part, depth + 1, f"{at}[{i}]") for i, part in enumerate(schema.get("prefixItems", ()))]
        item = schema.get("items", not made)
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", math.inf)
        extra = self._draws.below(ITEMS_EXTRA_MAX + 1) if depth < DEPTH_FULL and item is not False and not made else 0
        wanted = min(max(least, 1) + extra, most) if depth < DEPTH_FULL and not made and item is not False else least
        unique = schema.get("uniqueItems", False)
        seen = {json.dumps(value, sort_keys=True) for value in made}
        for _ in range(UNIQUE_TRIES + int(wanted)):
            if len(made) >= wanted:
                break
            value = self.value(item, depth + 1, f"{at}[{len(made)}]")
            text = json.dumps(value, sort_keys=True)
            if not unique or text not in seen:
                seen.add(text)
                made.append(value)
        if len(made) < least:
            raise SampleImpossible(f"The schema wants {least} different items at {at or 'its root'}.", path=at)
        return made

    def _scalar(self, kind: str, schema: Schema, at: str) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return bool(self._draws.below(2))
        if kind in {"integer", "number"}:
            return self._number(schema, at, whole=kind == "integer")
        return self._text(schema, at)

    def _number(self, schema: Schema, at: str, *, whole: bool) -> int | float:
        low, high = _bounds(schema)
        step = schema.get("multipleOf", 1 if whole else None)
        if step is not None:
            if whole and step != int(step):
                step = 1 if math.isclose(1 / step, round(1 / step)) else step * round(1 / (step % 1))
            first, last = math.ceil(low / step), math.floor(high / step)
            first += first * step <= schema.get("exclusiveMinimum", -math.inf)
            last -= last * step >= schema.get("exclusiveMaximum", math.inf)
            if first > last:
                raise SampleImpossible(f"The schema leaves no number at {at or 'its root'}.", path=at)
            value = (first + self._draws.below(last - first + 1)) * step
            return int(value) if whole else round(value, 9)
        if low > high or (low == high and _is_open(schema)):
            raise SampleImpossible(f"The schema leaves no number at {at or 'its root'}.", path=at)
        value = float(low + (high - low) * (1 + self._draws.below(999)) / 1000)
        short = round(value * 4) / 4
        return short if low < short < high else value

    def _text(self, schema: Schema, at: str) -> str:
        n = self._draws.below(1000)
        if schema.get("contentMediaType") == "application/json":
            return json.dumps(self.value(schema.get("contentSchema", True), 0, at))
        least, most = schema.get("minLength", 0), schema.get("maxLength", 4000)
        if pattern := schema.get("pattern"):
            found = text_for(pattern, self._draws.below, least, most)
            if found is None:
                raise SampleImpossible(
                    f"No text was found for the pattern {pattern!r} at {at}.", path=at, pattern=pattern
                )
            return found
        if make := _FORMATS.get(schema.get("format", "")):
            return make(n)
        text = f"rehearsal: {at.lstrip('.') or 'text'} {n}"
        return (text if len(text) <= most else f"rehearsal {n}"[:most]).ljust(least, ".")


def _merged(base: Schema, over: Schema) -> Schema:
    """Both schemas at once: fields are united, the narrower bound wins, else what `over` says."""
    made = {**base, **over}
    for word in ("properties", "$defs"):
        if word in base and word in over:
            made[word] = {**base[word], **over[word]}
    if "required" in base and "required" in over:
        made["required"] = list(dict.fromkeys([*base["required"], *over["required"]]))
    for words, narrower in ((("minimum", "minLength", "minItems"), max), (("maximum", "maxLength", "maxItems"), min)):
        for word in words:
            if word in base and word in over:
                made[word] = narrower(base[word], over[word])
    return made


def _kind_of(schema: Schema) -> str:
    """The type a schema without `type` means."""
    for kind, words in (
        ("object", ("properties", "required", "additionalProperties", "patternProperties")),
        ("array", ("items", "prefixItems", "minItems")),
        ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ):
        if any(word in schema for word in words):
            return kind
    return "string"


def _is_open(schema: Schema) -> bool:
    return "exclusiveMinimum" in schema or "exclusiveMaximum" in schema


def _bounds(schema: Schema) -> tuple[float, float]:
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    if low == -math.inf:
        low = 0 if high == math.inf or high > 0 else high - 100
    if high == math.inf:
        high = low + 100
    return low, high
