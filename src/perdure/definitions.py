"""Definitions: the frozen objects that `@workflow` makes of an author's functions (spec/authoring.md 1).

A definition says what may be asked of a function before anything runs: a refusal names every problem at once. The law
it keeps: inside Python nothing is coerced, and `validate_stored(dump_inputs(x))` is `x`, so a resumed run starts from
what the first one started from. Tools (tools.py) and schemas (shapes.py) can be imported from here as well.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, Final, NoReturn, TypeVar, overload

from perdure import inputs
from perdure.errors import DefinitionInvalid, InputInvalid, UsageError
from perdure.shapes import Problem, check_none, is_number, problem, schema_of, summary, type_text
from perdure.signatures import MISSING, Signature
from perdure.tools import Retry, Tool, as_tool, tool

__all__ = ["InputField", "Retry", "Tool", "Workflow", "as_tool", "normalise", "schema_of", "tool", "workflow"]

BUDGET_KEYS: Final = ("max_duration_ms", "max_tokens", "max_cost", "warn_at_percent")
DEPTH_MAX: Final = 4
WORKTREE_CHOICE: Final = "a name of at most 64 letters, digits, dots, dashes and underscores, a Path, or True"
_WORKTREE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Body = TypeVar("Body", bound=Callable[..., Coroutine[Any, Any, Any]])


def normalise(name: str) -> str:
    """The name as perdure keeps it and looks it up: `Fix_and Review` -> `fix-and-review`; may come out empty."""
    kept = re.sub(r"[^a-z0-9-]", "", re.sub(r"[\s_]+", "-", name.strip().lower()))
    return re.sub(r"-+", "-", kept).strip("-")


@dataclass(frozen=True, slots=True)
class InputField:
    """One input as forms and `perdure inputs` show it. `default` is plain JSON, None when there is none."""

    name: str
    type: str
    required: bool
    default: Any
    description: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workflow:
    """A workflow's definition. Made by `@workflow`, run by perdure."""

    name: str
    description: str
    fn: Callable[..., Coroutine[Any, Any, Any]]
    budget: Mapping[str, float] | None = None
    heartbeat_minutes: float = 15
    worktree: str | bool | Path | None = None
    max_depth: int = DEPTH_MAX
    _signature: Signature = field(repr=False)
    _digest: str = field(repr=False)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Refused with UsageError: a direct call would record nothing."""
        python_name = self.fn.__name__
        raise UsageError(
            f"A workflow is run by perdure, not called. From a shell: perdure run {self.name}. Inside another "
            f"workflow: await ctx.workflow({python_name}). In a test: perdure.testing.rehearse({python_name}).",
            workflow=self.name,
        )

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the inputs, an object."""
        return inputs.object_schema(self._signature, self.name)

    def input_fields(self) -> list[InputField]:
        """The inputs in the order of the parameters."""
        shapes = self._signature.shapes
        return [
            InputField(
                name=p.name,
                type=type_text(shapes[p.name].hint),
                required=p.default is MISSING,
                default=None if p.default is MISSING else shapes[p.name].dump(self._signature.default(p), p.name),
                description=self._signature.description(p),
            )
            for p in self._signature.parameters
        ]

    def validate_inputs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values to call `fn` with, defaults filled in. Raises InputInvalid with every problem in `problems`."""
        shapes = self._signature.shapes
        return self._complete(
            {
                name: shapes[name].take(v, name, to_keep=True) if name in shapes else (v, [])
                for name, v in values.items()
            }
        )

    def validate_stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """As `validate_inputs`, of plain JSON values: what `dump_inputs` stored, or what came by JSON from outside."""
        shapes = self._signature.shapes
        return self._complete(
            {name: shapes[name].restore(v, name) if name in shapes else (v, []) for name, v in values.items()}
        )

    def parse_text(self, assignments: list[str], file: Path | None = None) -> dict[str, Any]:
        """The values given on a command line: `key=value`, `key:=JSON`, `key=@file`, over those of a JSON file.

        Raises InputInvalid with every problem in `problems`, missing and unknown inputs included.
        """
        taken, problems = inputs.parse(self._signature.shapes, assignments, file)
        return self._complete(taken, problems)

    def dump_inputs(self, validated: Mapping[str, Any]) -> dict[str, Any]:
        """The plain JSON form to store."""
        shapes = self._signature.shapes
        return {name: shapes[name].dump(value, name) for name, value in validated.items()}

    def validate_output(self, value: Any) -> Any:
        """The plain JSON form of what the body returned. Raises OutputInvalid with path, expected, got."""
        shape = self._signature.returns
        typed, problems = shape.take(value, "output")
        if problems and not shape.is_plain:  # a dict may stand for a model: the problems then lie inside it
            typed, inner = shape.restore(value, "output")
            problems = inner if isinstance(value, (dict, list)) or not inner else problems
        if problems:
            check_none(problems, f"{self.name} returned what does not fit {type_text(shape.hint)}")
        return shape.dump(typed, "output")

    def source_file(self) -> Path | None:
        """The file that holds the definition, if there is one."""
        return _source_file(self.fn)

    def source_digest(self) -> str:
        """The digest of the source file as it was when the definition was made; '' without a file."""
        return self._digest

    def location(self) -> str:
        """Where a resume finds the definition again: the module's name if it is part of a package, else the file."""
        spec = getattr(sys.modules.get(self.fn.__module__), "__spec__", None)
        package = sys.modules.get(spec.parent) if spec is not None and spec.parent else None
        if spec is not None and getattr(package, "__file__", None):
            return str(spec.name)
        return str(self.source_file() or self.fn.__module__)

    def _complete(
        self, taken: Mapping[str, tuple[Any, list[Problem]]], problems: list[Problem] | None = None
    ) -> dict[str, Any]:
        """Fill in defaults and refuse with everything that is wrong."""
        problems = list(problems or ())
        names = [p.name for p in self._signature.parameters]
        for name, (_, found) in taken.items():
            problems.extend(found)
            if name not in names:
                expected = _nearest(name, names) or ", ".join(f"`{n}`" for n in names) or "no inputs"
                said = f"{name}: there is no such input, only {expected}"
                problems.append({"path": name, "expected": expected, "got": f"`{name}`", "message": said})
        complete: dict[str, Any] = {}
        for parameter in self._signature.parameters:
            if parameter.name in taken:
                complete[parameter.name] = taken[parameter.name][0]
            elif parameter.default is not MISSING:
                complete[parameter.name] = self._signature.default(parameter)
            elif all(p["path"] != parameter.name for p in problems):
                expected = type_text(self._signature.shapes[parameter.name].hint)
                problems.append(problem(parameter.name, expected, "nothing"))
        if problems:
            raise InputInvalid(
                f"The inputs do not fit {self.name}: {summary(problems)}. See: perdure inputs {self.name}",
                workflow=self.name,
                problems=problems,
            )
        return complete


@overload
def workflow(fn: Body, /) -> Workflow: ...
@overload
def workflow(
    *,
    name: str | None = None,
    description: str | None = None,
    budget: Mapping[str, float] | None = None,
    heartbeat_minutes: float = 15,
    worktree: str | bool | Path | None = None,
    max_depth: int = DEPTH_MAX,
) -> Callable[[Body], Workflow]: ...
def workflow(fn: Any = None, /, *, name: str | None = None, description: str | None = None, **options: Any) -> Any:
    """Make a workflow of `async def fn(ctx, **inputs) -> Output`. Raises DefinitionInvalid, naming all problems."""
    if fn is None:
        return functools.partial(workflow, name=name, description=description, **options)
    if not inspect.iscoroutinefunction(fn):
        raise DefinitionInvalid(f"@workflow takes an `async def` function, not {fn!r}.", got=repr(fn))
    normal = normalise(fn.__name__ if name is None else name)
    if not normal:
        raise DefinitionInvalid(f"{name!r} has no letter or digit to make a workflow name of.", got=str(name))
    signature = Signature(fn, normal, skip=1)
    problems = [*_parameter_problems(fn), *_option_problems(options)]
    if problems:
        raise DefinitionInvalid(f"Workflow {normal}: {'; '.join(problems)}.", workflow=normal, problems=problems)
    first_paragraph = re.split(r"\n\s*\n", inspect.getdoc(fn) or "", maxsplit=1)[0]
    return Workflow(
        name=normal,
        description=" ".join(first_paragraph.split()) if description is None else description,
        fn=fn,
        _signature=signature,
        _digest=_file_digest(_source_file(fn)),
        **options,
    )


def is_worktree_choice(given: Any) -> bool:
    """Whether `worktree=` takes this: a name that is good for a folder and a branch, a path, True or False."""
    if isinstance(given, str):
        return bool(_WORKTREE_NAME.fullmatch(given)) and ".." not in given and not given.endswith((".", ".lock"))
    return isinstance(given, (bool, PurePath))


def _parameter_problems(fn: Callable[..., Any]) -> list[str]:
    parameters = list(inspect.signature(fn).parameters.values())
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in named:
        return ["its first parameter must be `ctx: Context`"]
    found = []
    for parameter in parameters[1:]:
        if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            found.append(f"`{parameter}` is not allowed, name each input")
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            found.append(f"`{parameter.name}` is positional-only, inputs are passed by name")
        elif parameter.annotation is MISSING:
            found.append(f"`{parameter.name}` needs a type hint")
    return found


def _option_problems(options: Mapping[str, Any]) -> list[str]:
    found = []
    for key, value in (options.get("budget") or {}).items():
        if key not in BUDGET_KEYS:
            found.append(f"budget has no `{key}`, only {_nearest(key, BUDGET_KEYS) or ', '.join(BUDGET_KEYS)}")
        elif not is_number(value) or value < 0 or (key != "max_cost" and value != int(value)):
            found.append(
                f"budget {key} is {value!r}, not a {'number' if key == 'max_cost' else 'whole number'} of 0 or more"
            )
    heartbeat, depth = options.get("heartbeat_minutes", 15), options.get("max_depth", DEPTH_MAX)
    if not is_number(heartbeat) or heartbeat < 0:
        found.append(f"heartbeat_minutes is {heartbeat!r}, not a number of 0 or more")
    if type(depth) is not int or depth < 1:
        found.append(f"max_depth is {depth!r}, not a whole number of 1 or more")
    worktree = options.get("worktree")
    if worktree is not None and not is_worktree_choice(worktree):
        found.append(f"worktree is {worktree!r}, not {WORKTREE_CHOICE}")
    return found


def _nearest(name: str, known: Sequence[str]) -> str:
    import difflib  # noqa: PLC0415  only a refusal pays for it

    near = difflib.get_close_matches(name, known, 1)
    return f"`{near[0]}`" if near else ""


@functools.lru_cache(maxsize=256)
def _source_file(fn: Callable[..., Any]) -> Path | None:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    path = Path(code.co_filename) if code else None
    return path.resolve() if path and path.is_file() else None


def _file_digest(path: Path | None) -> str:
    return "" if path is None else "h" + sha256(path.read_bytes()).hexdigest()[:32]
