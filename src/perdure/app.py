"""The composition root: reads the configuration, builds each part when it is first needed, runs one command.

Nothing imports this module. Its own imports are few, so that `perdure --help` does not pay for what it does not use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.surfaces.cli.parser import parse

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.agents.session import Agent
    from perdure.config import Config
    from perdure.control import Control
    from perdure.discovery import Catalog
    from perdure.engine.engine import Engine
    from perdure.store.database import Database


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code (spec/control.md 10)."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    if argv is None and arguments.command in {"run", "resume"}:
        _fix_hash_seed()
    from perdure.surfaces.cli.commands import execute  # noqa: PLC0415  --help has ended before this line

    return execute(arguments, Parts)


def _fix_hash_seed() -> None:
    """Start again with a fixed hash seed: a set of texts then has one order in every replay of a run."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606  ourselves again


def _working_folder() -> Path:
    from pathlib import Path  # noqa: PLC0415  see the module docstring

    try:
        return Path.cwd()
    except FileNotFoundError as error:
        from perdure.errors import ConfigInvalid  # noqa: PLC0415

        raise ConfigInvalid("The folder you are in was removed. Change to one that exists: cd ~") from error


class Parts:
    """What commands are made of. Each part is built once, at its first use."""

    def __init__(self, *, database: str | None = None, cwd: Path | None = None) -> None:
        """`database` is the flag; everything else comes from the environment and files."""
        self.cwd = cwd or _working_folder()
        self._flags = {"database": database}
        self._config: Config | None = None
        self._database: Database | None = None

    @property
    def config(self) -> Config:
        """The configuration that holds here. Raises ConfigInvalid."""
        if self._config is None:
            from perdure.config import load_config  # noqa: PLC0415

            self._config = load_config(self.cwd, os.environ, self._flags)
        return self._config

    def catalog(self, target: str | None = None) -> Catalog:
        """The workflows there are; `target` may be a `file.py[:name]`."""
        from perdure.discovery import discover  # noqa: PLC0415

        return discover(self.cwd, self.config, explicit=target)

    @property
    def has_database(self) -> bool:
        """Whether there is anything to look at. Inspection of nothing makes no file."""
        return self._database is not None or self.has_database_file

    @property
    def has_database_file(self) -> bool:
        """Whether the database is on the disk; an empty file is one that could never be written."""
        if "://" in self.config.database:
            return True
        from pathlib import Path  # noqa: PLC0415

        try:
            return Path(self.config.database).stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False

    def database(self) -> Database:
        """The open database, made if it is not there."""
        if self._database is None:
            from perdure.store import open_database  # noqa: PLC0415

            self._database = open_database(self.config.database)
        return self._database

    def control(self) -> Control:
        """The control facade."""
        from perdure.control import Control  # noqa: PLC0415

        return Control(self.database())

    def engine(self) -> Engine:
        """An engine over the database, to be entered."""
        from perdure.engine.engine import Engine  # noqa: PLC0415

        return Engine(self.database(), self.config, agents=self.agent)

    def agent(self, name: str) -> Agent:
        """The agent of that name. Raises AgentUnavailable, ConfigInvalid, ExtraMissing."""
        from perdure.agents.registry import build_agent  # noqa: PLC0415

        agents: Any = self.config.agents
        return build_agent(name, agents.get(name, {}), known=agents)

    async def close(self) -> None:
        """Close the database if it was opened."""
        if self._database is not None:
            database, self._database = self._database, None
            await database.close()
