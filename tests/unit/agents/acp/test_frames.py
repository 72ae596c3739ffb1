"""The record of frames: whole, in order, without secrets, bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp import frames
from perdure.agents.acp.frames import FrameLog


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_frames_are_kept_as_they_passed_and_only_for_the_user(tmp_path: Path) -> None:
    log = FrameLog(tmp_path / "deep" / "a.jsonl")
    log.write("out", b'{"id": 1, "method": "m"}\n')
    log.write("in", b'{"id":1,  "later": [1.50, "\\ud800"]}\n')
    log.write("noise", b"\xff hello \n")
    log.close()
    log.close()
    log.write("in", b"{}")
    path = tmp_path / "deep" / "a.jsonl"
    assert [entry["way"] for entry in entries(path)] == ["out", "in", "noise"]
    assert b'{"id":1,  "later": [1.50, "\\ud800"]}' in path.read_bytes()
    assert entries(path)[2]["text"] == "\ufffd hello "
    assert path.stat().st_mode & 0o777 == 0o600


def test_environment_and_headers_that_we_send_are_not_kept(tmp_path: Path) -> None:
    log = FrameLog(tmp_path / "a.jsonl")
    sent = {"mcpServers": [{"env": [{"name": "T", "value": "s3cret"}]}], "headers": {"Authorization": "s3cret"}, "x": 1}
    log.write("out", json.dumps({"params": sent}).encode())
    log.close()
    (entry,) = entries(tmp_path / "a.jsonl")
    kept = {"mcpServers": [{"env": "[redacted]"}], "headers": "[redacted]", "x": 1}
    assert entry["frame"] == {"params": kept}


def test_what_goes_over_the_bound_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FILE_BYTES_MAX", 200)
    log = FrameLog(tmp_path / "a.jsonl")
    for _ in range(9):
        log.write("in", b'{"method": "m"}')
    log.close()
    assert 1 < len(entries(tmp_path / "a.jsonl")) < 5
