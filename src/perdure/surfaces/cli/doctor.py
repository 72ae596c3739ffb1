"""doctor: which agents can be used here, and what to do about the others."""

from __future__ import annotations

import asyncio
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.errors import PerdureError
from perdure.ids import new_id
from perdure.surfaces.cli.commands import Parts
from perdure.surfaces.cli.output import FAILED, OK, Output

if TYPE_CHECKING:
    from perdure.agents.doctor import Checkup
    from perdure.engine.toolserver import ToolServer

AT_ONCE_MAX: Final = 2  # checkups: an agent may take half a gigabyte
QUESTION: Final = "This is a test of the connection. Answer with the one word: ready"

_STATES: Final = {
    "ready": ("completed", "ready"),
    "limited": ("awaiting_input", "limited"),
    "login": ("awaiting_input", "not logged in"),
    "broken": ("failed", "not usable"),
    "missing": ("dim", "not installed"),
}


async def doctor_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Check up agents: those named, else all that are configured or known. Fails if one that is wanted is not ready."""
    from perdure.engine.toolserver import ToolServer

    names = arguments.agents or _all_names(parts)
    question = QUESTION if arguments.ask else None
    turn = asyncio.Semaphore(AT_ONCE_MAX)
    with tempfile.TemporaryDirectory(prefix="perdure-doctor-", ignore_cleanup_errors=True) as scratch:
        async with ToolServer() as server:
            checkups = await asyncio.gather(
                *(_checked(parts, name, (server, turn, Path(scratch)), question) for name in names)
            )
    wanted = set(arguments.agents) or {*parts.config.agents, *filter(None, [parts.config.agent])}
    out.result({"agents": [asdict(one) for one in checkups]}, lambda: _draw(checkups, out))
    return FAILED if any(one.name in wanted and one.state not in {"ready", "limited"} for one in checkups) else OK


def _all_names(parts: Parts) -> list[str]:
    from perdure.agents.registry import BUILT_IN

    names = [*parts.config.agents, *filter(None, [parts.config.agent]), *BUILT_IN]
    return list(dict.fromkeys(names))


async def _checked(
    parts: Parts, name: str, bed: tuple[ToolServer, asyncio.Semaphore, Path], question: str | None
) -> Checkup:
    from perdure.agents.doctor import check_up, failed
    from perdure.agents.session import SessionSpec
    from perdure.operations.result_tool import ResultTool

    server, turn, scratch = bed
    async with turn:
        try:
            agent = parts.agent(name)
        except PerdureError as error:
            return failed(name, str(parts.config.agents.get(name, {}).get("kind", name)), error)
        tools = await server.open([ResultTool({"type": "object"}, lambda value: value)])
        try:
            spec = SessionSpec(new_id(), new_id(), "doctor", parts.cwd, scratch, tools=tools)
            return await check_up(agent, spec, question)
        finally:
            await tools.close()


def _draw(checkups: list[Checkup], out: Output) -> None:
    names = {one.name: f"{one.name} {one.version or ''}".strip() for one in checkups}
    width = max(map(len, names.values()), default=0)
    for one in sorted(checkups, key=lambda checkup: list(_STATES).index(checkup.state)):
        colour, word = _STATES[one.state]
        line = f"{out.paint(word.ljust(13), colour)}  {names[one.name].ljust(width)}  {', '.join(_facts(one))}"
        out.say(line.rstrip())
        if one.advice:
            out.say(f"{' ' * 15}{one.advice}")


def _facts(one: Checkup) -> Iterator[str]:
    if one.is_logged_in:
        yield "logged in"
    elif one.state == "ready" and one.version:
        yield "login not tried (--ask does)"
    if one.has_tools is not None:
        yield "sees the engine's tools" if one.has_tools else "does not see the engine's tools"
    if one.can_reopen is not None:
        yield "reopens sessions" if one.can_reopen else "cannot reopen sessions"
