"""What a child may see, which command is meant, how much of its output is kept. See also tests/process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from perdure.host.processes import CUT, environment, find_command, shell


def test_a_child_sees_what_is_allowed_named_or_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"HOME": "/h", "PATH": "/p", "LC_ALL": "C", "API_TOKEN": "t", "CHOSEN": "c"})
    assert environment() == {"HOME": "/h", "PATH": "/p", "LC_ALL": "C"}
    assert environment(["CHOSEN", "ABSENT"], {"HOME": "/other"}) == {
        "HOME": "/other",
        "PATH": "/p",
        "LC_ALL": "C",
        "CHOSEN": "c",
    }


def test_a_command_is_looked_up_in_the_childs_path_and_beside_its_folder(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert find_command("tool", {"PATH": str(tmp_path)}, tmp_path) == str(tool)
    assert find_command("./tool", {}, tmp_path) == str(tool)
    with pytest.raises(FileNotFoundError, match="no command 'tool' in the PATH"):
        find_command("tool", {"PATH": "/nowhere"}, tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_command("tool", {}, tmp_path / "nowhere")


def test_shell_takes_a_list_and_refuses_one_text() -> None:
    with pytest.raises(TypeError, match="list of arguments"):
        asyncio.run(shell("ls -l"))  # type: ignore[arg-type]


def test_shell_gives_exit_code_and_both_outputs(tmp_path: Path) -> None:
    script = "pwd; cat; echo oops >&2; echo $X; exit 3"
    env = {"PATH": os.environ["PATH"], "X": "set"}
    result = asyncio.run(shell(["sh", "-c", script], cwd=tmp_path, env=env, input="fed\n"))
    assert (result.exit_code, result.stdout, result.stderr) == (3, f"{tmp_path}\nfed\nset\n", "oops\n")


def test_shell_tells_a_signal_as_a_negative_exit_code() -> None:
    assert asyncio.run(shell(["sh", "-c", "kill -9 $$"])).exit_code == -9


def test_the_end_of_long_output_is_kept_and_the_cut_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.host.processes.OUTPUT_BYTES_MAX", 10)
    result = asyncio.run(shell(["seq", "1", "99999"]))
    assert result.stdout == f"{CUT}998\n99999\n"


def test_input_nobody_reads_is_no_error() -> None:
    assert asyncio.run(shell(["true"], input="x" * 1_000_000)).exit_code == 0
