"""How a run looks while it runs: a line for the run, a line for each step.

`lines` is pure text. `LiveScreen` refreshes it in place on a terminal, `PlainScreen` prints one line for each change.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import IO, Any, Protocol

from perdure.inspect import RunView, StageView
from perdure.surfaces.cli import text
from perdure.surfaces.cli.output import Output

MARGIN_LINES = 6
ACTIVITY_COLUMNS = 200
STARTING = frozenset({"pending", "running"})


class Screen(Protocol):
    """Shows a run that changes."""

    def show(self, view: RunView, touched: Iterable[tuple[str, str]]) -> None:
        """Draw the run; `touched` names the steps that something happened to."""
        ...

    def close(self) -> None:
        """Leave the terminal as lines above. Safe twice; `show` opens it again."""
        ...


def header(view: RunView, *, colour: bool, width: int = 0) -> list[str]:
    """Icon, name, id, status, time, agent: on one line, or the id on its own where they do not fit (0: they do)."""
    shown = view.display_status
    icon = text.paint(text.ICONS.get(shown, " "), shown, colour=colour)
    word, time = shown.replace("_", " "), text.duration(view.elapsed_ms)
    painted = text.paint(word, shown, colour=colour)
    agent = f"  agent {view.agent}" if view.agent else ""
    long, short = ("  REHEARSAL: no model is asked", "  REHEARSAL") if is_rehearsal(view) else ("", "")
    needed = text.columns(f"  {view.name}  {view.run_id}  {word}  {time}")
    for more in (f"{agent}{long}", f"{agent}{short}", short):
        if not width or needed + text.columns(more) <= width:
            return [f"{icon} {view.name}  {view.run_id}  {painted}  {time}{more}"]
    room = max(8, width - len(f"    {word}  {time}{short}"))
    return [f"{icon} {text.cut(view.name, room)}  {painted}  {time}{short}", f"  {view.run_id}"]


def is_rehearsal(view: RunView) -> bool:
    """Whether the rehearsal agent answers for this run."""
    return view.agent == "rehearsal" or any(stage.agent == "rehearsal" for stage in view.stages or ())


def activity(stage: StageView) -> str:
    """What a step does or came to, in a few words."""
    if stage.error is not None:
        kind = stage.error["type"] if stage.error["code"] == "unknown" else ""
        return f"{kind or stage.error['code']}: {stage.error['message']}"
    if stage.question and not stage.question.strip().startswith(stage.name.rstrip("…")):  # a question is its own name
        return f"asks: {stage.question}"
    if stage.abandoned:
        return stage.abandoned.replace("_", " ")
    tries = f"attempt {stage.attempts}" if stage.attempts > 1 else ""
    who = " ".join(word for word in (stage.agent, stage.model) if word)
    return ", ".join(word for word in (who, tries, stage.label if stage.kind != "prompt" else "") if word)


def stage_rows(stages: Iterable[StageView]) -> list[tuple[str, str, str, str]]:
    """Columns: icon and name, kind, time, activity."""
    return [
        (
            f"{'  ' * stage.depth}{text.ICONS.get(stage.display_status, ' ')} {stage.name}",
            stage.kind,
            text.duration(stage.elapsed_ms),
            text.first_line(activity(stage), ACTIVITY_COLUMNS),
        )
        for stage in stages
    ]


def lines(view: RunView, *, height: int, width: int, colour: bool) -> list[str]:
    """The whole screen, at most `height` lines."""
    shown = list(view.stages or ())
    drawn = header(view, colour=colour, width=width)
    room = max(1, height - len(drawn) - 1)
    if len(shown) > room or view.nodes_count > len(shown):
        shown = shown[-(room - 1) :] if room > 1 else []
    if view.nodes_count > len(shown):
        drawn.append(text.paint(f"  +{view.nodes_count - len(shown)} earlier", "dim", colour=colour))
    rows = text.table([(f"  {name}", time, what) for name, _, time, what in stage_rows(shown)], width=width)
    drawn += [text.paint(row, stage.display_status, colour=colour) for row, stage in zip(rows, shown, strict=True)]
    return drawn


class LiveScreen:
    """Refreshes in place."""

    def __init__(self, out: Output) -> None:
        """Draws on the output's terminal."""
        self._out = out
        self._live: Any = None

    def show(self, view: RunView, touched: Iterable[tuple[str, str]]) -> None:
        """See Screen."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        del touched
        size = shutil.get_terminal_size((100, 30))
        drawn = lines(view, height=size.lines - MARGIN_LINES, width=size.columns, colour=self._out.colour)
        picture = Text.from_ansi("\n".join(drawn), no_wrap=True, overflow="ellipsis")
        if self._live is None:
            console = Console(file=self._out.stdout, highlight=False)
            self._live = Live(picture, console=console, auto_refresh=False)
            self._live.start()
        self._live.update(picture, refresh=True)

    def close(self) -> None:
        """See Screen."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()


class PlainScreen:
    """One line for each change, for pipes and logs."""

    def __init__(self, stream: IO[str]) -> None:
        """Prints to the stream."""
        self._stream = stream
        self._run_status = ""
        self._stage_status: dict[str, str] = {}

    def show(self, view: RunView, touched: Iterable[tuple[str, str]]) -> None:
        """See Screen."""
        is_news = view.display_status != self._run_status
        self._run_status = view.display_status
        if is_news and view.display_status in STARTING:
            self._print(header(view, colour=False)[0])
        self._show_stages(view, touched)
        if is_news and view.display_status not in STARTING:  # below the steps that led there
            self._print(header(view, colour=False)[0])

    def _show_stages(self, view: RunView, touched: Iterable[tuple[str, str]]) -> None:
        wanted = set(touched)
        shown = [stage for stage in view.stages or () if (stage.run_id, stage.position) in wanted]
        if len(shown) < len(wanted):
            self._print(f"  +{len(wanted) - len(shown)} more")
        for stage in shown:
            if self._stage_status.get(stage.stage_id) != stage.display_status:
                self._stage_status[stage.stage_id] = stage.display_status
                said = [f"{stage.display_status.replace('_', ' ')}", text.first_line(activity(stage), ACTIVITY_COLUMNS)]
                took = f"  {text.duration(stage.elapsed_ms)}" if stage.ended_at else ""
                name = f"{text.ICONS.get(stage.display_status, ' ')} {stage.name}"
                self._print(f"{'  ' * (stage.depth + 1)}{name}  {'  '.join(word for word in said if word)}{took}")

    def close(self) -> None:
        """See Screen."""

    def _print(self, line: str) -> None:
        print(text.safe(line), file=self._stream, flush=True)
