"""The engine of a process: it starts and resumes runs, keeps their leases, and answers their mailbox.

    create  the run exists, status pending, nobody owns it      (what --detach does first)
    start   create + own + execute
    resume  own (or take over), replay, execute

Every run is executed on a LaneLoop. Several engines, in one process or many, may share a database; the lease decides
who writes (DESIGN 2, law 3). When a lease is lost the run stops at once and writes nothing more.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from perdure import failures
from perdure.agents.session import Agent
from perdure.clock import Clock, SystemClock
from perdure.config import Config
from perdure.engine.attention import Attention
from perdure.engine.ending import Ending
from perdure.engine.loop import running_loop
from perdure.engine.replay import Record
from perdure.engine.runner import Run
from perdure.engine.toolserver import ToolServer
from perdure.engine.tree import RunOptions, Services, Tree, records_of
from perdure.errors import (
    ControlRefused,
    InputInvalid,
    JournalError,
    LeaseHeld,
    PerdureError,
    Suspend,
)
from perdure.events import RunStarted, StatusChanged
from perdure.host.furnishing import Furnishing
from perdure.host.identity import Identity, here
from perdure.host.processes import sweep
from perdure.ids import jitter, new_id, new_run_id
from perdure.operations.transcript import Transcript
from perdure.operations.worktrees import Worktrees
from perdure.states import is_resumable_status
from perdure.store import requests
from perdure.store.database import Database, Tx
from perdure.store.journal import Appended, Item, Journal, NewRun, Terms
from perdure.store.requests import Request
from perdure.values import load, raw

if TYPE_CHECKING:
    from perdure.definitions import Workflow

__all__ = ["Ending", "Engine", "Execution", "RunOptions"]

_logger = logging.getLogger("perdure.engine")
# Records and tasks live long; at Python's usual 700 the collector would walk them again every few steps.
GC_OBJECTS: Final = 50_000
_STORED_OPTIONS: Final = ("agent", "stages_max", "seed", "script")


class Execution:
    """A run that this process owns and executes."""

    def __init__(self, engine: Engine, tree: Tree, code_changed: bool = False) -> None:
        self.run_id = tree.root_run_id
        self.tree = tree
        self.code_changed = code_changed  # the definition's file is another than when the run began
        self.quit_requests: list[Request] = []
        self._engine = engine
        self._task: asyncio.Task[Ending] | None = None

    def begin(self, task: asyncio.Task[Ending]) -> None:
        """The body runs."""
        self._task = task

    async def wait(self) -> Ending:
        """How the execution ended. Cancelling the caller does not end it."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    def quit(self) -> None:
        """Stop durably; `wait` then returns `paused`, and a resume goes on."""
        self.tree.stop(Ending(status="paused", code="quit", reason="quit"), Suspend("quit"))


class Engine:
    """Runs workflows over one database. Enter it before use; leaving it quits what still runs."""

    def __init__(
        self, database: Database, config: Config, *, agents: Callable[[str], Agent], clock: Clock | None = None
    ) -> None:
        """`agents` builds an agent by its configured name, raising AgentUnavailable."""
        self._database, self._config = database, config
        self._journal = Journal(database)
        self._clock = clock or SystemClock()
        self._attention = Attention(database)
        scratch = Path(config.data_dir) / "runs"
        self._services = Services(
            self._journal,
            self._attention,
            agents,
            scratch,
            lambda *place: Transcript(database, *place),
            ToolServer(),
            Worktrees(
                database, Path(config.data_dir) / "worktrees", Furnishing(config.link_dirs, config.worktree_setup)
            ),
        )
        self._holder = new_id()
        self._terms = Terms(self._holder, config.lease_timeout_ms, here())
        self._executions: dict[str, Execution] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._gc = gc.get_threshold()

    async def __aenter__(self) -> Self:
        running_loop()
        self._gc = gc.get_threshold()
        gc.set_threshold(GC_OBJECTS, *self._gc[1:])
        self._chores = [
            asyncio.create_task(self._renew_for_ever(), name="renew-leases"),
            asyncio.create_task(self._attention.watch(lambda: self._executions, self._apply), name="mailbox"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for execution in list(self._executions.values()):
            execution.quit()
        await asyncio.gather(*(e.wait() for e in list(self._executions.values())), return_exceptions=True)
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._services.tools.close()
        gc.set_threshold(*self._gc)

    # --- starting

    async def create(self, workflow: Workflow, inputs: dict[str, Any], options: RunOptions) -> str:
        """Write a new run that nobody owns yet; its id. Nothing of it was executed."""
        lease, _, _ = await self._create(workflow, inputs, options, running=False)
        await self._journal.release(lease)
        run_id: str = lease.root_run_id
        return run_id

    async def start(self, workflow: Workflow, inputs: dict[str, Any], options: RunOptions) -> Execution:
        """Create a run and execute it here. `inputs` are validated (Workflow.validate_inputs)."""
        lease, started, at = await self._create(workflow, inputs, options, running=True)
        record = Record(lease.root_run_id, started=started, started_at=at, status="running", changes=1, last_at=at)
        tree = Tree(self._services, lease, options, running_loop(), {lease.root_run_id: record})
        tree.crashed = False
        return self._execute(tree, workflow, inputs)

    async def _create(
        self, workflow: Workflow, inputs: dict[str, Any], options: RunOptions, *, running: bool
    ) -> tuple[Any, RunStarted, int]:
        run_id = new_run_id()
        definition, digest, cwd = str(workflow.location()), workflow.source_digest(), str(options.cwd)
        started = RunStarted(
            name=workflow.name, inputs=raw(workflow.dump_inputs(inputs), what="inputs"), definition=definition,
            file_digest=digest, cwd=cwd, options={k: getattr(options, k) for k in _STORED_OPTIONS},
        )  # fmt: skip
        items = [Item(run_id, started)]
        if running:
            items.append(Item(run_id, StatusChanged(status="running", epoch=1, number=1)))
        new = NewRun(run_id, run_id, None, None, 1, workflow.name, cwd, definition, digest)
        loop = running_loop()
        created: asyncio.Future[Any] = loop.create_future()
        self._journal.submit_create(
            new, self._terms, items,
            lambda done, error: created.set_result(done) if error is None else created.set_exception(error), loop,
        )  # fmt: skip
        result = await created
        for outcome in result.outcomes:
            if not isinstance(outcome, Appended):
                raise getattr(outcome, "error", JournalError(f"Run {run_id} could not be created."))
        return result.lease, started, result.outcomes[0].stored.at

    # --- resuming

    async def resume(self, run_id: str, workflow: Workflow, options: RunOptions) -> Execution:
        """Own a run that nobody executes, or whose owner is gone, and go on with it.

        Raises ControlRefused: not_resumable, owned_elsewhere, changed. Options that the caller left at their defaults
        are those the run was started with.
        """
        row = await self._journal.row(run_id)
        if row.parent_run_id is not None:
            raise ControlRefused(
                "invalid_target", f"{run_id} is part of {row.root_run_id}. Resume that one.", run_id=row.root_run_id
            )
        if not is_resumable_status(row.status, resumable=row.resumable):
            raise ControlRefused("not_resumable", f"Run {run_id} has ended: {row.status}.", run_id=run_id)
        try:
            lease = await self._journal.acquire(
                run_id, self._holder, self._config.lease_timeout_ms, self._terms.process
            )
        except LeaseHeld as held:
            raise ControlRefused(
                "owned_elsewhere",
                f"Another process runs {run_id} now. Watch it: perdure status {run_id}; stop it: perdure quit {run_id}",
                **held.details,
            ) from held
        try:
            await self._sweep(row.process)
            return await self._reopen(lease, workflow, options)
        except BaseException:
            if run_id not in self._executions:
                await self._journal.release(lease)
            raise

    async def _sweep(self, process: str | None) -> None:
        """End what a dead owner had started before any of the author's code runs."""
        if process and self._terms.process is not None and self._terms.process.proves_gone(process, one_machine=True):
            left = await sweep(Identity.from_dict(load(process)))
            if left:
                _logger.warning("Processes of the run's former owner could not be ended: %s", left)

    async def _reopen(self, lease: Any, workflow: Workflow, options: RunOptions) -> Execution:
        run_id = lease.root_run_id
        records = records_of(await self._journal.load(run_id))
        record = records.get(run_id)
        if record is None or record.started is None:
            raise JournalError(f"Run {run_id} has no beginning in the journal..", run_id=run_id)
        if not is_resumable_status(record.status, resumable=record.resumable):
            raise ControlRefused("changed", f"Run {run_id} ended meanwhile: {record.status}.", run_id=run_id)
        if record.started.name != workflow.name:
            raise InputInvalid(
                f"Run {run_id} is of workflow {record.started.name}, not {workflow.name}.", run_id=run_id
            )
        inputs = workflow.validate_stored(load(record.started.inputs))
        tree = Tree(self._services, lease, self._merged(options, record), running_loop(), records)
        run = tree.root = Run(tree, workflow, inputs, tree.record_of(run_id))
        stored = await tree.log.commit(run, run.reopened(rerun=options.on_drift == "rerun"))
        tree.saw_store_time(stored.at)
        run.begin()
        changed = record.started.file_digest != workflow.source_digest()
        return self._execute(tree, workflow, inputs, run=run, code_changed=changed)

    def _merged(self, options: RunOptions, record: Record) -> RunOptions:
        """The run's stored options, with those the caller set explicitly on top."""
        assert record.started is not None
        plain = RunOptions(cwd=options.cwd)
        stored = {k: v for k, v in record.started.options.items() if k in _STORED_OPTIONS}
        given = {k: getattr(options, k) for k in _STORED_OPTIONS if getattr(options, k) != getattr(plain, k)}
        cwd = Path(record.started.cwd) if record.started.cwd else options.cwd
        return replace(options, **{**stored, **given}, cwd=cwd)

    # --- executing

    def _execute(
        self,
        tree: Tree,
        workflow: Workflow,
        inputs: dict[str, Any],
        *,
        run: Run | None = None,
        code_changed: bool = False,
    ) -> Execution:
        if run is None:
            run = tree.root = Run(tree, workflow, inputs, tree.record_of(tree.root_run_id))
        tree.renew = lambda: self._renew([tree])
        execution = Execution(self, tree, code_changed)
        self._executions[tree.root_run_id] = execution
        execution.begin(asyncio.create_task(self._to_the_end(execution, run), name=f"run-{tree.root_run_id}"))
        return execution

    async def _to_the_end(self, execution: Execution, run: Run) -> Ending:
        try:
            ending = await run.execute()
            if ending.recorded:
                for request in execution.quit_requests:
                    await self._settle(request, execution, ending)
            return ending
        finally:
            self._executions.pop(execution.run_id, None)
            try:
                self._journal.submit_release(execution.tree.lease, execution.tree.loop)
            except PerdureError as error:  # a lease that nobody renews runs out by itself
                _logger.warning("The lease of %s could not be released: %s", execution.run_id, error)

    # --- leases

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(jitter(self._config.lease_renew_ms / 1000))
            trees = [execution.tree for execution in self._executions.values()]
            if trees:
                await self._renew(trees)

    async def _renew(self, trees: list[Tree]) -> None:
        """Renew beside the writing; a lost lease stops its run, any other trouble is tried again next time."""
        try:
            refused = await self._journal.renew_many([tree.lease for tree in trees])
        except PerdureError as error:
            _logger.warning("Leases could not be renewed, trying again: %s", error)
            return
        for tree, refusal in zip(trees, refused, strict=True):
            if refusal is None:
                tree.renewed = tree.loop.real_time()
            else:
                tree.log.close(refusal)

    # --- the mailbox

    async def _apply(self, request: Request) -> None:
        """Do what was asked of a run we own; its outcome is stored once it is so."""
        execution = self._executions.get(request.run_id)
        if execution is None:
            return
        if request.verb == "quit":
            if all(request.request_id != known.request_id for known in execution.quit_requests):
                execution.quit_requests.append(request)
                execution.quit()
            return
        refusal = {"error": {"code": "control_failed", "message": f"This version does not know {request.verb!r}."}}
        await self._database.write(lambda tx: requests.settle(tx, request.request_id, refusal, execution.tree.lease))

    async def _settle(self, request: Request, execution: Execution, ending: Ending) -> None:
        run_id = execution.run_id
        if ending.status == "paused":
            outcome = {
                "action": "quit", "run_id": run_id, "status": "paused", "changed": True,
                "message": f"Quit {run_id}. Resume: perdure resume {run_id}",
            }  # fmt: skip
        else:
            message = f"Run {run_id} ended before it could quit: {ending.status}."
            outcome = {"action": "quit", "run_id": run_id, "status": "noop", "changed": False, "message": message}

        def unit(tx: Tx) -> bool:
            return requests.settle(tx, request.request_id, outcome, execution.tree.lease)

        try:
            await self._database.write(unit)
        except PerdureError as error:
            _logger.warning("%s", failures.classify(error, origin="engine").message)
