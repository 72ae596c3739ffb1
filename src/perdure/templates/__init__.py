"""Templates: the files that `perdure init` and `perdure new` write. The texts lie beside this module.

Nothing is ever overwritten: if one of the files exists, none is written and the refusal names what is there.
"""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

from perdure.definitions import normalise
from perdure.errors import DefinitionInvalid, NotAllowedNow

WORKFLOWS = Path(".perdure", "workflows")


def init(folder: Path) -> list[Path]:
    """Write a commented perdure.toml and a first workflow into a project. Returns the files, raises NotAllowedNow."""
    return _write({
        folder / "perdure.toml": _text("perdure.toml"),
        folder / WORKFLOWS / "hello.py": _text("hello.py.txt"),
    })  # fmt: skip


def new(name: str, folder: Path) -> list[Path]:
    """Write a workflow of that name and its test. Raises DefinitionInvalid for a name that no module can have."""
    python_name = normalise(name).replace("-", "_")
    if not python_name.isidentifier() or keyword.iskeyword(python_name) or python_name in sys.stdlib_module_names:
        raise DefinitionInvalid(
            f"{name!r} cannot name a workflow's file: use letters, digits and hyphens, a letter first, and no name of "
            "Python's own.",
            got=name,
        )
    names = {"example-name": normalise(name), "example_name": python_name}
    return _write({
        folder / WORKFLOWS / f"{python_name}.py": _text("workflow.py.txt", names),
        folder / WORKFLOWS / f"test_{python_name}.py": _text("test_workflow.py.txt", names),
    })  # fmt: skip


def _text(file: str, names: dict[str, str] | None = None) -> str:
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    for placeholder, name in (names or {}).items():
        text = text.replace(placeholder, name)
    return text


def _write(files: dict[Path, str]) -> list[Path]:
    existing = [str(path) for path in files if path.exists()]
    if existing:
        raise NotAllowedNow(f"Already there: {', '.join(existing)}. Nothing was written.", paths=existing)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as opened:
            opened.write(text)
    return list(files)
