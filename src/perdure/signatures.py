"""Signatures: what an author's function takes and gives.

The parameters are read when the function is decorated; their type hints only on first use, so an author's module may
name types that are defined further down or imported for type checking. `bind` lies on the path of every tool step and
costs about a microsecond when all parameters are plain JSON types.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, Final

from perdure.errors import DefinitionInvalid, UsageError
from perdure.shapes import Shape, summary

MISSING: Final = inspect.Parameter.empty
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; `default` and `annotation` may be MISSING."""

    name: str
    kind: Any
    default: Any
    annotation: Any


class Signature:
    """The parameters of `fn` after the first `skip`, and its return annotation. `owner` names it in errors."""

    def __init__(self, fn: Callable[..., Any], owner: str, skip: int = 0) -> None:
        self.fn, self.owner = fn, owner
        self._python = inspect.signature(fn)
        self.parameters = tuple(
            Parameter(p.name, p.kind, p.default, p.annotation) for p in list(self._python.parameters.values())[skip:]
        )
        self._locals = _names_around(fn, [*(p.annotation for p in self.parameters), self._python.return_annotation])
        self._positional = tuple(p.name for p in self.parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._named = frozenset(p.name for p in self.parameters if p.kind in _NAMED)
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        self._required = frozenset(p.name for p in self.parameters if p.default is MISSING and p.kind not in variable)
        is_simple = self._required <= set(self._positional) and all(p.kind in _NAMED for p in self.parameters)
        # How many positional arguments alone are a complete call; no number is when *args or such are about.
        self._fewest, self._most = (len(self._required), len(self._positional)) if is_simple else (1, 0)
        self._shapes: dict[str, Shape] | None = None
        self._encoded: tuple[tuple[str, Shape], ...] | None = None
        self._returns: Shape | None = None

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Each parameter's shape. Raises DefinitionInvalid naming the parameter whose hint cannot be resolved."""
        if self._shapes is None:
            self._shapes = {p.name: self._shape(p.annotation, f"parameter `{p.name}`") for p in self.parameters}
        return self._shapes

    @property
    def returns(self) -> Shape:
        """The shape of the return annotation; without one, any JSON value."""
        if self._returns is None:
            self._returns = self._shape(self._python.return_annotation, "the return annotation")
        return self._returns

    @property
    def is_annotated(self) -> bool:
        """Whether there is a return annotation."""
        return self._python.return_annotation is not MISSING

    def description(self, parameter: Parameter) -> str:
        """What the author says of a parameter: in its `Annotated` metadata, else in the docstring."""
        for note in getattr(self.shapes[parameter.name].hint, "__metadata__", ()):
            text = (
                note
                if isinstance(note, str)
                else getattr(note, "description", None) or getattr(note, "documentation", None)
            )
            if isinstance(text, str) and text:
                return text
        return docstring_parameters(inspect.getdoc(self.fn) or "").get(parameter.name, "")

    def default(self, parameter: Parameter) -> Any:
        """A fresh copy of a parameter's default. Raises DefinitionInvalid if it does not fit the hint."""
        value, problems = self.shapes[parameter.name].take(
            copy.deepcopy(parameter.default), parameter.name, to_keep=True
        )
        if problems:
            said = f"A default of {self.owner} does not fit its type hint: {summary(problems)}."
            raise DefinitionInvalid(said, problems=problems)
        return value

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The given arguments by parameter name, as plain JSON. Defaults are left out: they are code, not arguments.

        Raises UsageError when they do not fit the parameters, PayloadInvalid when one is not of its annotated type.
        What has no annotation passes as it is; `values.dump` refuses what JSON cannot hold.
        """
        bound = dict(zip(self._positional, args, strict=False))
        if kwargs or not self._fewest <= len(args) <= self._most:
            bound.update(kwargs)
            if len(bound) != len(args) + len(kwargs) or not self._required <= bound.keys() <= self._named:
                bound = self._bind_as_python(args, kwargs)
        encoded = self._encoded
        if encoded is None:
            encoded = self._encoded = tuple((n, s) for n, s in self.shapes.items() if not s.is_plain)
        for name, shape in encoded:
            if name in bound:
                bound[name] = self._encode(name, shape, bound[name])
        return bound

    def _bind_as_python(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = dict(self._python.bind(*args, **kwargs).arguments)
        except TypeError as problem:
            raise UsageError(f"{self.owner}: {problem}. It takes {self._python}.") from problem
        for parameter in self.parameters:
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL and parameter.name in bound:
                bound[parameter.name] = list(bound[parameter.name])
        return bound

    def _encode(self, name: str, shape: Shape, value: Any) -> Any:
        kind = self._python.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return [shape.dump(item, f"{name}[{index}]") for index, item in enumerate(value)]
        if kind is inspect.Parameter.VAR_KEYWORD:
            return {key: shape.dump(item, f"{name}.{key}") for key, item in value.items()}
        return shape.dump(value, name)

    def _shape(self, annotation: Any, what: str) -> Shape:
        where = f"{what} of {self.owner}"
        if annotation is MISSING:
            return Shape(Any, where)
        holder: Any = SimpleNamespace(__annotations__={"hint": annotation})
        try:
            hints = typing.get_type_hints(holder, _globals_of(self.fn), self._locals, include_extras=True)
        except (NameError, TypeError, AttributeError, SyntaxError) as problem:
            raise DefinitionInvalid(
                f"The type hint of {where} cannot be resolved: {problem}. Import or define the type where the function "
                "is, outside `if TYPE_CHECKING`.",
                got=str(annotation),
            ) from problem
        return Shape(hints["hint"], where)


def docstring_parameters(doc: str) -> dict[str, str]:
    """The descriptions of parameters in a docstring: Google's `Args:` block or reST's `:param x:` lines."""
    found = {
        m[1]: " ".join(m[2].split())
        for m in re.finditer(r"^:param (?:\S+ )?(\w+):((?:.|\n(?=[ \t]+\S))*)", doc, re.MULTILINE)
    }
    block = re.search(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)*)", doc, re.MULTILINE)
    if block:
        lines = inspect.cleandoc("\n" + block[1])
        for entry in re.finditer(r"^\**(\w+)(?: \([^)]*\))?:((?:.|\n[ \t]+(?=\S))*)", lines, re.MULTILINE):
            found[entry[1]] = " ".join(entry[2].split())
    return found


def _globals_of(fn: Any) -> dict[str, Any]:
    """The module's names where a function, a partial, a method or a callable object was written."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    return getattr(fn if hasattr(fn, "__globals__") else type(fn).__call__, "__globals__", {})


def _names_around(fn: Callable[..., Any], annotations: list[Any]) -> dict[str, Any]:
    """What a function defined inside another one sees there and its hints, written as text, name."""
    text = " ".join(a for a in annotations if isinstance(a, str))
    if not text or not isinstance(fn, FunctionType) or "<locals>" not in fn.__qualname__:
        return {}
    frame = sys._getframe()  # noqa: SLF001  the only way to the author's local names, as pydantic does
    while frame is not None and frame.f_globals is not fn.__globals__:
        frame = frame.f_back  # type: ignore[assignment]
    seen = frame.f_locals if frame is not None else {}
    return {name: seen[name] for name in set(re.findall(r"\w+", text)) if name in seen}
