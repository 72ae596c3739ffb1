"""What becomes of a stage's final message: kept inline within a bound, written to a file, or both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from perdure.errors import UsageError
from perdure.ids import new_id
from perdure.operations.stage_options import OUTPUT_LINES_MAX, StageOptions

_CUT: Final = "\n[... cut: {shown} of {total} bytes; the transcript has the rest]"


def bounded_message(text: str, bytes_max: int, lines_max: int = OUTPUT_LINES_MAX) -> str:
    """The beginning of a message that is too long, with a mark where it was cut."""
    data = text.encode("utf-8", "replace")
    kept = data[:bytes_max]
    lines = kept.split(b"\n", lines_max)
    if len(lines) > lines_max and lines[-1]:
        kept = b"\n".join(lines[:lines_max])
    if len(kept) == len(data):
        return data.decode()
    shown = kept.decode("utf-8", "ignore")
    return shown + _CUT.format(shown=len(shown.encode("utf-8", "replace")), total=len(data))


def output_path(options: StageOptions, cwd: Path) -> Path | None:
    """Where the message goes. Raises UsageError for a place outside the stage's folder."""
    if options.output is None:
        return None
    path = (cwd / options.output).resolve()
    if not path.is_relative_to(cwd.resolve()) or path == cwd.resolve() or path.is_dir():
        raise UsageError(
            f"output={options.output!r} must name a file inside the stage's folder {cwd}.", output=options.output
        )
    return path


def check_reads(options: StageOptions, cwd: Path) -> None:
    """Raise UsageError naming every file of `reads` that is not there."""
    missing = [path for path in options.reads if not (cwd / path).exists()]
    if missing:
        raise UsageError(f"The stage reads {', '.join(missing)}, which is not there (in {cwd}).", missing=missing)


def write_message(path: Path, text: str, node: str) -> dict[str, Any]:
    """Write the message so that a reader sees all of it or the old file; the receipt."""
    data = text.encode("utf-8", "replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{new_id()[:8]}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    return {"kind": "output", "path": str(path), "bytes": len(data), "lines": lines, "transcript": node}


def receipt_text(receipt: dict[str, Any]) -> str:
    """A receipt in words."""
    return f"The final message is in {receipt['path']} ({receipt['bytes']} bytes, {receipt['lines']} lines)."
