"""Where a stage works, and what is kept of it at the stage's end (spec/authoring.md 6).

    stage's worktree= -> else the workflow's -> else the run's folder

At a stage's end the state of its worktree becomes a snapshot; a temporary worktree is then removed and its diff is the
stage's artifact. The law: nothing is removed before what it holds is kept, and a stage that will go on later, here or
under another owner, is left as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from perdure.errors import PerdureError, UsageError
from perdure.host.processes import to_the_end
from perdure.host.snapshots import Snapshot, snapshot_ref, take_snapshot, write_diff
from perdure.ids import node_id
from perdure.operations.base import Call
from perdure.operations.stage_options import StageOptions
from perdure.operations.worktrees import Worktree, Worktrees


@dataclass(slots=True)
class Workplace:
    """The folder of one stage. `worktree` is None in the run's own folder."""

    call: Call
    cwd: Path
    worktree: Worktree | None
    _left: bool = field(default=False, init=False)

    async def leave(self) -> list[dict[str, Any]]:
        """The stage is over and its agent gone: keep what is to be kept; its artifacts. Only the first time.

        What could not be kept is a warning of the run, never a failure of a stage that did its work.
        """
        run: Any = self.call.run
        if self._left or self.worktree is None:
            return []
        goes_on = run.verdict is not None and run.verdict.status in {"paused", "blocked"}
        if goes_on or run.log.lost is not None:
            return []
        self._left = True
        return await to_the_end(self._kept(run, self.worktree))

    async def _kept(self, run: Any, worktree: Worktree) -> list[dict[str, Any]]:
        kept = None
        try:
            lease = run.check_lease()
            if lease is not None:
                await lease
            subject = f"perdure: stage {self.call.name} of run {run.run_id}"
            kept = await take_snapshot(worktree.path, _ref(self.call), subject)
            if kept.missing:
                run.tree.warn(f"The snapshot of {worktree.path} is not whole: {kept.missing}")
            if worktree.kind == "temporary":
                return await self._cleared(run, worktree, kept)
        except (PerdureError, OSError) as error:
            lost = "could not be kept as a snapshot" if kept is None else "stays: its diff could not be kept"
            run.tree.warn(f"After stage {self.call.name} the worktree {worktree.path} {lost}. {error}")
        return []

    async def _cleared(self, run: Any, worktree: Worktree, kept: Snapshot) -> list[dict[str, Any]]:
        """Write the diff, then remove the worktree unless the snapshot lacks something of it."""
        suffix = f"-{self.call.take}" if self.call.take else ""
        file = run.tree.scratch(run.run_id, self.call.position) / f"changes{suffix}.diff"
        size = await write_diff(worktree.repository, worktree.base, kept.commit, file)
        if not kept.missing:
            await run.tree.worktrees.remove(run, worktree)
        if not size.files_count:
            return []
        found = {"kind": "diff", "path": str(file), "bytes": file.stat().st_size, "commit": kept.commit}
        return [{**found, **asdict(size), "files": list(size.files)}]


async def enter(call: Call, options: StageOptions) -> Workplace:
    """The place of a stage, made if need be. Raises UsageError, GitFailed."""
    run: Any = call.run
    around: Path = run.cwd if options.cwd is None else run.cwd / options.cwd
    if not around.is_dir():
        raise UsageError(f"The stage's folder {around} is not there.", cwd=str(around))
    wanted = options.worktree or run.workflow.worktree is True
    if not wanted or not run.tree.options.worktrees:
        inside = run.worktree is not None and around.resolve().is_relative_to(run.worktree.path.resolve())
        return Workplace(call, around, run.worktree if inside else None)
    if wanted is not True:
        found = await _found(run, wanted, options.base, around)
    elif options.context == "fork":
        raise UsageError(
            'context="fork" goes on in the folder of an earlier stage, and worktree=True is a new one. Give the '
            'worktree a name, and both stages the same: worktree="fix".'
        )
    else:
        found = await run.tree.worktrees.temporary(call, _ref(call), options.base, around)
    return Workplace(call, found.cwd, found)


async def settle(run: Any) -> Worktree | None:
    """The worktree that the workflow wants its stages to work in, if it names one. Raises UsageError, GitFailed."""
    wanted = run.workflow.worktree
    if not wanted or wanted is True or not run.tree.options.worktrees:
        return None
    return await _found(run, wanted, None, run.cwd)


async def _found(run: Any, wanted: str | PurePath, base: str | None, around: Path) -> Worktree:
    worktrees: Worktrees = run.tree.worktrees
    if isinstance(wanted, PurePath):
        return await worktrees.given(run, Path(wanted), base, around)
    return await worktrees.named(run, wanted, base, around)


def _ref(call: Call) -> str:
    """Where the snapshot of the stage is kept."""
    run: Any = call.run
    return snapshot_ref(run.run_id, node_id(run.run_id, call.position))
