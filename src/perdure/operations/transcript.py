"""The transcript of one stage: what was said, in whole messages, written at most four times a second.

Pieces of a message are joined until something else is said. The law: a transcript is for people. Nothing waits for it
but the end of a stage, and a write that fails costs entries, never the stage.

    add ---> the open message ---(something else, or flush)---> ready ---(every PAUSE_S, or flush)---> store
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from perdure.agents.session import AgentEvent
from perdure.errors import PerdureError
from perdure.store import transcripts
from perdure.store.database import Database
from perdure.values import redact

PAUSE_S: Final = 0.25
ENTRY_CHARS_MAX: Final = 256 * 1024
READY_MAX: Final = 1_000  # entries that wait for a write

_JOINED: Final = frozenset({"text", "thought"})
_logger = logging.getLogger("perdure.run")

Entry = tuple[str, dict[str, Any]]


class Transcript:
    """Collects what is said in a stage and writes it down."""

    def __init__(self, database: Database, run_id: str, position: str, take: int) -> None:
        self._database, self._place = database, (run_id, position, take)
        self._kind = ""  # of the open message
        self._pieces: list[str] = []
        self._chars = 0
        self._ready: list[Entry] = []
        self._lost = 0
        self._hurry = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def add(self, event: AgentEvent) -> None:
        """Take in what the agent said or did."""
        if event.kind in _JOINED and not event.data:
            if event.kind != self._kind:
                self._close_message()
                self._kind = event.kind
            if self._chars < ENTRY_CHARS_MAX:
                self._pieces.append(event.text)
                self._chars += len(event.text)
            return
        self._close_message()
        self._put(event.kind, event.text, dict(event.data) if event.data else None)

    def prompted(self, text: str) -> None:
        """Take in what the agent was told."""
        self._close_message()
        self._put("prompt", text, None)

    async def flush(self) -> None:
        """Return once everything is written, or lost."""
        self._close_message()
        self._hurry.set()
        while self._writer is not None:
            await asyncio.shield(self._writer)

    def _close_message(self) -> None:
        if self._pieces:
            self._put(self._kind, "".join(self._pieces), None)
        self._kind, self._pieces, self._chars = "", [], 0

    def _put(self, kind: str, text: str, data: dict[str, Any] | None) -> None:
        if len(self._ready) >= READY_MAX:
            self._lost += 1
            return
        said: dict[str, Any] = {"text": _shown(text)}
        if data is not None:
            said["data"] = data
        self._ready.append((kind, said))
        if self._writer is None:
            self._hurry.clear()
            self._writer = asyncio.create_task(self._write(), name="transcript")

    async def _write(self) -> None:
        try:
            while self._ready:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), PAUSE_S)
                entries, self._ready = self._ready, []
                if self._lost:
                    entries.append(("note", {"text": f"{self._lost} entries are left out here."}))
                    self._lost = 0
                await self._store(entries)
        finally:
            self._writer = None

    async def _store(self, entries: list[Entry]) -> None:
        run_id, position, take = self._place
        try:
            await self._database.write(lambda tx: transcripts.append(tx, run_id, position, take, entries))
        except PerdureError as error:
            _logger.warning("%d transcript entries of %s were not kept: %s", len(entries), position, error.message)


def _shown(text: str) -> str:
    cut = len(text) > ENTRY_CHARS_MAX
    shown = redact(text[:ENTRY_CHARS_MAX]).encode("utf-8", "replace").decode()
    return f"{shown}\n[... cut]" if cut else shown
