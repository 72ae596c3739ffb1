"""Discovery: which workflows there are, and where each comes from (spec/authoring.md 7).

Sources are asked in a fixed order and the first with a name wins. Two laws: a project's files run only in a trusted
folder, until then they are listed from their syntax tree; and a broken file is one diagnostic, never a failed listing.
`Catalog.find` imports only the files that may define the name, `Catalog.entries` all of them.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Literal, Protocol

from perdure.config import Config
from perdure.definitions import Workflow, normalise
from perdure.errors import DefinitionInvalid, NotTrusted, TargetAmbiguous, TargetNotFound
from perdure.loading import load_definition, load_file, workflows_in
from perdure.trust import is_trusted, trust

__all__ = ["Catalog", "Diagnostic", "Entry", "discover", "is_trusted", "load_definition", "split_target", "trust"]

GROUP: Final = "perdure.workflows"
BUNDLED: Final = "perdure.builtin"
NEAR_NAMES_MAX: Final = 3

Origin = Literal["file", "project", "user", "package", "bundled"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Why something is not listed. `line` is 0 when no line is to blame."""

    code: Literal["IMPORT_FAILED", "INVALID_DEFINITION", "PATH_NOT_FOUND", "DUPLICATE_NAME"]
    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A workflow that can be named. `source` is its file or module."""

    name: str
    description: str
    source: str
    origin: Origin
    opener: Callable[[], Workflow] = field(repr=False, compare=False)

    def load(self) -> Workflow:
        """The definition. Raises NotTrusted for a project that is not trusted, DefinitionInvalid for a broken one."""
        return self.opener()


class _Source(Protocol):
    def declares(self, name: str) -> bool | None:
        """Whether it has a name, judged without running anything; None when only running it would tell."""
        ...

    def entries(self) -> Iterator[Entry | Diagnostic]:
        """What is in it."""
        ...


class Catalog:
    """All workflows of one place. Built by `discover`."""

    def __init__(self, sources: list[_Source], explicit: str | None = None) -> None:
        self._sources = sources
        self._explicit = explicit

    @cached_property
    def _listing(self) -> tuple[dict[str, Entry], list[Diagnostic]]:
        entries: dict[str, Entry] = {}
        diagnostics: list[Diagnostic] = []
        for item in (item for source in self._sources for item in source.entries()):
            if isinstance(item, Diagnostic):
                diagnostics.append(item)
            elif item.name not in entries:
                entries[item.name] = item
            else:
                said = f"{item.name} is hidden by the one in {entries[item.name].source}"
                diagnostics.append(Diagnostic("DUPLICATE_NAME", item.source, 0, said))
        return entries, diagnostics

    @property
    def entries(self) -> dict[str, Entry]:
        """Every workflow by name, strongest origin first."""
        return self._listing[0]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is wrong with files and names."""
        return self._listing[1]

    def find(self, target: str) -> Entry:
        """The workflow of a name, or of `file.py[:name]` as given to `discover`.

        Raises TargetNotFound with the nearest names, TargetAmbiguous when a file has several and none was named,
        DefinitionInvalid when the file that should define it cannot be imported.
        """
        path, name = split_target(target)
        if path is not None and target != self._explicit:
            raise TargetNotFound(f"{target} was not looked at: name the file when discovering.", target=target)
        if path is not None:
            return self._find_in_file(path, name)
        wanted = normalise(target)
        for source in self._sources:
            declares = source.declares(wanted)
            found = [] if declares is False else list(source.entries())
            for item in found:
                if isinstance(item, Entry) and item.name == wanted:
                    return item
            for item in found if declares else ():  # one of the same name further down must not run in its place
                if isinstance(item, Diagnostic):
                    raise _broken(item)
        if wanted in self.entries:
            return self.entries[wanted]
        raise _unknown(wanted, self)

    def _find_in_file(self, path: str, name: str | None) -> Entry:
        found = list(self._sources[0].entries())
        for item in found:
            if isinstance(item, Diagnostic):
                raise TargetNotFound(item.message, path=path) if item.code == "PATH_NOT_FOUND" else _broken(item)
        entries = {item.name: item for item in reversed(found) if isinstance(item, Entry)}
        if name is not None and normalise(name) in entries:
            return entries[normalise(name)]
        if name is None and len(entries) == 1:
            return next(iter(entries.values()))
        names = sorted(entries)
        if name is None and names:
            raise TargetAmbiguous(
                f"{path} has several workflows. Name one: {path}:{names[0]}",
                known=names, candidates=[f"{path}:{known}" for known in names],
            )  # fmt: skip
        if not names:
            raise TargetNotFound(f"{path} defines no workflow. Put @workflow on an async function.", known=names)
        raise TargetNotFound(f"{path} has no workflow {name}. It has: {', '.join(names)}.", known=names)


def split_target(target: str) -> tuple[str | None, str | None]:
    """`dir/file.py:name` -> ("dir/file.py", "name"); a plain name has no path."""
    match = re.fullmatch(r"(.+\.py)(?::(.+))?", target, re.DOTALL)
    return (match[1], match[2]) if match else (None, target)


def discover(
    cwd: Path, config: Config, explicit: str | None = None, trusted: Callable[[Path], bool] | None = None
) -> Catalog:
    """What can be run from `cwd`. `explicit` is a command line's `file.py[:name]`, which counts as trusted."""
    may_run = trusted or (lambda folder: is_trusted(folder, config.data_dir))
    sources: list[_Source] = []
    path = split_target(explicit)[0] if explicit else None
    if path is not None:
        sources.append(_File(cwd / path, "file"))
    locked = None if config.project_dir is None or may_run(config.project_dir) else config.project_dir
    if config.project_dir is not None:
        sources.extend(_File(p, "project", locked) for p in _files(config.project_dir / ".perdure" / "workflows"))
    by_user = {"flag", "environment", str(config.config_dir / "config.toml")}
    listed_by_project = config.sources.get("workflows") not in by_user
    for listed in config.workflows:
        found = _files(listed) if listed.is_dir() else [listed]
        sources.extend(_File(p, "project", locked) if listed_by_project else _File(p, "user") for p in found)
    sources.extend(_File(p, "user") for p in _files(config.config_dir / "workflows"))
    sources.append(_Packages())
    sources.extend(_bundled())
    return Catalog(sources, explicit if path is not None else None)


def _files(folder: Path) -> list[Path]:
    """The workflow files of a folder: helpers (`_x.py`) and tests beside them are none."""
    found = sorted(folder.glob("*.py")) if folder.is_dir() else []
    return [p for p in found if not p.name.startswith(("_", "test_")) and p.name != "conftest.py"]


class _File:
    """A workflow file. With `locked_by` it is read, never run, and that folder needs to be trusted first."""

    def __init__(self, path: Path, origin: Origin, locked_by: Path | None = None) -> None:
        self._path, self._origin, self._locked_by = path, origin, locked_by

    @cached_property
    def _declared(self) -> list[tuple[str, str]]:
        return declared_workflows(self._path)

    def declares(self, name: str) -> bool | None:
        """Whether its syntax tree has the name; None if it has one that is computed."""
        try:
            names = {declared for declared, _ in self._declared}
        except (OSError, SyntaxError, ValueError):
            return False
        return name in names or (None if "" in names else False)

    def entries(self) -> Iterator[Entry | Diagnostic]:
        """Its workflows, or one diagnostic."""
        if not self._path.is_file():
            yield Diagnostic("PATH_NOT_FOUND", str(self._path), 0, f"{self._path} does not exist")
            return
        try:
            yield from self._locked_entries() if self._locked_by else self._imported_entries()
        except (Exception, SystemExit) as problem:  # noqa: BLE001  author's code: whatever it raises is one diagnostic
            yield self._diagnostic(problem)

    def _imported_entries(self) -> Iterator[Entry]:
        for one in workflows_in(load_file(self._path)):
            opener = partial(load_definition, str(self._path), one.name)
            yield Entry(one.name, one.description, str(self._path), self._origin, opener)

    def _locked_entries(self) -> Iterator[Entry]:
        def refuse() -> Workflow:
            raise NotTrusted(
                f"{self._path} is code in a folder not trusted yet. Read it, then: perdure trust {self._locked_by}",
                path=str(self._path),
                folder=str(self._locked_by),
            )

        for name, description in self._declared:
            yield Entry(name or normalise(self._path.stem), description, str(self._path), self._origin, refuse)

    def _diagnostic(self, problem: BaseException) -> Diagnostic:
        frames = traceback.extract_tb(problem.__traceback__)
        real = self._path.resolve()
        line = next((frame.lineno or 0 for frame in reversed(frames) if Path(frame.filename) == real), 0)
        if isinstance(problem, SyntaxError) and problem.filename and Path(problem.filename).resolve() == real:
            line = problem.lineno or line
        if isinstance(problem, DefinitionInvalid):
            return Diagnostic("INVALID_DEFINITION", str(self._path), line, problem.message)
        return Diagnostic("IMPORT_FAILED", str(self._path), line, f"{type(problem).__name__}: {problem}")


class _Packages:
    """Installed packages' entry points: each a workflow, or a module with some."""

    def declares(self, name: str) -> bool | None:  # noqa: ARG002  a package's names are known once it is imported
        """Unknown until they are imported; they are few."""
        return None

    def entries(self) -> Iterator[Entry | Diagnostic]:
        """What the entry points lead to; a broken one is a diagnostic."""
        from importlib import metadata  # noqa: PLC0415  costs more than finding a project's workflow

        for point in metadata.entry_points(group=GROUP):
            try:
                loaded = point.load()
                found = [loaded] if isinstance(loaded, Workflow) else workflows_in(loaded)
            except (Exception, SystemExit) as problem:  # noqa: BLE001  another package's code
                said = f"entry point {point.name}: {type(problem).__name__}: {problem}"
                yield Diagnostic("IMPORT_FAILED", point.value, 0, said)
                continue
            for one in found:
                opener = partial(load_definition, one.location(), one.name)
                yield Entry(one.name, one.description, point.value, "package", opener)


class _Bundled:
    """One module of `perdure.builtin`, listed from its syntax tree and imported when it is used."""

    def __init__(self, module: str, path: Path) -> None:
        self._module, self._path = module, path

    def declares(self, name: str) -> bool | None:
        """Whether its syntax tree has the name."""
        return any(declared == name for declared, _ in declared_workflows(self._path))

    def entries(self) -> Iterator[Entry | Diagnostic]:
        """Its workflows."""
        for name, description in declared_workflows(self._path):
            yield Entry(name, description, self._module, "bundled", partial(load_definition, self._module, name))


def _bundled() -> list[_Bundled]:
    spec = importlib.util.find_spec(BUNDLED)
    folders = spec.submodule_search_locations if spec else None
    return [_Bundled(f"{BUNDLED}.{p.stem}", p) for folder in folders or () for p in _files(Path(folder))]


def declared_workflows(path: Path) -> list[tuple[str, str]]:
    """(name, description) of the functions that a file decorates with `@workflow`, without running it.

    The name is "" where only running the file would tell. Raises SyntaxError, OSError, ValueError.
    """
    tree = ast.parse(path.read_bytes(), filename=str(path))
    decorators = {"workflow"}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "perdure":
            decorators.update(a.asname for a in node.names if a.name == "workflow" and a.asname)
    found: list[tuple[str, str]] = []
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef):
            options = [o for d in node.decorator_list if (o := _workflow_options(d, decorators)) is not None]
            found.extend(_declared(node, given) for given in options)
    return found


def _workflow_options(decorator: ast.expr, names: set[str]) -> dict[str | None, ast.expr] | None:
    """The keywords of a decorator if it is perdure's, else None."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    is_ours = target.id in names if isinstance(target, ast.Name) else getattr(target, "attr", "") == "workflow"
    if not is_ours:
        return None
    return {k.arg: k.value for k in decorator.keywords} if isinstance(decorator, ast.Call) else {}


def _declared(node: ast.AsyncFunctionDef, given: dict[str | None, ast.expr]) -> tuple[str, str]:
    paragraph = re.split(r"\n\s*\n", ast.get_docstring(node) or "", maxsplit=1)[0]
    name = _literal(given["name"]) if "name" in given else node.name
    description = _literal(given["description"]) if "description" in given else " ".join(paragraph.split())
    return normalise(name), description


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _broken(item: Diagnostic) -> DefinitionInvalid:
    place = f"{item.path}:{item.line}" if item.line else item.path
    return DefinitionInvalid(f"{place} cannot be loaded: {item.message}", path=item.path, line=item.line)


def _unknown(name: str, catalog: Catalog) -> TargetNotFound:
    import difflib  # noqa: PLC0415  only a refusal pays for it

    near = difflib.get_close_matches(name, list(catalog.entries), NEAR_NAMES_MAX, 0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else "See: perdure list"
    broken = sorted({d.path for d in catalog.diagnostics if d.code != "DUPLICATE_NAME"})
    also = f" These could not be loaded: {', '.join(broken)}." if broken else ""
    return TargetNotFound(f"There is no workflow {name}. {hint}{also}", name=name, nearest=near, broken=broken)
