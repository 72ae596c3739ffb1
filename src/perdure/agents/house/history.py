"""What was said in a session, kept in a file so that another process can go on with it.

One JSON object a line: first the session itself, then each message as it came. Lines are only added, so what a turn
costs to keep follows the turn, not the session. A line that a kill cut short is dropped when the file is read. A
message is on disk before the next thing happens: the prompt before a model is asked, tool calls before they run.

When a model says that all of it is too much, `shrink` drops what old tools gave: it can be had again, what people and
models said cannot.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ToolReturnPart, repair_messages

from perdure.errors import TargetNotFound
from perdure.ids import new_id

FORMAT: Final = 1
DROPPED: Final = "[dropped to make room; call the tool again if you need it]"
RESULTS_KEPT: Final = 2  # of the latest, whatever their size
RESULT_CHARS_MIN: Final = 500  # shorter ones are not worth dropping
_ID: Final = re.compile(r"house-[0-9a-f-]{36}")


class History:
    """The messages of one session, in memory and in its file."""

    def __init__(self, path: Path, session_id: str, messages: list[ModelMessage], kept: int) -> None:
        """Use `create` or `load`. `kept` messages are in the file."""
        self.session_id = session_id
        self.messages = messages
        self._path = path
        self._kept = kept

    @classmethod
    def create(cls, folder: Path, cwd: Path) -> History:
        """An empty history with a new session id."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        session_id = f"house-{new_id()}"
        path = folder / f"{session_id}.jsonl"
        head: dict[str, Any] = {"format": FORMAT, "session_id": session_id, "cwd": str(cwd)}
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(head) + "\n")
        return cls(path, session_id, [], 0)

    @classmethod
    def load(cls, folder: Path, session_id: str) -> History:
        """The history of a session. Raises TargetNotFound if there is none."""
        path = folder / f"{session_id}.jsonl"
        if _ID.fullmatch(session_id) is None or not path.is_file():
            raise TargetNotFound(f"There is no session {session_id} here. Start a new one.", session_id=session_id)
        whole, _, torn = path.read_bytes().rpartition(b"\n")
        if torn:
            with path.open("r+b") as file:
                file.truncate(len(whole) + 1 if whole else 0)
        _, *lines = whole.split(b"\n")
        try:
            messages = ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(lines) + b"]")
        except ValidationError as error:
            raise TargetNotFound(
                f"Session {session_id} cannot be read: {error.errors()[0]['msg']}. Start a new one.",
                session_id=session_id,
            ) from error
        return cls(path, session_id, messages, len(messages))

    def keep(self, messages: Sequence[ModelMessage]) -> None:
        """Have these messages, of which the first ones are here already, and write down the rest."""
        if len(messages) < self._kept:  # the library has merged some
            self._kept = 0
            self._replace(messages)
        else:
            with self._path.open("ab") as file:
                file.write(_lines(messages[self._kept :]))
        self.messages = list(messages)
        self._kept = len(messages)

    def settle(self) -> None:
        """Answer tool calls that nobody answers any more, so that a new prompt may follow."""
        settled = repair_messages(self.messages)
        if settled != self.messages:
            self._replace(settled)
            self.messages, self._kept = settled, len(settled)

    def shrink(self) -> bool:
        """Drop the older half of what tools gave; False if there is nothing left to drop."""
        results = [part for message in self.messages for part in message.parts if isinstance(part, ToolReturnPart)]
        large = [part for part in results[:-RESULTS_KEPT] if len(part.model_response_str()) >= RESULT_CHARS_MIN]
        dropped = {id(part) for part in large[: (len(large) + 1) // 2]}
        if dropped:
            shrunk = [_without(message, dropped) for message in self.messages]
            self._replace(shrunk)
            self.messages, self._kept = shrunk, len(shrunk)
        return bool(dropped)

    def _replace(self, messages: Sequence[ModelMessage]) -> None:
        """Write the file anew, behind its first line, beside the old one; a kill leaves one of the two."""
        head = self._path.read_bytes().partition(b"\n")[0]
        beside = self._path.with_suffix(".new")
        beside.write_bytes(head + b"\n" + _lines(messages))
        beside.replace(self._path)


def _without(message: ModelMessage, dropped: set[int]) -> ModelMessage:
    if not isinstance(message, ModelRequest) or not any(id(part) in dropped for part in message.parts):
        return message
    parts = [
        _emptied(part) if isinstance(part, ToolReturnPart) and id(part) in dropped else part for part in message.parts
    ]
    return replace(message, parts=parts)


def _emptied(part: ToolReturnPart) -> ToolReturnPart:
    return replace(part, content=DROPPED)


def _lines(messages: Sequence[ModelMessage]) -> bytes:
    return b"".join(ModelMessagesTypeAdapter.dump_json([message])[1:-1] + b"\n" for message in messages)
