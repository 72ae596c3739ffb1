"""run and resume: start a run or go on with one, in the foreground or handed to a process of its own."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from perdure.engine.engine import RunOptions
from perdure.errors import ControlRefused, NotAvailable
from perdure.inspect import RunView
from perdure.loading import load_definition
from perdure.states import ABSORBING
from perdure.surfaces.cli.commands import Parts, check_database, note_set_aside
from perdure.surfaces.cli.foreground import Foreground
from perdure.surfaces.cli.output import OK, Output
from perdure.watch import Watch


async def run_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Start a run. Everything that can be refused is refused before anything is written."""
    workflow = parts.catalog(arguments.workflow).find(arguments.workflow).load()
    file = parts.cwd / arguments.inputs if arguments.inputs else None
    inputs = workflow.parse_text(arguments.assignments, file)
    note_set_aside(parts, out)
    options = _options(parts, arguments)
    options = replace(options, agent=options.agent or parts.config.agent, stages_max=parts.config.stages_max)
    if options.agent is not None:
        parts.agent(options.agent)  # refuses an unknown one
    async with parts.engine() as engine:
        if arguments.detach:
            _logs(parts)  # refuses before a run is written
            return _detach(await engine.create(workflow, inputs, options), parts, arguments, out)
        execution = await engine.start(workflow, inputs, options)
        return await Foreground(parts, execution, out).follow()


async def resume_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Go on with a run that nobody executes, or whose owner is gone."""
    check_database(parts, arguments.run)
    row = await parts.control().resolve(arguments.run)
    watch = Watch(parts.database(), row.run_id)
    await watch.refresh()
    view = watch.view(latest=0)
    _check_resumable(view)
    workflow = load_definition(view.definition, view.name)
    options = _options(parts, arguments)
    if options.agent is None and view.agent is None:
        options = replace(options, agent=parts.config.agent)
    if options.agent is not None:
        parts.agent(options.agent)
    if arguments.detach:
        return _detach(row.run_id, parts, arguments, out)
    async with parts.engine() as engine:
        execution = await engine.resume(row.run_id, workflow, options)
        if execution.code_changed:
            out.note("note: the workflow's file has changed since this run began")
        return await Foreground(parts, execution, out, watch=watch, is_owner_only=arguments.owner).follow()


def _options(parts: Parts, arguments: Namespace) -> RunOptions:
    if arguments.budget:
        raise NotAvailable("Budgets come with a later version of perdure. Leave --budget out.", budget=arguments.budget)
    return RunOptions(
        cwd=parts.cwd,
        agent=arguments.agent,
        on_prompt="fail" if arguments.no_input else "wait",
        on_drift=arguments.on_drift,
        seed=arguments.seed,
    )


def _check_resumable(view: RunView) -> None:
    """Why the run cannot be resumed, in words; the engine checks again where it counts."""
    if view.is_live:
        raise ControlRefused(
            "owned_elsewhere",
            f"Another process runs {view.run_id} now. Stop it first: perdure quit {view.run_id}",
            run_id=view.run_id,
        )
    if view.status in ABSORBING:
        raise ControlRefused("not_resumable", f"Run {view.run_id} has ended: {view.status}.", run_id=view.run_id)


def _logs(parts: Parts) -> Path:
    """The folder of the logs of detached runs."""
    folder = Path(parts.config.data_dir) / "logs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _detach(run_id: str, parts: Parts, arguments: Namespace, out: Output) -> int:
    """Hand a run to a process of its own, which goes on when this one ends."""
    from perdure.host.processes import spawn_detached

    log = _logs(parts) / f"{run_id}.log"
    words = [sys.executable, "-P", "-m", "perdure", "resume", run_id, "--owner", "--database", parts.config.database]
    words += ["--on-drift", arguments.on_drift, "--seed", str(arguments.seed)]
    words += ["--agent", arguments.agent] if arguments.agent else []
    words += ["--no-input"] if arguments.no_input else []
    pid = spawn_detached(words, log, {**os.environ, "PYTHONHASHSEED": "0"}, parts.cwd)

    def draw() -> None:
        out.say(f"{run_id} runs in the background (process {pid}, log {log})")
        out.say(f"next: perdure status {run_id}   perdure wait {run_id}   perdure quit {run_id}")

    out.result({"run_id": run_id, "detached": True, "pid": pid, "log": str(log)}, draw)
    return OK
