"""What terminals and pipes get, and what happens when they go: signals, closed ends, narrow screens, hostile text."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bed.cli import CommandLine, until
from tests.surface.test_cli import find_id

ODD = """
import asyncio
import time
from pathlib import Path

from perdure import Context, tool, workflow

EVIL = "\\x1b[2J\\x1b]0;title\\x07 \\x9b31m \\u202etxt\\x00 \\x1b[31mred"


@tool
async def say() -> str:
    return EVIL


@tool
async def shout() -> str:
    raise ValueError(EVIL + "\\nsecond line")


@tool
async def stubborn(marker: str) -> None:
    Path(marker).touch()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@tool
async def block(marker: str) -> None:
    Path(marker).touch()
    time.sleep(60)


@workflow
async def says(ctx: Context) -> str:
    return await ctx.tool(say)


@workflow
async def shouts(ctx: Context) -> str:
    return await ctx.tool(shout)


@workflow
async def evil_ask(ctx: Context) -> str:
    return await ctx.ask.select(f"Which?{EVIL}\\nThe second line.\\nThe third.", [EVIL, "b"])


@workflow
async def huge(ctx: Context) -> str:
    return "x" * 1_000_000


@workflow
async def stays(ctx: Context, marker: str) -> None:
    await ctx.tool(stubborn, marker)


@workflow
async def blocks(ctx: Context, marker: str) -> None:
    await ctx.tool(block, marker)


@workflow
async def a_workflow_whose_name_goes_on_and_on_and_on_until_nobody_reads_it(ctx: Context) -> str:
    await ctx.task("stage-" + "y" * 60, "日本語")
    return "日本語 🎉"
"""
STEERS = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONG = "odd.py:a-workflow-whose-name-goes-on-and-on-and-on-until-nobody-reads-it"


@pytest.fixture
def perdure(tmp_path):
    line = CommandLine(tmp_path)
    (tmp_path / "odd.py").write_text(ODD)
    yield line
    line.close()


def state(perdure):
    """The one run there is: its status as people see it, and whether it can be resumed."""
    (run,) = perdure("status", "--json").data["runs"]
    return run["display_status"], run["resumable"]


# --- text that would steer a terminal


@pytest.mark.parametrize("name", ["says", "shouts", "evil-ask"])
def test_what_a_tool_said_cannot_steer_the_terminal(perdure, name):
    said = perdure("run", f"odd.py:{name}")
    run = find_id(said.out)
    screens = [said.out, perdure("status").out, perdure("show", run).out, perdure("stages", run).out]
    for screen in screens:
        assert not STEERS.search(screen)
        assert "\x1b" not in screen
    assert any("␛[2J" in screen for screen in screens)


@pytest.mark.parametrize("name", ["says", "shouts"])
def test_on_a_coloured_terminal_only_our_colours_get_through(perdure, name):
    said = perdure.on_terminal("run", f"odd.py:{name}", typing=[])
    run = find_id(said.out)
    for words in (["status"], ["show", run], ["stages", run]):
        screen = perdure.on_terminal(*words, typing=[]).out
        assert not STEERS.search(screen)
        assert "\x1b" not in COLOUR.sub("", screen)


def test_a_question_is_mentioned_by_its_first_line(perdure):
    run = find_id(perdure("run", "odd.py:evil-ask").out)
    assert "The second line." in perdure("wait", run).out
    assert "The second line." not in perdure("status").out
    said = perdure("answer", run, "2")
    assert said.out.splitlines()[0].startswith("Answered: Which?")
    assert "second line" not in said.out
    assert said.out.splitlines()[1] == f"resume: perdure resume {run}"


def test_a_choice_that_cannot_be_typed_is_shown_by_its_number(perdure):
    said = perdure("run", "odd.py:evil-ask")
    assert f"answer: perdure answer {find_id(said.out)} 1\n" in said.out


def test_a_very_long_output_is_cut_for_people_and_whole_in_json(perdure):
    said = perdure("run", "odd.py:huge")
    assert len(said.out) < 25_000
    assert "1000000 characters" in said.out
    assert perdure("show", find_id(said.out), "--json").data["output"] == "x" * 1_000_000


# --- widths, colours, encodings


def test_at_40_columns_every_run_id_is_whole_and_on_a_line_that_fits(perdure):
    perdure.environ["COLUMNS"] = "40"
    said = perdure.on_terminal("run", LONG, "--agent", "rehearsal", typing=[])
    run = find_id(said.out)
    for words in (["status"], ["show", run], ["wait", run]):
        lines = COLOUR.sub("", perdure.on_terminal(*words, typing=[]).out).splitlines()
        assert f"  {run}" in lines
        rows = [line for line in lines if line.lstrip()[:1] in {"✓", "●"}]
        assert rows
        assert all(len(line) <= 40 for line in rows)
    assert "日本語 🎉" in said.out


def test_no_colour_means_none_on_any_screen(perdure):
    perdure.environ["NO_COLOR"] = "1"
    said = perdure.on_terminal("run", "flows.py:breaks", typing=[])
    for screen in (said.out, perdure.on_terminal("show", find_id(said.out), typing=[]).out):
        assert not re.search(r"\x1b\[3\d", screen)


def test_a_terminal_that_lacks_our_characters_gets_question_marks(perdure):
    said = perdure("run", LONG, "--agent", "rehearsal", PYTHONIOENCODING="ascii")
    assert (said.code, said.err) == (0, "")
    assert "? a-workflow" in said.out
    said = perdure("show", find_id(said.out), "--json", PYTHONIOENCODING="ascii")
    assert said.data["output"] == "日本語 🎉"


# --- ends that close


def test_a_reader_that_has_enough_is_no_error(perdure):
    for _ in range(3):
        perdure("run", "flows.py:sums")
    for words in (["status"], ["list"], ["status", "--json"]):
        one = perdure.start(*words)
        one.stdout.close()
        assert one.stderr.read() == ""
        assert one.wait(10) == 0


def test_a_run_whose_reader_is_gone_quits_durably(perdure):
    running = perdure.start("run", "flows.py:sums", "n=20000")
    assert "sums" in running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(20) == 130
    assert state(perdure) == ("quit", True)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_ones_that_nobody_reads(perdure, closed):
    command = f"exec {sys.executable} -m perdure run flows.py:sums {closed}"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=perdure.folder, env=perdure.environ, capture_output=True,
                          text=True, check=False, timeout=20)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert state(perdure) == ("completed", False)


# --- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_quits_durably(perdure, number):
    running = perdure.start("run", "flows.py:lasts", "marker=here")
    until((perdure.folder / "here").exists)
    running.send_signal(number)
    running.communicate(timeout=15)
    assert running.returncode == 130
    assert state(perdure) == ("quit", True)


def test_a_run_whose_terminal_closes_quits_durably(perdure):
    terminal, inside = pty.openpty()
    take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-m", "perdure", "run", "flows.py:asks"]
    child = subprocess.Popen(
        [sys.executable, "-c", take, *words], cwd=perdure.folder, env=perdure.environ | {"TERM": "xterm"},
        stdin=inside, stdout=inside, stderr=inside, start_new_session=True,
    )  # fmt: skip
    os.close(inside)
    seen = b""
    while b"yes or no> " not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    assert child.wait(15) == 130
    assert state(perdure) == ("quit", True)


def test_a_run_that_was_told_to_outlive_its_terminal_does(perdure):
    command = f"trap '' HUP; exec {sys.executable} -m perdure run flows.py:lasts marker=here"
    running = subprocess.Popen(["/bin/sh", "-c", command], cwd=perdure.folder, env=perdure.environ,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    until((perdure.folder / "here").exists)
    running.send_signal(signal.SIGHUP)
    assert perdure("status", "--json").data["runs"][0]["display_status"] == "running"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=15)
    assert running.returncode == 130


@pytest.mark.parametrize("name", ["stays", "blocks"])
def test_a_second_interrupt_ends_the_process_at_once_and_the_run_can_be_resumed(perdure, name):
    running = perdure.start("run", f"odd.py:{name}", "marker=here")
    until((perdure.folder / "here").exists)
    running.send_signal(signal.SIGINT)
    if name == "stays":
        assert "once more ends the process" in running.stderr.readline()
    else:
        until(lambda: not pending(running.pid, signal.SIGINT))
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=15)
    assert running.returncode == 130
    assert state(perdure) == ("crashed", True)


def pending(pid, number):
    """Whether a process has yet to see a signal that was sent to it."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return any(int(told[key], 16) >> (number - 1) & 1 for key in ("SigPnd", "ShdPnd"))
