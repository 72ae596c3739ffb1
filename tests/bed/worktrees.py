"""A repository beside an engine, for stages in git worktrees: real git, real store, and a command as agent."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from perdure.agents.registry import build_agent
from perdure.config import load_config
from perdure.control import Control
from perdure.definitions import workflow
from perdure.engine.engine import Engine
from perdure.engine.loop import LaneLoop
from perdure.engine.tree import RunOptions
from perdure.host.snapshots import snapshot_ref
from perdure.ids import node_id
from perdure.store import open_database, worktrees
from perdure.store.journal import Journal
from perdure.values import load
from tests.bed.engines import TEN_MINUTES_MS, Plug
from tests.bed.repositories import Repository
from tests.bed.stores import MovedClock

# Runs its prompt's first line as Python in the stage's folder, then says where it is.
AGENT = """
import os, sys
exec(sys.stdin.read().splitlines()[0])
print(os.getcwd())
"""


COMMIT = "assert os.system('git add -A; git -c user.name=A -c user.email=a@example.org commit -qm work') == 0"


class Ground:
    """A repository, an engine over a database beside it, and an agent that does what its prompt says."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.repository = Repository(folder / "repo")
        (self.repository.folder / "sub").mkdir()
        self.head = self.repository.commit("first", {"a.txt": "one\n", "sub/b.txt": "two\n", ".gitignore": "*.log\n"})
        self.cwd = self.repository.folder
        self.clock = MovedClock()
        self.environ = {"PERDURE_DATA_DIR": str(self.data), "HOME": str(self.data)}
        self.warnings: list[str] = []

    def play(self, scenario, **settings):
        async def main():
            database = open_database(self.data / "perdure.db", clock=self.clock)
            config = load_config(self.cwd, self.environ, settings)
            try:
                async with Engine(database, config, agents=self._agent) as engine:
                    return await scenario(engine, database)
            finally:
                await database.close()

        with asyncio.Runner(loop_factory=LaneLoop) as runner:
            return runner.run(main())

    def run(self, body, **settings):
        """(run id, ending) of one whole run."""

        async def scenario(engine, database):
            execution = await engine.start(definition_of(body), {}, self.options())
            ending = await execution.wait()
            self.warnings = execution.tree.warnings
            return execution.run_id, ending

        return self.play(scenario, **settings)

    def resume(self, run_id, body):
        async def scenario(engine, database):
            execution = await engine.resume(run_id, definition_of(body), self.options())
            return await execution.wait()

        return self.play(scenario)

    def killed(self, body, cut):
        """The id of a run whose process dies at the event for which `cut` says so; its lease has run out since."""

        async def scenario(_, database):
            plug = Plug(database)
            plug.cut = cut
            engine = Engine(plug, load_config(self.cwd, self.environ), agents=self._agent)
            await engine.__aenter__()
            execution = await engine.start(definition_of(body), {}, self.options())
            await plug.out.wait()
            plug.buried = True
            self.clock.moved_ms += TEN_MINUTES_MS
            return execution.run_id

        return self.play(scenario)

    def delete(self, run_id):
        async def scenario(engine, database):
            return await Control(database).delete(run_id)

        return self.play(scenario)

    def rows(self, run_id):
        async def scenario(engine, database):
            return await database.read(lambda tx: worktrees.of_tree(tx, run_id))

        return [row for _, row in self.play(scenario)]

    def outcome(self, run_id, position):
        """What is recorded of a step."""

        async def scenario(engine, database):
            events = await Journal(database).load(run_id)
            return next(load(s.event.value) for s in events if s.event.key == f"f:{position}")

        return self.play(scenario)

    def options(self):
        return RunOptions(cwd=self.cwd, agent="doer")

    def _agent(self, name):
        return build_agent(
            name, {"kind": "command", "command": [sys.executable, "-c", AGENT], "prompt": "stdin", "env": ["PATH"]}
        )

    def snapshot(self, run_id, position, file):
        ref = snapshot_ref(run_id, node_id(run_id, position))
        return self.repository.git("show", f"{ref}:{file}")

    def refs(self):
        return self.repository.git("for-each-ref", "--format=%(refname)").splitlines()

    def trees(self):
        lines = self.repository.git("worktree", "list", "--porcelain").splitlines()
        return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")]


def definition_of(body):
    return body if not asyncio.iscoroutinefunction(body) else workflow(name="program")(body)


def write(name, text="new\\n"):
    return f"open({name!r}, 'w').write('{text}')"
