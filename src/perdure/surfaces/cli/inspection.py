"""status, show, stages, stage, transcript, wait: looking at runs. Nothing here claims a run or writes."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.clock import SystemClock
from perdure.control import find_stage
from perdure.failures import facts, user_message
from perdure.inspect import RunView, StageView
from perdure.projection import NodeState
from perdure.states import TERMINAL
from perdure.store import transcripts
from perdure.surfaces.cli import ending, text
from perdure.surfaces.cli.commands import Parts, check_database
from perdure.surfaces.cli.output import OK, TIMED_OUT, Output
from perdure.surfaces.cli.screen import header, stage_rows
from perdure.values import load
from perdure.watch import RECHECK_S, Watch, list_runs

SETTLED = TERMINAL | {"blocked", "paused"}
TRANSCRIPT_CHARS_MAX = 4000


async def _open(parts: Parts, target: str) -> Watch:
    """The run of a target, read once."""
    check_database(parts, target)
    row = await parts.control().resolve(target)
    watch = Watch(parts.database(), row.run_id)
    await watch.refresh()
    return watch


async def status_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """One run, or the newest ones."""
    if arguments.run is not None:
        views = [(await _open(parts, arguments.run)).view()]
    else:
        views = await list_runs(parts.database(), count=max(1, arguments.limit)) if parts.has_database else []
    out.result({"runs": [view.to_status() for view in views]}, lambda: _draw_status(out, views))
    return OK


def _draw_status(out: Output, views: list[RunView]) -> None:
    if not views:
        out.say("No runs yet. Start one: perdure run WORKFLOW")
    width = text.terminal_columns()
    rows = [_status_row(view) for view in views]
    lines = text.table(rows, width=0)
    if any(text.columns(line) > width for line in lines):  # then the id gets a line of its own
        kept = text.table([row[:1] + row[2:] for row in rows], width=width)
        lines = [f"{line}\n  {view.run_id}" for line, view in zip(kept, views, strict=True)]
    for line, view in zip(lines, views, strict=True):
        head, _, below = line.partition("\n")
        out.say(out.paint(head, view.display_status))
        if below:
            out.say(below)
        if view.error is not None:
            out.say(f"    {text.first_line(ending.said(view.error), 100)}")
        for advice in ending.advice(replace(view, error=None), question_lines=1):
            out.say(f"    {advice}")


def _status_row(view: RunView) -> tuple[str, ...]:
    return (
        f"{text.ICONS.get(view.display_status, ' ')} {view.display_status.replace('_', ' ')}",
        view.run_id,
        text.duration(view.elapsed_ms),
        text.count(view.nodes_done, "step"),
        view.name,
    )


async def show_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Everything about one run."""
    view = (await _open(parts, arguments.run)).view()

    def draw() -> None:
        for line in header(view, colour=out.colour, width=text.terminal_columns()):
            out.say(line)
        if view.inputs:
            out.say(f"inputs: {text.first_line(msgspec.json.encode(view.inputs).decode(), 200)}")
        out.say(f"from:   {view.definition or '-'} in {view.cwd}")
        _draw_stages(out, view.stages or ())
        ending.draw(out, view, headline=False)

    out.result(view.to_dict(), draw)
    return OK


async def stages_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """The steps of a run."""
    view = (await _open(parts, arguments.run)).view()
    stages = view.stages or ()
    out.result(
        {"run_id": view.run_id, "stages": [stage.to_dict() for stage in stages]}, lambda: _draw_stages(out, stages)
    )
    return OK


def _draw_stages(out: Output, stages: tuple[StageView, ...]) -> None:
    rows = text.table(stage_rows(stages), width=text.terminal_columns() - 2)
    for line, stage in zip(rows, stages, strict=True):
        out.say(out.paint(f"  {line}", stage.display_status))


async def stage_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """One step: what it was asked, what came of it."""
    watch = await _open(parts, arguments.run)
    stage = find_stage(watch.view(), arguments.stage)
    node = _node(watch, stage)
    value = _plain(node.value)
    data = stage.to_dict() | {"value": value, "detail": _plain(node.detail), "failure": _failure(node)}

    def draw() -> None:
        icon = text.ICONS.get(stage.display_status, " ")
        out.say(out.paint(f"{icon} {stage.name}  {stage.kind}  {stage.display_status}", stage.display_status))
        rows = [
            ("id", stage.stage_id),
            ("place", f"{stage.lane} {stage.position}"),
            ("code", stage.source),
            ("time", text.duration(stage.elapsed_ms)),
            ("attempts", str(stage.attempts)),
            ("agent", " ".join(word for word in (stage.agent, stage.model) if word)),
            ("session", stage.session_id),
        ]
        for line in text.table([(f"  {name}", what) for name, what in rows if what.strip()], width=0):
            out.say(line)
        if node.failure is not None:
            out.say(out.paint(f"{node.failure.code}: {user_message(node.failure)}", "failed"))
            for said in (node.failure.stdout, node.failure.stderr):
                if said:
                    out.say(said)
        if value is not None:
            out.say(
                text.value(value.get("text", value) if stage.kind == "stage" and isinstance(value, dict) else value)
            )

    out.result(data, draw)
    return OK


async def transcript_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """What a stage's agent was told, said and did."""
    watch = await _open(parts, arguments.run)
    stage = find_stage(watch.view(), arguments.stage)
    said = await parts.database().read(lambda tx: transcripts.last(tx, stage.run_id, stage.position))
    entries = [{"id": s.id, "take": s.take, "kind": s.kind, "entry": s.entry, "at": s.at} for s in said]

    def draw() -> None:
        if not entries:
            out.say(f"{stage.name} has no transcript.")
        for one in said:
            entry = one.entry if isinstance(one.entry, dict) else {"text": str(one.entry)}
            out.say(out.paint(f"[{one.kind}]", "bold"))
            out.say(str(entry.get("text", ""))[:TRANSCRIPT_CHARS_MAX])

    out.result({"stage_id": stage.stage_id, "name": stage.name, "entries": entries}, draw)
    return OK


async def wait_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Wait until the run ends, is blocked, quits, crashes or asks."""
    clock = SystemClock()
    deadline = None if arguments.timeout is None else clock.monotonic() + max(0.0, arguments.timeout)
    watch = await _open(parts, arguments.run)
    while not _is_settled(view := watch.view(latest=0)):
        left = RECHECK_S if deadline is None else deadline - clock.monotonic()
        if left <= 0:
            out.result(ending.to_dict(view), lambda: out.say(f"{view.run_id} is still {view.display_status}."))
            return TIMED_OUT
        await watch.changed(min(left, RECHECK_S))
        await watch.refresh()
    view = watch.view()
    out.result(ending.to_dict(view), lambda: ending.draw(out, view))
    return ending.exit_code(view)


def _is_settled(view: RunView) -> bool:
    return view.status in SETTLED or view.display_status == "crashed" or bool(view.awaiting_input)


def _node(watch: Watch, stage: StageView) -> NodeState:
    assert watch.tree is not None
    return watch.tree.runs[stage.run_id].nodes[stage.position]


def _plain(value: Any) -> Any:
    return load(value) if isinstance(value, msgspec.Raw) else None


def _failure(node: NodeState) -> dict[str, Any] | None:
    if node.failure is None:
        return None
    known = facts(node.failure.code)
    told: dict[str, Any] = msgspec.to_builtins(node.failure)
    return told | {"kind": known.kind, "retryable": known.retryable, "resumable": known.resumable}
