"""The installed `perdure` as a process, in a home of its own, with a workflow file that is trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_SOURCE: Final = """\
import os, time
from pathlib import Path
from perdure import Context, tool, workflow


@tool
async def echo(x: int) -> int:
    return x


@workflow
async def tiny(ctx: Context, wait: float = 0.0) -> int:
    x = await ctx.tool(echo, 1)
    Path(os.environ["BENCH_STAMP"]).write_text(str(time.monotonic()))
    if wait:
        await ctx.sleep(wait)
    return x
"""


class Command:
    """`perdure`, ready to run `tiny.py`, which stamps the time of its first durable step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.stamp = folder / "stamp"
        script = Path(sys.executable).with_name("perdure")
        self.program = [str(script)] if script.exists() else [sys.executable, "-m", "perdure"]
        # PYTHONDONTWRITEBYTECODE would make each start compile perdure anew; an installed perdure is compiled once.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "PYTHON"))}
        self.environment = {
            **kept, "HOME": str(folder), "PERDURE_DATA_DIR": str(folder / "data"), "BENCH_STAMP": str(self.stamp),
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }  # fmt: skip
        (folder / "tiny.py").write_text(_SOURCE, encoding="utf-8")
        self.run("trust", str(folder))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start it; whoever calls ends it."""
        return subprocess.Popen(
            [*self.program, *words], cwd=self._folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str) -> None:
        """Run it to its end. Raises RuntimeError with what it said when it fails."""
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        if process.returncode:
            raise RuntimeError(f"perdure {' '.join(words)} exited with {process.returncode}: {err or out}")
