"""The real command line in a folder and a home of its own."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FLOWS = '''
import asyncio
from pathlib import Path

from perdure import Context, tool, workflow


@tool
async def double(n: int) -> int:
    return n * 2


@tool
async def linger(marker: str) -> str:
    Path(marker).touch()
    await asyncio.sleep(60)
    return "late"


@workflow
async def sums(ctx: Context, n: int = 3) -> dict:
    """Doubles numbers and adds them."""
    total = 0
    for i in range(n):
        total += await ctx.tool(double, i)
    return {"total": total}


@workflow
async def asks(ctx: Context) -> str:
    """Asks two questions."""
    await ctx.tool(double, 1)
    ok = await ctx.ask.confirm("Go on?")
    colour = await ctx.ask.select("Which colour?", ["red", "green"])
    return f"{ok} {colour}"


@workflow
async def lasts(ctx: Context, marker: str) -> str:
    await ctx.tool(double, 2)
    return await ctx.tool(linger, marker)


@workflow
async def breaks(ctx: Context) -> int:
    await ctx.tool(double, 2)
    raise ValueError("no good")


@workflow
async def skips(ctx: Context) -> None:
    ctx.exit("skipped", reason="not wanted")


@workflow
async def talks(ctx: Context) -> str:
    return (await ctx.task("draft", "Write something short")).text
'''


# The terminal becomes the one that controls the process, so that ctrl-C typed there is an interrupt.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Said(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def envelope(self):
        """The only line of stdout, as JSON."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def data(self):
        """The envelope's data."""
        assert self.envelope["ok"], self.envelope
        return self.envelope["data"]


class CommandLine:
    """Runs `perdure` in `folder`, which holds flows.py."""

    seconds = 30.0  # for a command to end

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.environ = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHONWARNINGS": "error",
            "COLUMNS": "120",
        }
        (folder / "flows.py").write_text(FLOWS)
        self._started: list[subprocess.Popen] = []
        self._detached: list[int] = []

    def __call__(self, *words: object, **environ: str) -> Said:
        """Run a command to its end, without a terminal."""
        done = subprocess.run(
            self._argv(words), cwd=self.folder, env=self.environ | environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=self.seconds, check=False,
        )  # fmt: skip
        said = Said(done.returncode, done.stdout, done.stderr)
        if "--detach" in words and said.code == 0:
            self._detached.append(said.data["pid"])
        return said

    def start(self, *words: object) -> subprocess.Popen:
        """Start a command and return at once."""
        started = subprocess.Popen(
            self._argv(words), cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(started)
        return started

    def on_terminal(self, *words: object, typing: list[tuple[str, str | Callable[[], None]]]) -> Said:
        """Run a command on a terminal; each text of `typing` is typed, or called, once its cue has been printed."""
        terminal, inside = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *self._argv(words)], cwd=self.folder,
            env=self.environ | {"TERM": "xterm-256color"}, stdin=inside, stdout=inside, stderr=inside,
            start_new_session=True,
        )  # fmt: skip
        os.close(inside)
        self._started.append(child)
        seen, mark, cues = "", 0, list(typing)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            ready, _, _ = select.select([terminal], [], [], 0.2)
            try:
                data = os.read(terminal, 65536) if ready else b""
            except OSError:
                break  # the other side has closed
            if ready and not data:
                break
            seen += data.decode("utf-8", "replace")
            while cues and (at := seen.find(cues[0][0], mark)) >= 0:
                mark = at + len(cues[0][0])
                text = cues.pop(0)[1]
                text() if callable(text) else os.write(terminal, text.encode())
        else:
            child.kill()
        os.close(terminal)
        return Said(child.wait(10), seen, "")

    def close(self) -> None:
        """End every process that still runs."""
        for started in self._started:
            if started.poll() is None:
                started.kill()
                started.wait(10)
            for stream in (started.stdout, started.stderr):
                if stream is not None:
                    stream.close()
        for pid in self._detached:
            with contextlib.suppress(OSError):
                if b"--owner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def _argv(self, words: tuple[object, ...]) -> list[str]:
        return [sys.executable, "-m", "perdure", *map(str, words)]


def until(is_so, seconds: float = 15.0) -> None:
    """Ask again and again until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came true"
        select.select([], [], [], 0.02)
