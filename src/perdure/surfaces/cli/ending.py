"""The last words about a run: how it ended, what came out, what to do next."""

from __future__ import annotations

import shlex
from typing import Any

from perdure.inspect import RunView
from perdure.states import TERMINAL
from perdure.surfaces.cli import output, text
from perdure.surfaces.cli.output import Output
from perdure.surfaces.cli.screen import is_rehearsal

ERROR_LINES_MAX = 12


def exit_code(view: RunView) -> int:
    """The exit code that a run's state stands for (spec/control.md 10)."""
    if view.error is not None and view.error["code"] == "human_input_unavailable":
        return output.INPUT_NEEDED
    if view.status in {"completed", "skipped"}:
        return output.OK
    if view.status in {"blocked", "exit_blocked"}:
        return output.BLOCKED
    if view.status in TERMINAL or view.display_status == "crashed":
        return output.FAILED
    if view.awaiting_input:
        return output.INPUT_NEEDED
    return output.INTERRUPTED if view.status == "paused" else output.OK


def to_dict(view: RunView, *, replayed: int | None = None) -> dict[str, Any]:
    """The end of a run as JSON."""
    told = view.to_status() | {"reason": view.reason, "output": view.output}
    return told | {"steps": view.nodes_done, "replayed": replayed}


def draw(out: Output, view: RunView, *, replayed: int | None = None, headline: bool = True) -> None:
    """The end of a run for people."""
    shown = view.display_status
    if headline:
        out.say()
        line = f"{text.ICONS.get(shown, ' ')} {view.name}  {view.run_id}  {shown.replace('_', ' ')}"
        out.say(out.paint(line, shown))
    if view.reason and view.reason != "quit" and view.error is None:
        out.say(view.reason)
    if view.error is not None:
        _draw_error(out, view.error)
    if view.has_output and view.output is not None:
        out.say()
        out.say(text.value(view.output))
        out.say()
    out.say(out.paint(tally(view, replayed), "dim"))
    for line in advice(view):
        out.say(line)


def _draw_error(out: Output, error: dict[str, Any]) -> None:
    lines = str(error["message"]).strip().splitlines() or [""]
    kind = error.get("type") if error["code"] == "unknown" else None
    out.say(out.paint(f"{kind or error['code']}: {lines[0]}", "failed"))
    for line in lines[1:ERROR_LINES_MAX]:
        out.say(f"  {line}")


def tally(view: RunView, replayed: int | None) -> str:
    """`12 steps, 3 replayed, 1m 20s, 1200 tokens`."""
    words = [text.count(view.nodes_done, "step")]
    words += [f"{replayed} replayed"] if replayed else []
    words.append(text.duration(view.elapsed_ms))
    tokens = view.tokens_in + view.tokens_out
    words += [f"{tokens} tokens"] if tokens else []
    words += [text.money(view.cost_nanos)] if view.cost_nanos else []
    words += ["a rehearsal: no model was asked"] if is_rehearsal(view) else []
    return ", ".join(words)


def advice(view: RunView) -> list[str]:
    """The next commands, ready to paste."""
    lines: list[str] = []
    for prompt in view.awaiting_input:
        lines.append(f"asks: {prompt.message}")
        lines += [f"  {number}  {choice}" for number, choice in enumerate(prompt.choices, 1)]
        which = f" {prompt.prompt_id}" if len(view.awaiting_input) > 1 else ""
        lines.append(f"answer: perdure answer {view.run_id}{which} {_example(prompt.kind, prompt.choices)}")
    if view.resumable:
        lines.append(f"resume: perdure resume {view.run_id}")
    if view.error is not None:
        lines.append(f"look:   perdure show {view.run_id}")
    return lines


def _example(kind: str, choices: tuple[str, ...]) -> str:
    if kind == "select" and choices:
        return shlex.quote(choices[0])
    return {"confirm": "yes", "form": "'{...}'"}.get(kind, "'...'")
