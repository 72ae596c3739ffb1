"""From a parsed command line to its exit code: finds the command, runs it, turns errors into words.

The only place at the top of the process that catches everything (STYLE 3).
"""

from __future__ import annotations

import asyncio
import inspect
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from perdure.errors import ControlRefused, PerdureError
from perdure.surfaces.cli import output
from perdure.surfaces.cli.output import Output

if TYPE_CHECKING:
    from perdure.agents.session import Agent
    from perdure.config import Config
    from perdure.control import Control
    from perdure.discovery import Catalog
    from perdure.engine.engine import Engine
    from perdure.store.database import Database


class Parts(Protocol):
    """What the composition root lends to commands (app.py)."""

    cwd: Path

    @property
    def config(self) -> Config:
        """The configuration."""
        ...

    @property
    def has_database(self) -> bool:
        """Whether the database exists."""
        ...

    @property
    def has_database_file(self) -> bool:
        """Whether its file is still there."""
        ...

    def catalog(self, target: str | None = None) -> Catalog:
        """The workflows there are."""
        ...

    def database(self) -> Database:
        """The open database."""
        ...

    def control(self) -> Control:
        """The control facade."""
        ...

    def engine(self) -> Engine:
        """An engine, to be entered."""
        ...

    def agent(self, name: str) -> Agent:
        """The agent of that name; refuses an unknown one."""
        ...

    async def close(self) -> None:
        """Close what was opened."""
        ...


_PLACES: Final[dict[str, str]] = {
    **dict.fromkeys(("init", "new", "trust", "list", "inputs"), "perdure.surfaces.cli.setup"),
    **dict.fromkeys(("run", "resume"), "perdure.surfaces.cli.execution"),
    **dict.fromkeys(("status", "show", "stages", "stage", "transcript", "wait"), "perdure.surfaces.cli.inspection"),
    **dict.fromkeys(("answer", "quit", "delete"), "perdure.surfaces.cli.controlling"),
    "bridge": "perdure.surfaces.cli.bridge",
    "doctor": "perdure.surfaces.cli.doctor",
    "agent": "perdure.surfaces.cli.agent",
}


def execute(arguments: Namespace, build: Callable[..., Parts]) -> int:
    """Run the command; its exit code. Never raises."""
    if arguments.version:
        return _print_version()
    out = Output(as_json=arguments.json, debug=arguments.debug)
    try:
        command = getattr(import_module(_PLACES[arguments.command]), f"{arguments.command}_command")
        parts = build(database=arguments.database)
        if not inspect.iscoroutinefunction(command):
            return int(command(parts, arguments, out))
        with asyncio.Runner(loop_factory=_loop_factory(arguments.command)) as runner:
            return int(runner.run(_closing(command(parts, arguments, out), parts)))
    except PerdureError as error:
        return out.refuse(error)
    except KeyboardInterrupt:
        return output.INTERRUPTED
    except BrokenPipeError:  # the reader, `head` perhaps, has enough
        out.go_silent()
        return output.OK
    except OSError as error:
        return out.refuse_file(error)
    except Exception as error:  # noqa: BLE001  top of the process
        return out.crash(error)


def check_database(parts: Parts, target: str) -> None:
    """Raise ControlRefused when there is no database yet; looking for a run must not make one."""
    if not parts.has_database:
        raise ControlRefused("run_not_found", f"There is no run {target}: no run was started here yet.", target=target)


def note_set_aside(parts: Parts, out: Output) -> None:
    """Tell of settings that a project made and that do not hold, because its folder is not trusted."""
    aside = parts.config.set_aside
    if aside:
        names = " and ".join(dict.fromkeys(aside))
        out.note(f"note: this project's own `{names}` settings do not hold until you trust it: perdure trust")


async def _closing(command: Any, parts: Parts) -> int:
    try:
        return int(await command)
    finally:
        await parts.close()


def _loop_factory(command: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Whoever owns runs executes on the lane loop."""
    if command not in {"run", "resume"}:
        return None
    from perdure.engine.loop import LaneLoop

    return LaneLoop


def _print_version() -> int:
    from importlib.metadata import version

    print(f"perdure {version('perdure')}")
    return output.OK
