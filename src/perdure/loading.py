"""Loading: importing the file or module that holds a definition, and finding the definition in it.

A workflow file is no part of a package: it is imported under a name made from its path, once a process, with its folder
on `sys.path` meanwhile so that modules beside it can be imported. The standard library goes before that folder: a
workflow file called queue.py must not break what others import.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from perdure.definitions import Workflow, normalise
from perdure.errors import DefinitionInvalid, PerdureError, TargetAmbiguous, TargetNotFound


def load_definition(place: str, name: str) -> Workflow:
    """The workflow `name` in a file or module, as `Workflow.location` gave it. Imports it unless it is loaded.

    Raises TargetNotFound, TargetAmbiguous, and DefinitionInvalid when the import fails.
    """
    if is_file(place) and not Path(place).is_file():
        raise TargetNotFound(f"{place} is gone, and with it the workflow {name}. Put it back.", path=place, name=name)
    try:
        found = workflows_in(load_file(Path(place)) if is_file(place) else importlib.import_module(place))
    except PerdureError:
        raise
    except (Exception, SystemExit) as problem:  # author's code may raise anything
        said = f"{place} cannot be loaded: {type(problem).__name__}: {problem}"
        raise DefinitionInvalid(said, path=place, name=name) from problem
    wanted = [one for one in found if one.name == normalise(name)]
    if not wanted:
        names = sorted({one.name for one in found})
        raise TargetNotFound(
            f"{place} has no workflow {normalise(name)}. It has: {', '.join(names) or 'none'}.", name=name, known=names
        )
    if len(wanted) > 1:
        raise TargetAmbiguous(f"{place} has {len(wanted)} workflows named {name}. Rename one.", name=name, path=place)
    return wanted[0]


def is_file(place: str) -> bool:
    """Whether a place is a file's path, not a module's name."""
    return place.endswith(".py") or "/" in place


def load_file(path: Path) -> ModuleType:
    """The module of a workflow file; imported at the first call. What its code raises comes through."""
    real = path.resolve()
    name = f"perdure_workflow_{sha256(str(real).encode()).hexdigest()[:12]}_{real.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, real)
    if spec is None or spec.loader is None:
        raise ImportError(f"{real} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importable(real.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def workflows_in(module: ModuleType) -> list[Workflow]:
    """The workflows that a module defines, in their order; those it only imports belong to another."""
    found = {id(v): v for v in vars(module).values() if isinstance(v, Workflow) and v.fn.__module__ == module.__name__}
    return list(found.values())


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    entry = str(folder)
    if entry in sys.path:
        yield
        return
    libraries = (i for i, known in enumerate(sys.path) if known.endswith(("site-packages", "dist-packages")))
    sys.path.insert(next(libraries, len(sys.path)), entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)
