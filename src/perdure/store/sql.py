"""The texts of all queries, by name: `noun.query` is the block `-- name: query` of queries/noun.sql.

A name may carry a dialect, `-- name: query [postgres]`, and then replaces the shared text there. A query that ends its
name with `+` is written for one row, `(?, ?)`, and may be asked for with that row repeated, so that any number of rows
costs one statement.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: *(?P<name>\w+)(?P<rows>\+?)(?: *\[(?P<dialect>\w+)\])? *$", re.MULTILINE)
_ROW: Final = re.compile(r"\(\s*\?(?:\s*,\s*\?)*\s*\)")


def schema() -> str:
    """The whole schema of an empty database."""
    return files(__package__).joinpath("schema.sql").read_text("utf-8")


def migrations() -> list[tuple[int, str]]:
    """(version it leads to, text), in order."""
    found = [entry for entry in files(__package__).joinpath("migrations").iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name.split("_")[0]), entry.read_text("utf-8")) for entry in found)


@cache
def query(name: str, dialect: str = "sqlite") -> str:
    """The text of a named query. KeyError for a name nobody wrote."""
    noun = name.partition(".")[0]
    texts = _nouns(noun)
    return texts.get(f"{name} [{dialect}]") or texts[name]


@cache
def repeated(name: str, count: int, dialect: str = "sqlite") -> str:
    """The text of a `+` query with its row written `count` times."""
    text = query(name, dialect)
    if count == 1:
        return text
    row = _ROW.search(text)
    assert row is not None, f"{name} has no row of question marks"
    return text[: row.start()] + ", ".join([row.group()] * count) + text[row.end() :]


def names() -> list[str]:
    """Every query there is, for the plan test."""
    nouns = [
        entry.name[:-4] for entry in files(__package__).joinpath("queries").iterdir() if entry.name.endswith(".sql")
    ]
    return sorted(name for noun in nouns for name in _nouns(noun))


@cache
def _nouns(noun: str) -> dict[str, str]:
    text = files(__package__).joinpath("queries", f"{noun}.sql").read_text("utf-8")
    heads = list(_NAME.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return {
        f"{noun}.{head['name']}" + (f" [{head['dialect']}]" if head["dialect"] else ""): _bare(text[head.end() : end])
        for head, end in zip(heads, ends, strict=True)
    }


def _bare(text: str) -> str:
    """Without comments: the text is hashed at each use."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("--"))
