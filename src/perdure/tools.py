"""Tools: side effects that happen once. What `@tool` makes of an author's function (spec/authoring.md 3).

A tool says how its arguments become the JSON that a step's digest is made of, and how its result is stored. The law it
keeps: live and on replay the author gets the same, `decode_result(encode_result(value))`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from perdure.errors import DefinitionInvalid
from perdure.shapes import check_none, is_number, type_text
from perdure.signatures import Signature

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Retry:
    """How often a failing tool is tried: `attempts` in all, `wait` seconds before the second, times `backoff` each."""

    attempts: int = 1
    wait: float = 1.0
    backoff: float = 2.0

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise DefinitionInvalid(f"Retry(attempts={self.attempts!r}) must be a whole number of 1 or more.")
        if not is_number(self.wait) or self.wait < 0:
            raise DefinitionInvalid(f"Retry(wait={self.wait!r}) must be seconds, 0 or more.")
        if not is_number(self.backoff) or self.backoff < 1:
            raise DefinitionInvalid(f"Retry(backoff={self.backoff!r}) must be a number of 1 or more.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool(Generic[P, R]):
    """A side effect that `ctx.tool` runs once and records. Called directly it is the function itself."""

    fn: Callable[P, R]
    name: str
    timeout: float | None = None
    retry: Retry = Retry()
    on_error: Literal["raise", "return"] = "raise"
    version: str | int | None = None
    is_async: bool = field(init=False)
    signature: Signature = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.fn) or not isinstance(self.name, str) or not self.name.strip():
            raise DefinitionInvalid(f"A tool is a function with a name, not {self.fn!r} named {self.name!r}.")
        if self.timeout is not None and (not is_number(self.timeout) or self.timeout <= 0):
            raise DefinitionInvalid(
                f"Tool {self.name}: timeout={self.timeout!r} must be seconds, more than 0, or None."
            )
        if self.on_error not in {"raise", "return"}:
            raise DefinitionInvalid(f'Tool {self.name}: on_error={self.on_error!r} must be "raise" or "return".')
        call = (
            self.fn if inspect.isroutine(self.fn) or isinstance(self.fn, functools.partial) else type(self.fn).__call__
        )
        self.__dict__.update(
            is_async=inspect.iscoroutinefunction(call),
            signature=Signature(self.fn, f"tool {self.name}"),
            __wrapped__=self.fn,
            __doc__=self.fn.__doc__,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function itself, with nothing recorded: for an author's own unit tests."""
        return self.fn(*args, **kwargs)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The given arguments by name, as plain JSON (Signature.bind): what the step's digest is made of."""
        return self.signature.bind(args, kwargs)

    def encode_result(self, value: Any) -> Any:
        """The plain JSON form of a result by the return annotation; `values.dump` checks what it holds.

        Live and on replay the author gets `decode_result` of this, so both see the same. Raises PayloadInvalid.
        """
        return self.signature.returns.dump(value, f"result of {self.name}")

    def decode_result(self, plain: Any) -> Any:
        """The typed result of its plain form. Raises OutputInvalid when the record no longer fits the annotation."""
        shape = self.signature.returns
        if shape.is_plain:
            return plain
        typed, problems = shape.restore(plain, "result")
        check_none(problems, f"The recorded result of tool {self.name} does not fit {type_text(shape.hint)}")
        return typed


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    timeout: float | None = None,
    retry: Retry | None = None,
    on_error: Literal["raise", "return"] = "raise",
    version: str | int | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(fn: Any = None, /, *, name: str | None = None, retry: Retry | None = None, **options: Any) -> Any:
    """Make a tool of a function, plain or async; `timeout` in seconds an attempt. Raises DefinitionInvalid."""
    if fn is None:
        return functools.partial(tool, name=name, retry=retry, **options)
    return Tool(fn=fn, name=_tool_name(fn) if name is None else name, retry=retry or Retry(), **options)


def as_tool(fn: Callable[P, R]) -> Tool[P, R]:
    """The tool that `ctx.tool(fn)` means: `fn` itself if it is one, else one made of it and kept with it."""
    if isinstance(fn, Tool):
        return fn
    known = getattr(fn, "__perdure_tool__", None)
    if isinstance(known, Tool) and known.fn is fn:
        return cast("Tool[P, R]", known)
    made = tool(fn)
    try:
        fn.__perdure_tool__ = made  # type: ignore[attr-defined]
    except (AttributeError, TypeError):  # bound methods and built-ins keep nothing
        return made
    return made


def _tool_name(fn: Any) -> str:
    inner = fn.func if isinstance(fn, functools.partial) else fn
    return str(getattr(inner, "__name__", type(inner).__name__))
