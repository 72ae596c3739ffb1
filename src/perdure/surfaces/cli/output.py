"""What the command line prints, and the number it exits with.

With `--json`, stdout carries exactly one envelope: `{"v":1,"ok":true,"data":...}` or `{"v":1,"ok":false,"error":...}`;
everything else goes to stderr. Without it people get text, and errors as `error:` with a `next:` line.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any, Final

from perdure.errors import PerdureError, StorageUnavailable
from perdure.surfaces.cli import text

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
ELSEWHERE: Final = 5
STORAGE: Final = 6
BLOCKED: Final = 7
INPUT_NEEDED: Final = 8
PARTIAL: Final = 9
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130

_BY_CODE: Final[dict[str, int]] = {
    **dict.fromkeys(
        ("run_not_found", "run_ambiguous", "stage_not_found", "stage_ambiguous", "prompt_not_found",
         "target_not_found", "target_ambiguous"),
        NOT_FOUND,
    ),
    **dict.fromkeys(
        ("run_ended", "no_active_work", "already_paused", "not_paused", "not_resumable", "run_active", "invalid_target",
         "workflow_terminal", "nested_control", "prompt_answered", "not_allowed_now", "run_deleted", "replay_mismatch"),
        REFUSED,
    ),
    **dict.fromkeys(("owned_elsewhere", "changed", "lease_held", "stale_lease", "stale"), ELSEWHERE),
    **dict.fromkeys(("storage_unavailable", "format_too_new", "corrupt", "malformed", "journal_closed"), STORAGE),
    **dict.fromkeys(
        ("usage_error", "definition_invalid", "input_invalid", "config_invalid", "not_trusted", "not_available",
         "extra_missing", "payload_invalid", "agent_unavailable", "limit_reached"),
        USAGE,
    ),
    "human_input_unavailable": INPUT_NEEDED,
}  # fmt: skip

NEXT: Final[dict[str, str]] = {
    "target_not_found": "perdure list",
    "not_trusted": "perdure trust",
    "run_not_found": "perdure status",
    "changed": "perdure status {run_id}",
    "owned_elsewhere": "perdure status {run_id}",
    "lease_held": "perdure status {run_id}",
    "run_active": "perdure quit {run_id}",
    "prompt_not_found": "perdure status {run_id}",
}


def exit_code(error: PerdureError) -> int:
    """The exit code of an error."""
    return _BY_CODE.get(str(error.to_dict()["code"]), FAILED)


class Output:
    """Where a command's words go."""

    def __init__(self, *, as_json: bool, debug: bool = False) -> None:
        self.as_json = as_json
        self.debug = debug
        _prepare_streams()
        self.stdout: IO[str] = sys.stdout
        self.colour = text.has_colour(self.stdout)

    @property
    def stderr(self) -> IO[str]:
        """Asked for each time: a screen that is drawn in place puts itself between."""
        return sys.stderr

    @property
    def is_live(self) -> bool:
        """Whether a screen may be drawn in place."""
        return not self.as_json and self.stdout.isatty()

    def say(self, line: str = "") -> None:
        """A line for people: on stdout, or on stderr when stdout belongs to the envelope."""
        print(text.safe(line, colour=self.colour), file=self.stderr if self.as_json else self.stdout, flush=True)

    def note(self, line: str) -> None:
        """A line beside the result."""
        print(text.safe(line, colour=text.has_colour(self.stderr)), file=self.stderr, flush=True)

    def go_silent(self) -> None:
        """Say nothing more: the terminal, or whoever read the pipe, is gone."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (self.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

    def paint(self, line: str, style: str) -> str:
        """A line in a status's colour, if colours are wanted."""
        return text.paint(line, style, colour=self.colour and not self.as_json)

    def result(self, data: Any, draw: Callable[[], None]) -> None:
        """The result of a command: the envelope, or whatever `draw` says."""
        if self.as_json:
            self._envelope({"v": 1, "ok": True, "data": data})
        else:
            draw()

    def refuse(self, error: PerdureError, run_id: str | None = None) -> int:
        """Print a refusal with what to do next; the exit code."""
        told = error.to_dict()
        code = str(told["code"])
        run = run_id or told["details"].get("run_id")
        if self.as_json:
            self._envelope({"v": 1, "ok": False, "error": {**told, "run_id": run}})
            return exit_code(error)
        self.note(f"{text.paint('error:', 'failed', colour=text.has_colour(self.stderr))} {error.message}")
        self._note_candidates(told["details"])
        advice = told["details"].get("next") or NEXT.get(code, "")
        advice = advice.replace("{run_id}", str(run)) if run or "{run_id}" not in advice else ""
        if advice and advice not in error.message:
            self.note(f"next: {advice}")
        if self.debug:
            traceback.print_exception(error, file=self.stderr)
        return exit_code(error)

    def refuse_file(self, error: OSError) -> int:
        """Print that a file or folder cannot be used; the exit code."""
        what = error.strerror or str(error)
        place = f"{error.filename}: " if error.filename else ""
        if error.errno == errno.ENOSPC:
            what, advice = "the disk is full", "Free some space, then try again."
        else:
            what, advice = what[:1].lower() + what[1:], "Look at its permissions, or name another place."
        told = errno.errorcode.get(error.errno or 0, "")
        return self.refuse(StorageUnavailable(f"{place}{what}. {advice}", path=error.filename, errno=told))

    def crash(self, error: BaseException) -> int:
        """Print an error nobody expected; the exit code."""
        if self.debug:
            traceback.print_exception(error, file=self.stderr)
        else:
            self.note(f"error: {type(error).__name__}: {text.first_line(str(error), 300)}")
            self.note("next: the same command with --debug shows where it happened")
        if self.as_json:
            told = {"code": "unknown", "message": f"{type(error).__name__}: {error}", "retryable": False, "details": {}}
            self._envelope({"v": 1, "ok": False, "error": {**told, "run_id": None}})
        return FAILED

    def _note_candidates(self, details: dict[str, Any]) -> None:
        for candidate in details.get("candidates") or ():
            self.note(f"  {candidate}")

    def _envelope(self, envelope: dict[str, Any]) -> None:
        is_utf8 = getattr(self.stdout, "encoding", "").lower() in {"utf-8", "utf8"}
        print(json.dumps(envelope, ensure_ascii=not is_utf8, default=str), file=self.stdout, flush=True)


def _prepare_streams() -> None:
    """Closed streams are ones that nobody reads; a character that an encoding lacks is shown as `?`."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:  # else the next file opened, the database perhaps, would take its place
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  for good
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")
