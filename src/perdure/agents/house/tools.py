"""The five tools: read, write, edit, search, shell. What they say is for a model to read; a refusal is an answer too.

The law: read, write, edit and search never leave the session's folder. A shell command starts in it, with an
environment that holds no key of a model's provider, in a process group of its own that ends with the call; it is not
held to the folder, so permissions and the machine's own sandbox are what bounds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from pydantic_ai import RunContext, Tool, ToolFailed

from perdure.agents.house.permission import Action, Denied, Permissions
from perdure.agents.house.searching import search as search_files
from perdure.agents.house.workspace import LINES_MAX, Change, Workspace
from perdure.errors import UsageError
from perdure.host.processes import ShellResult, run_to_end, spawn

SHELL_SECONDS: Final = 120
SHELL_SECONDS_MAX: Final = 1800
OUTPUT_BYTES_MAX: Final = 30_000  # of each stream; the end is kept
SHOWN_CHARS_MAX: Final = 20_000  # of a running command's output, as it comes
ALIVE_SECONDS: Final = 20.0  # between two signs of life of a running command

KINDS: Final = {"read": "read", "write": "edit", "edit": "edit", "search": "search", "shell": "execute"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the tools of a session work with.

    `changed` is told of each changed file, `heard` of a command's output, and by an empty text that it still runs.
    """

    workspace: Workspace
    permissions: Permissions
    environment: Mapping[str, str]  # of shell commands
    changed: Callable[[str, Change], Awaitable[None]]
    heard: Callable[[str, str], None]


Context = RunContext[Surroundings]
P = ParamSpec("P")
T = TypeVar("T")


async def read(ctx: Context, path: str, offset: int = 1, limit: int = LINES_MAX) -> str:
    """Read a text file, or list a folder. Each line comes after its number and a tab, which are not part of the file.

    Args:
        ctx: The session.
        path: The file or folder, relative to the working folder.
        offset: The first line to show, counted from 1.
        limit: The most lines to show.
    """
    return await _done(ctx.deps.workspace.read, path, offset, limit)


async def write(ctx: Context, path: str, content: str) -> str:
    """Create a file, or replace everything in it. Folders on the way are made. To change a part of a file use edit.

    Args:
        ctx: The session.
        path: The file, relative to the working folder.
        content: The whole new text.
    """
    workspace = ctx.deps.workspace
    place = await _done(workspace.locate, path)
    await _permitted(ctx, Action(ctx.tool_call_id or "", "edit", f"Write {path}", place, None, content))
    change = await _done(workspace.write, path, content)
    await ctx.deps.changed(ctx.tool_call_id or "", change)
    return f"{'Created' if change.before is None else 'Replaced'} {path}, {len(content.encode())} bytes."


async def edit(ctx: Context, path: str, old: str, new: str, replace_all: bool = False) -> str:
    """Replace a piece of a file's text, which must be in the file exactly once.

    Args:
        ctx: The session.
        path: The file, relative to the working folder.
        old: The text to replace, exactly as in the file, with its spaces and line breaks, without line numbers.
        new: What to put there.
        replace_all: Replace every occurrence instead.
    """
    workspace = ctx.deps.workspace
    place = await _done(workspace.locate, path)
    await _permitted(ctx, Action(ctx.tool_call_id or "", "edit", f"Edit {path}", place, old, new))
    change = await _done(workspace.edit, path, old, new, every=replace_all)
    await ctx.deps.changed(ctx.tool_call_id or "", change)
    return f"Edited {path}."


async def search(ctx: Context, pattern: str = "", path: str = ".", glob: str = "") -> str:
    """Find lines that match a regular expression, as file:line: text. Without a pattern, list the files.

    Args:
        ctx: The session.
        pattern: A regular expression of Python's kind, looked for in each line.
        path: The file or folder to look in, relative to the working folder.
        glob: Only files whose name or path fits, such as *.py or src/*/test_*.py.
    """
    return await _done(search_files, ctx.deps.workspace, pattern, path, glob)


async def shell(ctx: Context, command: str, timeout: int = SHELL_SECONDS) -> str:  # noqa: ASYNC109  part of the tool
    """Run a command line with sh in the working folder and return its output. Nothing it starts outlives the call.

    Args:
        ctx: The session.
        command: The command line.
        timeout: Seconds after which it is ended, at most 1800.
    """
    call_id = ctx.tool_call_id or ""
    await _permitted(ctx, Action(call_id, "execute", command))
    seconds = max(1, min(timeout, SHELL_SECONDS_MAX))
    try:
        return await _run(ctx.deps, call_id, command, seconds)
    except TimeoutError:
        raise ToolFailed(f"The command took longer than {seconds} s and was ended.") from None
    except OSError as error:
        raise ToolFailed(f"The command cannot start: {error}.") from error


async def _run(deps: Surroundings, call_id: str, command: str, seconds: int) -> str:
    left = SHOWN_CHARS_MAX

    def heard(text: str) -> None:
        nonlocal left
        if left > 0:
            deps.heard(call_id, text[:left])
        left -= len(text)

    process = await spawn(["sh", "-c", command], cwd=deps.workspace.root, env=deps.environment)
    running = asyncio.create_task(run_to_end(process, b"", seconds, OUTPUT_BYTES_MAX, heard), name="shell")
    try:
        while not (await asyncio.wait({running}, timeout=ALIVE_SECONDS))[0]:
            deps.heard(call_id, "")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return _told(running.result())


def _told(done: ShellResult) -> str:
    parts = [done.stdout.rstrip()]
    if done.stderr.strip():
        parts.append(f"[stderr]\n{done.stderr.rstrip()}")
    if done.exit_code:
        parts.append(f"[exit code {done.exit_code}]")
    return "\n".join(part for part in parts if part) or "[no output]"


async def _permitted(ctx: Context, action: Action) -> None:
    try:
        await ctx.deps.permissions.check(action)
    except Denied as denied:
        raise ToolFailed(str(denied)) from None


async def _done(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except UsageError as refused:
        raise ToolFailed(refused.message) from None


def build_tools() -> list[Tool[Surroundings]]:
    """The tools, as the agent takes them. Those that change something run one at a time."""
    alone = [Tool(tool, sequential=True) for tool in (write, edit, shell)]
    return [Tool(read), Tool(search), *alone]
