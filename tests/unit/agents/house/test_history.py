"""What is kept of a session, and what survives a kill in the middle of a write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from perdure.agents.house.history import DROPPED, History
from perdure.errors import TargetNotFound

ASKED = ModelRequest.user_text_prompt("Do it.")
ANSWERED = ModelResponse(parts=[TextPart("Done.")])
CALLED = ModelResponse(parts=[ToolCallPart("read", {"path": "a"}, "call-1")])


def kept(folder: Path, *messages: ModelMessage) -> History:
    history = History.create(folder, folder)
    for count in range(1, len(messages) + 1):
        history.keep(messages[:count])
    return history


def file_of(folder: Path) -> Path:
    (file,) = folder.glob("*.jsonl")
    return file


def test_another_process_reads_what_was_kept(tmp_path: Path) -> None:
    history = kept(tmp_path, ASKED, ANSWERED)
    assert History.load(tmp_path, history.session_id).messages == [ASKED, ANSWERED]


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    history = kept(tmp_path, ASKED)
    before = file_of(tmp_path).read_bytes()
    history.keep([ASKED, ANSWERED])
    assert file_of(tmp_path).read_bytes().startswith(before)
    assert file_of(tmp_path).read_bytes().count(b"\n") == 3


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    kept(tmp_path / "sessions", ASKED)
    assert (tmp_path / "sessions").stat().st_mode & 0o777 == 0o700
    assert file_of(tmp_path / "sessions").stat().st_mode & 0o777 == 0o600


def test_a_line_that_a_kill_cut_short_is_dropped_and_the_session_goes_on(tmp_path: Path) -> None:
    history = kept(tmp_path, ASKED)
    with file_of(tmp_path).open("ab") as file:
        file.write(b'{"parts": [{"cont')
    again = History.load(tmp_path, history.session_id)
    assert again.messages == [ASKED]
    again.keep([ASKED, ANSWERED])
    assert History.load(tmp_path, history.session_id).messages == [ASKED, ANSWERED]


def test_calls_that_nobody_answers_any_more_are_answered(tmp_path: Path) -> None:
    history = kept(tmp_path, ASKED, CALLED)
    history.settle()
    last = history.messages[-1].parts[0]
    assert isinstance(last, ToolReturnPart)
    assert last.tool_call_id == "call-1"
    assert History.load(tmp_path, history.session_id).messages == history.messages


def test_fewer_messages_than_before_replace_the_file(tmp_path: Path) -> None:
    history = kept(tmp_path, ASKED, ANSWERED)
    history.keep([ANSWERED])
    assert History.load(tmp_path, history.session_id).messages == [ANSWERED]


def test_shrinking_drops_old_large_results_by_halves_and_never_the_latest(tmp_path: Path) -> None:
    texts = ["x" * 600, "y" * 600, "short", "z" * 600, "w" * 600]
    results = [ModelRequest(parts=[ToolReturnPart("read", text, f"call-{n}")]) for n, text in enumerate(texts)]
    history = kept(tmp_path, ASKED, *results)

    def contents() -> list[str]:
        assert History.load(tmp_path, history.session_id).messages == history.messages
        return [str(message.parts[0].content) for message in history.messages[1:]]

    assert history.shrink()
    assert contents() == [DROPPED, *texts[1:]]
    assert history.shrink()
    assert contents() == [DROPPED, DROPPED, *texts[2:]]
    assert not history.shrink()


@pytest.mark.parametrize("session_id", ["house-1", "../x", "house-00000000-0000-0000-0000-000000000000", ""])
def test_a_session_that_is_not_here_is_refused(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(TargetNotFound, match="Start a new one"):
        History.load(tmp_path, session_id)


def test_a_session_of_another_format_is_refused(tmp_path: Path) -> None:
    history = kept(tmp_path, ASKED)
    with file_of(tmp_path).open("ab") as file:
        file.write(b'{"kind": "unheard of"}\n')
    with pytest.raises(TargetNotFound, match="cannot be read"):
        History.load(tmp_path, history.session_id)
