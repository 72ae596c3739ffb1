"""Asking a person at the terminal. The question stays open elsewhere meanwhile; whoever answers first answers it.

Lines come through the event loop, not from a blocked thread, so that a question answered elsewhere, or an interrupt,
ends the wait at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, Final

from perdure.answers import expected, normalise
from perdure.errors import InputInvalid
from perdure.inspect import PromptView
from perdure.surfaces.cli.output import Output

END_OF_TEXT: Final = "."


class Keyboard:
    """Lines from a terminal's standard input."""

    def __init__(self) -> None:
        self._buffer = b""
        self._ended = False

    async def line(self) -> str | None:
        """The next line without its end; None once the input has ended."""
        loop = asyncio.get_running_loop()
        fd = sys.stdin.fileno()
        while b"\n" not in self._buffer and not self._ended:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(fd, _wake, ready)
            try:
                await ready
            finally:
                loop.remove_reader(fd)
            data = os.read(fd, 4096)
            self._buffer += data
            self._ended = not data
        if b"\n" not in self._buffer and not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def ask(out: Output, keyboard: Keyboard, prompt: PromptView) -> Any:
    """The value a person gives; asks again until it is one. Raises EOFError when the input ends."""
    out.say()
    out.say(out.paint(f"? {prompt.message}", "awaiting_input"))
    for number, choice in enumerate(prompt.choices, 1):
        out.say(f"  {number}  {choice}")
    if prompt.schema:
        out.say(f"  a JSON object of this form: {json.dumps(prompt.schema, ensure_ascii=False)}")
    if prompt.kind == "editor":
        out.say(f"  end with a line that holds only {END_OF_TEXT}")
    while True:
        out.stdout.write({"confirm": "yes or no> ", "select": "number or text> "}.get(prompt.kind, "> "))
        out.stdout.flush()
        try:
            return normalise(prompt.kind, await _text(keyboard, prompt), choices=prompt.choices, schema=prompt.schema)
        except InputInvalid as refused:
            out.say(refused.message if prompt.kind == "form" else f"Please {expected(prompt.kind, prompt.choices)}.")


async def _text(keyboard: Keyboard, prompt: PromptView) -> str:
    lines: list[str] = []
    while True:
        line = await keyboard.line()
        if line is None:
            raise EOFError
        if prompt.kind != "editor":
            return line
        if line == END_OF_TEXT:
            return "\n".join(lines)
        lines.append(line)
