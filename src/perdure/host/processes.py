"""The one door for processes: the only file that starts or signals one (DESIGN 2, law 6).

Everything we start leads a session and a process group of its own, gets an explicit environment, and carries a mark
in it (see `census`). It waits at a gate, a shell that reads one line from its standard input, until the caller has
recorded who it is: should we die before, the gate reads end of file and leaves, so no unrecorded group ever acts.

    spawn -> gate -> on_started(group) recorded -> "go" -> the command

    stop: close stdin -> wait -> TERM -> 5 s -> KILL -> 10 s -> what is still there is returned, not hidden

`stop` runs to its end even if its caller is cancelled; its waits are bounded. What a killed owner left behind is ended
by `sweep` (everything that owner had started, found by the mark) or `reap` (recorded groups).
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shutil
import signal
import subprocess  # noqa: TID251  this file is the door
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from perdure.host.census import MARK, Group, Members, mark_of, marked_with, members_of, new_mark
from perdure.host.identity import Identity, here, identity_of, is_gone

GATE: Final = 'IFS= read -r go && exec "$@"'
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024  # the longest line a process may send us
OUTPUT_BYTES_MAX: Final = 16 * 1024 * 1024  # of each stream of `shell`; the end is kept
TERM_SECONDS: Final = 5.0
KILL_SECONDS: Final = 10.0
EOF_SECONDS: Final = 1.0  # for a process to leave by itself once its input ended
PROBE_SECONDS: Final = 0.05
ALLOWED: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
CUT: Final = "[... cut]\n"

T = TypeVar("T")
OnStarted = Callable[[Group], Awaitable[None]]


def environment(names: Iterable[str] = (), extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child may see of our environment: HOME, PATH and the like, LC_*, `names`, and `extra` on top."""
    wanted = {*ALLOWED, *names}
    kept = {key: value for key, value in os.environ.items() if key in wanted or key.startswith("LC_")}
    return {**kept, **(extra or {})}


class _Protocol(SubprocessStreamProtocol):
    """Tells at once when the process exits; the library waits for its pipes too, which a descendant may hold open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=FRAME_BYTES_MAX, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()
        super().process_exited()


class Process:
    """A process group we started. Standard input and output are streams; standard error is a file or a stream."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol, group: Group) -> None:
        self.group = group
        self.pid = group.leader.pid
        self._transport = transport
        self._protocol = protocol

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """What the process reads."""
        stream = self._protocol.stdin
        assert stream is not None
        return stream

    @property
    def stdout(self) -> asyncio.StreamReader:
        """What the process prints."""
        stream = self._protocol.stdout
        assert stream is not None
        return stream

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        """Its complaints, unless they go to a file."""
        return self._protocol.stderr

    @property
    def exit_code(self) -> int | None:
        """The exit code; minus the signal's number; None while it runs."""
        return self._transport.get_returncode()

    async def wait(self) -> int:
        """The exit code, as soon as the leader ends; others of its group may live on until `stop`."""
        await self._protocol.exited.wait()
        code = self.exit_code
        assert code is not None
        return code

    async def feed(self, data: bytes = b"") -> None:
        """Write `data` to its standard input and close that; nothing happens if it does not want it."""
        with contextlib.suppress(ConnectionError):
            self.stdin.write(data)
            await self.stdin.drain()
        self.stdin.close()

    def detach_pipes(self) -> None:
        """Close our ends of its pipes, after its end."""
        self._transport.close()


async def spawn(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stderr_path: Path | None = None,
    on_started: OnStarted | None = None,
) -> Process:
    """Start a command in a group of its own; it begins once `on_started` returned, and never if that raised.

    With `stderr_path` standard error is appended to that file. Raises FileNotFoundError if there is no such command or
    folder.
    """
    command = find_command(argv[0], env, cwd)
    loop = asyncio.get_running_loop()
    mark = new_mark(here())
    with contextlib.ExitStack() as files:
        stderr: Any = subprocess.PIPE
        if stderr_path is not None:
            stderr_path.parent.mkdir(parents=True, exist_ok=True)
            stderr = os.open(stderr_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            files.callback(os.close, stderr)
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop),
            *("/bin/sh", "-c", GATE, "gate", command, *argv[1:]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=cwd,
            env={**env, MARK: mark},
            start_new_session=True,
        )
    leader = identity_of(transport.get_pid())
    if leader is None:
        transport.close()
        raise ChildProcessError(f"{argv[0]!r} was killed while it started.")
    process = Process(transport, protocol, Group(leader, mark))
    try:
        if on_started is not None:
            await on_started(process.group)
        process.stdin.write(b"go\n")
    except BaseException:
        await stop(process)
        raise
    return process


def find_command(name: str, env: Mapping[str, str], cwd: Path) -> str:
    """The path of a command in the child's PATH, or relative to `cwd`; FileNotFoundError if either is missing."""
    if not cwd.is_dir():
        raise FileNotFoundError(f"The folder {cwd} does not exist.")
    where = str(cwd / name) if "/" in name else name
    found = shutil.which(where, path=env.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(f"There is no command {name!r} in {'that place' if '/' in name else 'the PATH'}.")
    return found


async def stop(process: Process, *, eof_seconds: float = EOF_SECONDS, term_seconds: float = TERM_SECONDS) -> Members:
    """End a process and everything it started; returns what could not be ended (falsy: all is gone). Idempotent."""
    return await to_the_end(_stop(process, eof_seconds, term_seconds))


async def reap(groups: Iterable[Group], *, term_seconds: float = TERM_SECONDS) -> Members:
    """End groups that an owner, now dead, had recorded; returns what lives on or cannot be told."""
    left = [await to_the_end(_end(_Census(group), term_seconds)) for group in groups]
    return Members(
        tuple(pid for one in left for pid in one.ours), tuple(pid for one in left for pid in one.unprobeable)
    )


async def sweep(owner: Identity, *, term_seconds: float = TERM_SECONDS) -> Members:
    """End everything that a process of ours, proven gone, had started; nothing if it lives. Only where /proc exists."""
    if not is_gone(owner):
        return Members()
    return await to_the_end(_end(lambda: Members(ours=marked_with(mark_of(owner))), term_seconds))


class _Census:
    """A look at a group."""

    def __init__(self, group: Group, *, owned: bool = False) -> None:
        self._group = group
        self._owned = owned

    def __call__(self) -> Members:
        return members_of(self._group, owned=self._owned)


async def _stop(process: Process, eof_seconds: float, term_seconds: float) -> Members:
    process.stdin.close()
    if process.exit_code is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(eof_seconds):
                await process.wait()
    left = await _end(_Census(process.group, owned=True), term_seconds)
    if not left:
        await process.wait()  # collects the exit code; the leader is a zombie by now
    process.detach_pipes()
    return left


async def _end(look: Callable[[], Members], term_seconds: float) -> Members:
    """TERM, wait, KILL, wait: until a look finds nothing."""
    left = Members()
    for number, seconds in ((signal.SIGTERM, term_seconds), (signal.SIGKILL, KILL_SECONDS)):
        signalled: set[int] = set()
        for _ in range(max(1, round(seconds / PROBE_SECONDS))):
            left = await asyncio.to_thread(look)
            if not left.ours:
                return left
            _signal(number, set(left.ours) - signalled)
            signalled.update(left.ours)
            await asyncio.sleep(PROBE_SECONDS)
    return await asyncio.to_thread(look)


def _signal(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that must not be left half done and has a bound; a cancellation is raised after it."""
    task = asyncio.create_task(work, name="stop-process")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and not task.cancelled():
        raise cancelled
    return task.result()


# --- commands that run to their end


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a command ended. Text that is not UTF-8 is replaced; of long output the end is kept, after a mark."""

    exit_code: int  # minus the signal's number if one ended it
    stdout: str
    stderr: str


async def shell(
    argv: Sequence[str],
    cwd: str | Path | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  part of the public call; the group must die with it
    env: Mapping[str, str] | None = None,
    input: str | None = None,  # noqa: A002  named as in the standard library
) -> ShellResult:
    """Run a command (no shell is involved) and return its exit code and output, whatever the code is.

    `timeout` in seconds; then, and when the caller is cancelled, the whole process group is ended before TimeoutError
    or the cancellation is raised. `env` replaces the inherited environment. What the command left running is ended too.
    """
    if isinstance(argv, str | bytes) or not argv:
        raise TypeError("shell takes a list of arguments, such as ['git', 'status'], not one text.")
    folder = Path(cwd) if cwd is not None else Path.cwd()
    child_env = dict(os.environ) if env is None else dict(env)
    process = await spawn(argv, cwd=folder, env=child_env)
    return await run_to_end(process, (input or "").encode(), timeout, OUTPUT_BYTES_MAX)


async def run_to_end(
    process: Process,
    data: bytes,
    seconds: float | None,
    bytes_max: int,
    on_output: Callable[[str], None] | None = None,
) -> ShellResult:
    """Feed a spawned process, collect what it prints (the last `bytes_max` of each stream), leave nothing of it.

    `on_output` gets standard output piece by piece. Raises TimeoutError after `seconds`.
    """
    out, err = _Tail(bytes_max, on_output), _Tail(bytes_max)
    reads = [asyncio.create_task(out.read(process.stdout), name="read-stdout")]
    if process.stderr is not None:
        reads.append(asyncio.create_task(err.read(process.stderr), name="read-stderr"))
    feed = asyncio.create_task(process.feed(data), name="feed-stdin")
    try:
        async with asyncio.timeout(seconds):
            code = await process.wait()
    except TimeoutError:
        raise TimeoutError(f"The command took longer than {seconds} s and was ended.") from None
    finally:
        await stop(process, eof_seconds=0)
        feed.cancel()
        # With every writer gone the streams end by themselves; the bound is for a writer that could not be ended.
        await asyncio.wait(reads, timeout=1)
        for task in reads:
            task.cancel()
        await asyncio.gather(feed, *reads, return_exceptions=True)
    return ShellResult(code, out.text(), err.text())


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, bytes_max: int, on_text: Callable[[str], None] | None = None) -> None:
        self._bytes_max = bytes_max
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = bytearray()
        self._cut = False

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Take the stream to its end."""
        while piece := await stream.read(65_536):
            if self._on_text is not None and (text := self._decoder.decode(piece)):
                self._on_text(text)
            self._kept += piece
            if len(self._kept) > 2 * self._bytes_max:
                del self._kept[: -self._bytes_max]
                self._cut = True

    def text(self) -> str:
        """What was kept, marked if something went before it."""
        cut = self._cut or len(self._kept) > self._bytes_max
        return CUT * cut + bytes(self._kept[-self._bytes_max :]).decode("utf-8", "replace")


# --- processes that outlive us

_detached: list[subprocess.Popen[bytes]] = []


def spawn_detached(argv: Sequence[str], log_path: Path, env: Mapping[str, str], cwd: Path | None = None) -> int:
    """Start a process that lives on without us, in a session of its own, its output in a log; returns its pid."""
    for ended in [child for child in _detached if child.poll() is not None]:
        _detached.remove(ended)  # polling collected it, so that a long-lived starter keeps no zombies
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            [find_command(argv[0], env, cwd or Path.cwd()), *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env={key: value for key, value in env.items() if key != MARK},  # not one of our own starter's group
            start_new_session=True,
        )
    finally:
        os.close(log)
    _detached.append(child)
    return child.pid
