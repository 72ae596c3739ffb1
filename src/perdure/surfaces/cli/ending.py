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
QUESTION_LINES_MAX = 40


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
    out.say()
    if headline:
        for line in _headline(view, text.terminal_columns()):
            out.say(out.paint(line, shown))
    if view.reason and view.reason != "quit" and view.error is None:
        out.say(view.reason)
    if view.error is not None:
        _draw_error(out, view.error)
    if view.has_output and view.output is not None:
        if headline:
            out.say()
        out.say(text.value(_for_people(view.output)))
        out.say()
    out.say(out.paint(tally(view, replayed), "dim"))
    for line in advice(view):
        out.say(line)


def _for_people(value: Any) -> Any:
    """An output that brings its own report is read as that; --json has all of it."""
    report = value.get("report") if isinstance(value, dict) else None
    return report.strip() if isinstance(report, str) and report.strip() else value


def _headline(view: RunView, width: int) -> list[str]:
    icon, word = text.ICONS.get(view.display_status, " "), view.display_status.replace("_", " ")
    line = f"{icon} {view.name}  {view.run_id}  {word}"
    if text.columns(line) <= width:
        return [line]
    return [f"{icon} {text.cut(view.name, max(8, width - len(word) - 4))}  {word}", f"  {view.run_id}"]


def _draw_error(out: Output, error: dict[str, Any]) -> None:
    lines = said(error).strip().splitlines() or [""]
    out.say(out.paint(lines[0], "failed"))
    for line in lines[1:ERROR_LINES_MAX]:
        out.say(f"  {line}")


def said(error: dict[str, Any]) -> str:
    """`code: message`; where the code says nothing, the exception's type takes its place, or nothing does."""
    kind = error["code"] if error["code"] != "unknown" else error.get("type") or ""
    return f"{kind}: {error['message']}" if kind else str(error["message"])


def tally(view: RunView, replayed: int | None) -> str:
    """`12 steps, 3 replayed, 1m 20s, 1200 tokens`."""
    words = [text.count(view.nodes_done, "step")]
    words += [f"{replayed} replayed"] if replayed else []
    words.append(text.duration(view.elapsed_ms))
    tokens = view.tokens_in + view.tokens_out
    at_least = "at least " if any(stage.turns_unknown for stage in view.stages or ()) else ""
    words += [f"{at_least}{tokens} tokens"] if tokens else []
    words += [text.money(view.cost_nanos)] if view.cost_nanos else []
    words += ["a rehearsal: no model was asked"] if is_rehearsal(view) else []
    return ", ".join(words)


def advice(view: RunView, *, question_lines: int = QUESTION_LINES_MAX) -> list[str]:
    """Open questions, in at most so many lines each, and the next commands, ready to paste."""
    lines: list[str] = []
    for prompt in view.awaiting_input:
        lines += text.indented(prompt.message, "asks:   ", lines_max=question_lines)
        lines += [f"  {number}  {text.first_line(choice, 100)}" for number, choice in enumerate(prompt.choices, 1)]
        which = f" {prompt.prompt_id}" if len(view.awaiting_input) > 1 else ""
        lines.append(f"answer: perdure answer {view.run_id}{which} {_example(prompt.kind, prompt.choices)}")
    if view.resumable:
        lines.append(f"resume: perdure resume {view.run_id}")
    if view.error is not None:
        lines.append(f"look:   perdure show {view.run_id}")
    return lines


def _example(kind: str, choices: tuple[str, ...]) -> str:
    if kind == "select" and choices:
        return shlex.quote(choices[0]) if choices[0].isprintable() and len(choices[0]) <= 40 else "1"
    return {"confirm": "yes", "form": "'{...}'"}.get(kind, "'...'")
