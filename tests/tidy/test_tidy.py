"""How the code must read, checked over the syntax tree (the limits are those of AGENTS.md).

Each test collects every offence before it fails, one a line, as `path:line what`. There is no list of exemptions.
"""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "perdure"

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
CONSTRUCTOR_PARAMETERS_MAX = 8
NESTING_MAX = 4

NOT_OURS = {"__pycache__", "build", "dist"}
BANNED_WORDS = {"manager", "util", "utils", "helper", "helpers", "service", "services", "handler", "handlers"}

# A door is a module (or a function of one) and the places that may use it; nothing else may (AGENTS.md, rule 6).
DOORS = {
    "apsw": ("store/",),
    "sqlite3": (),
    "subprocess": ("host/",),
    "multiprocessing": (),
    "asyncio.create_subprocess_exec": ("host/",),
    "asyncio.create_subprocess_shell": ("host/",),
    "os.fork": ("host/",),
    "os.kill": ("host/",),
    "os.killpg": ("host/",),
    "os.system": (),
    "time": ("clock.py", "ids.py", "store/"),
    "random": ("ids.py",),
    "secrets": ("ids.py",),
}

SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|EXPLAIN)(\s|;|$)"
)
UNOWNED = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\([\w-]+\))")
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:work|root|home)/\w")
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)

Function = ast.FunctionDef | ast.AsyncFunctionDef


# --- reading the tree


@cache
def files() -> tuple[Path, ...]:
    """Every file of the checkout that could be committed."""
    found = []
    for folder, names, leaves in os.walk(ROOT):
        names[:] = [n for n in names if n == ".ci" or not (n.startswith(".") or n in NOT_OURS)]
        found += [Path(folder, leaf) for leaf in leaves]
    return tuple(sorted(found))


def python_files(*folders: Path) -> list[Path]:
    return [f for f in files() if f.suffix == ".py" and any(f.is_relative_to(folder) for folder in folders)]


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def functions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, Function]]:
    """Every function below a node with its qualified name."""
    for child in ast.iter_child_nodes(node):
        name = f"{outer}.{child.name}".lstrip(".") if isinstance(child, Function | ast.ClassDef) else outer
        if isinstance(child, Function):
            yield name, child
        yield from functions(child, name)


def source_functions(*folders: Path) -> Iterator[tuple[Path, str, Function]]:
    for file in python_files(*folders or (SOURCE,)):
        for name, function in functions(tree(file)):
            yield file, name, function


def place(file: Path, line: int = 1) -> str:
    return f"{file.relative_to(ROOT)}:{line}"


def refuse(offences: list[str], advice: str) -> None:
    if offences:
        pytest.fail("\n".join([advice, *offences]), pytrace=False)


# --- sizes


def test_no_file_is_longer_than_an_expert_reads_in_one_go() -> None:
    lengths = {
        file: len(file.read_text().splitlines()) for file in python_files(SOURCE, ROOT / "tests", ROOT / "bench")
    }
    offences = [f"{place(file)} {n} lines" for file, n in lengths.items() if n > FILE_LINES_MAX]
    refuse(offences, f"A file has one noun and at most {FILE_LINES_MAX} lines; find the second noun in:")


def test_no_function_is_longer_than_a_screen() -> None:
    offences = [
        f"{place(file, function.lineno)} {name}: {lines} lines"
        for file, name, function in source_functions(SOURCE, ROOT / "tests")
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]
    refuse(offences, f"A function has at most {FUNCTION_LINES_MAX} lines:")


def test_functions_have_few_parameters() -> None:
    offences = [
        f"{place(file, function.lineno)} {name}: {count} parameters"
        for file, name, function in source_functions()
        if (count := parameters_count(function)) > parameters_max(function)
    ]
    refuse(
        offences, f"At most {PARAMETERS_MAX} parameters, constructors {CONSTRUCTOR_PARAMETERS_MAX}; give them a record:"
    )


def parameters_count(function: Function) -> int:
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([a for a in named if a.arg not in {"self", "cls"}])


def parameters_max(function: Function) -> int:
    return CONSTRUCTOR_PARAMETERS_MAX if function.name in {"__init__", "__new__"} else PARAMETERS_MAX


def test_nesting_stays_shallow() -> None:
    offences = [
        f"{place(file, function.lineno)} {name}: {depth} levels"
        for file, name, function in source_functions(SOURCE, ROOT / "tests")
        if (depth := nesting(function)) > NESTING_MAX
    ]
    refuse(offences, f"At most {NESTING_MAX} blocks inside each other; return early or name the inner part:")


def nesting(node: ast.AST) -> int:
    """Blocks inside each other below a node. `elif` is no level of its own, a nested function is measured alone."""
    deepest = 0
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        is_elif = (
            isinstance(node, ast.If) and field == "orelse" and len(children) == 1 and isinstance(children[0], ast.If)
        )
        for child in children:
            if isinstance(child, ast.AST) and not isinstance(child, Function | ast.Lambda | ast.ClassDef):
                deepest = max(deepest, nesting(child) - is_elif)
    return deepest + isinstance(node, BLOCKS)


# --- names and prose


def test_modules_are_named_after_a_noun_that_says_something() -> None:
    offences = [
        place(file)
        for file in python_files(SOURCE)
        if any(BANNED_WORDS & set(part.split("_")) for part in file.relative_to(SOURCE).with_suffix("").parts)
    ]
    refuse(offences, f"None of {', '.join(sorted(BANNED_WORDS))} may be a module's name:")


def test_every_module_says_what_it_is_for() -> None:
    offences = [place(file) for file in python_files(SOURCE) if not (ast.get_docstring(tree(file)) or "").strip()]
    refuse(offences, "Begin with a docstring: the purpose and the law it keeps:")


def test_every_open_end_has_an_owner() -> None:
    offences = [
        f"{place(file, token.start[0])} {token.string}"
        for file in python_files(SOURCE, ROOT / "tests", ROOT / "bench")
        for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline)
        if token.type == tokenize.COMMENT and UNOWNED.search(token.string)
    ]
    refuse(offences, "Write who will do it, as TODO(name), or do it:")


def test_no_path_of_a_machine_is_written_down() -> None:
    offences = []
    for file in files():
        text = file.read_bytes()
        if b"\0" in text:
            continue
        for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
            if MACHINE_PATH.search(line):
                offences.append(f"{place(file, number)} {line.strip()[:80]}")
    refuse(offences, "A path of one machine means nothing on another:")


# --- doors


def test_sql_text_lives_in_sql_files() -> None:
    offences = [
        f"{place(file, node.lineno)} {node.value.strip()[:60]!r}"
        for file in python_files(SOURCE)
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
    ]
    refuse(offences, "Python holds the names of queries; their text belongs in store/**.sql:")


def test_only_surfaces_print() -> None:
    offences = [
        place(file, node.lineno)
        for file in python_files(SOURCE)
        if not file.is_relative_to(SOURCE / "surfaces")
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    refuse(offences, "Return it, log it or raise it; printing is a surface's work:")


def test_each_door_is_used_only_where_it_belongs() -> None:
    offences = []
    for file in python_files(SOURCE):
        inside = file.relative_to(SOURCE).as_posix()
        for line, name in uses(tree(file)):
            door = next((d for d in DOORS if name == d or name.startswith(d + ".")), None)
            if door and not inside.startswith(DOORS[door]):
                offences.append(f"{place(file, line)} {name} (only in: {', '.join(DOORS[door]) or 'no file'})")
    refuse(offences, "SQL, processes, time and randomness come in through one door each:")


def uses(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Dotted names a module imports or reaches through an imported module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"os", "asyncio"}
        ):
            yield node.lineno, f"{node.value.id}.{node.attr}"


def test_bundled_workflows_use_the_public_names_only() -> None:
    offences = [
        f"{place(file, line)} {name}"
        for file in python_files(SOURCE / "builtin")
        for line, name in uses(tree(file))
        if name.startswith("perdure.") and not name.startswith("perdure.builtin") and name.count(".") > 1
    ]
    refuse(offences, "A bundled workflow shows what any author can do; it imports from perdure itself:")


def test_every_private_function_is_used() -> None:
    offences = []
    for file in python_files(SOURCE):
        everywhere = Counter(references(tree(file)))
        for node in tree(file).body:
            if isinstance(node, Function) and re.match(r"_[^_]", node.name) and not node.decorator_list:
                inside = references(node).count(node.name)
                offences += [f"{place(file, node.lineno)} {node.name}"] * (everywhere[node.name] == inside)
    refuse(offences, "Nothing refers to these private functions; delete them:")


def references(node: ast.AST) -> list[str]:
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.append(part.id)
        elif isinstance(part, ast.Attribute):
            found.append(part.attr)
    return found


# --- the checks themselves


@pytest.mark.parametrize(
    ("code", "levels"),
    [
        ("def f():\n if a:\n  pass\n elif b:\n  pass\n elif c:\n  pass", 1),
        ("def f():\n for a in b:\n  if a:\n   pass\n  elif b:\n   with c:\n    pass", 3),
        ("def f():\n try:\n  pass\n except E:\n  while a:\n   if b:\n    pass", 3),
        ("def f():\n if a:\n  def g():\n   if b:\n    pass", 1),
    ],
)
def test_nesting_counts_blocks_not_branches(code: str, levels: int) -> None:
    assert nesting(ast.parse(code).body[0]) == levels


def test_the_patterns_catch_what_they_are_for() -> None:
    assert (
        SQL.match("\n  SELECT 1") and SQL.match("BEGIN") and not SQL.match("SELECTED") and not SQL.match("select one")
    )
    assert UNOWNED.search("# TO" + "DO later") and not UNOWNED.search("# TO" + "DO(ada) later")
    assert MACHINE_PATH.search('"/ho' + 'me/ada/x"') and not MACHINE_PATH.search("$HOME/work/x")
    assert {name for _, name in uses(ast.parse("import time\nfrom os import kill\nos.fork()"))} >= {
        "time",
        "os.kill",
        "os.fork",
    }
