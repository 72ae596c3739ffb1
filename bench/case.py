"""One case in a process of its own: `python -m bench.case NAME [--full]` prints its rows as one line of JSON.

So a case leaves no heap, no garbage collector's debts and no default VFS to the next one, and can be profiled alone:
`python -m cProfile -s tottime -m bench.case sequential`.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

from bench.cases import NAMES


def main(argv: list[str]) -> int:
    """Measure; 2 for a name that is not a case."""
    names = [word for word in argv if not word.startswith("-")]
    if len(names) != 1 or names[0] not in NAMES:
        print(f"usage: python -m bench.case [--full] {'|'.join(NAMES)}", file=sys.stderr)
        return 2
    rows = import_module(f"bench.cases.{names[0]}").measure(full="--full" in argv)
    print(json.dumps([vars(row) for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
