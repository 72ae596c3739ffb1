"""What people read: times, columns, screens, last words, and errors."""

import io
import sys

import pytest
from msgspec import Raw

from perdure.errors import ControlRefused, InputInvalid, LeaseHeld, StorageUnavailable, TargetNotFound
from perdure.events import Failure, Stored
from perdure.host.identity import here
from perdure.inspect import run_view
from perdure.projection import fold
from perdure.store.prompts import Prompt
from perdure.store.runs import RunRow
from perdure.surfaces.cli import ending, output, text
from perdure.surfaces.cli.screen import PlainScreen, lines
from tests.bed.journals import CHILD, ROOT, begin, finished, started, status


def row(**fields):
    values = {
        "run_id": ROOT, "root_run_id": ROOT, "parent_run_id": None, "parent_position": None, "depth": 0, "name": "fix",
        "cwd": "/project", "definition": "", "file_digest": "", "status": "running", "status_epoch": 1,
        "resumable": True, "code": "", "reason": "", "error_code": "", "error_message": "", "events_count": 0,
        "nodes_done": 0, "prompts_open": 0, "tokens_in": 0, "tokens_out": 0, "cost_nanos": 0, "last_seq": 0,
        "created_at": 1000, "started_at": 1000, "ended_at": None, "updated_at": 4000, "deleted_at": None,
        "holder": "h", "epoch": 1, "process": here().to_text(), "lease_until": 9_000_000,
    }  # fmt: skip
    return RunRow(**{**values, **fields})


def view(*events, now_ms=81_000, latest=None, prompts=(), **fields):
    tree = fold([Stored(n, ROOT, 1000, event) for n, event in enumerate(events, 1)], root_run_id=ROOT)
    return run_view(row(**fields), now_ms, prompts, tree, latest=latest)


def question(kind="confirm", choices=(), prompt_id="p1"):
    asked = {"kind": kind, "message": "Go?", "choices": list(choices), "schema": None}
    return Prompt(prompt_id, "/:0", ROOT, "/:0", 1, "open", asked, None, "", "", 1000, None)


@pytest.mark.parametrize(
    ("ms", "said"),
    [(None, "-"), (-5, "0.0s"), (420, "0.4s"), (12_900, "12s"), (80_000, "1m 20s"), (7_500_000, "2h 05m")],
)
def test_times_are_short(ms, said):
    assert text.duration(ms) == said


def test_columns_are_aligned_and_only_the_last_one_is_cut():
    assert text.table([("a", "bb", "c" * 30), ("aaa", "b", "x\ny")], width=20) == [
        "a    bb  " + "c" * 10 + "…",
        "aaa  b   x y",
    ]
    assert text.table([]) == []


def test_colours_need_a_terminal(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    assert text.has_colour(terminal)
    assert not text.has_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not text.has_colour(terminal)


def test_a_live_screen_has_a_line_for_the_run_and_one_for_each_step():
    shown = view(*begin(), finished("/:0", name="build"), started("/:1", "review", "stage"))
    assert lines(shown, height=20, width=120, colour=False) == [
        f"● fix  {ROOT}  running  1m 20s  agent rehearsal  REHEARSAL: no model is asked",
        "  ✓ build   0.0s",
        "  ● review  1m 20s",
    ]


def test_a_long_run_shows_its_newest_steps_and_how_many_came_before():
    steps = [finished(f"/:{n}", name=f"step-{n}") for n in range(50)]
    for latest in (None, 30):
        drawn = lines(view(*begin(), *steps, latest=latest), height=10, width=100, colour=False)
        assert len(drawn) <= 10
        assert drawn[1] == "  +43 earlier"
        assert drawn[-1].startswith("  ✓ step-49")


def test_steps_of_a_child_are_indented_below_it():
    rows = [
        Stored(1, ROOT, 1, begin()[0]),
        Stored(2, ROOT, 2, started("/:0", "part", "boundary", child_run_id=CHILD)),
        Stored(3, CHILD, 3, finished("/:0", name="inside")),
    ]
    drawn = lines(run_view(row(), 5, (), fold(rows, root_run_id=ROOT)), height=9, width=90, colour=False)
    assert [line[:12].rstrip() for line in drawn[1:]] == ["  ● part", "    ✓ inside"[:12]]


def test_without_a_terminal_each_change_is_said_once():
    stream = io.StringIO()
    screen = PlainScreen(stream)
    failure = Failure(code="unknown", message="no good", type="ValueError")
    first = [*begin(agent=None), started("/:0", "build")]
    screen.show(view(*first), {(ROOT, "/:0")})
    screen.show(view(*first), set())
    screen.show(view(*first, finished("/:0", "failed", failure=failure)), {(ROOT, "/:0")})
    assert stream.getvalue().splitlines() == [
        f"● fix  {ROOT}  running  1m 20s",
        "  ● build  running",
        "  ✗ build  failed  ValueError: no good  0.0s",
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"status": "completed", "ended_at": 1}, output.OK),
        ({"status": "skipped", "ended_at": 1}, output.OK),
        ({"status": "failed", "ended_at": 1}, output.FAILED),
        ({"status": "killed", "ended_at": 1}, output.FAILED),
        ({"status": "cancelled", "ended_at": 1}, output.FAILED),
        ({"holder": None}, output.FAILED),
        ({"status": "blocked", "holder": None}, output.BLOCKED),
        ({"status": "exit_blocked", "ended_at": 1}, output.BLOCKED),
        ({"status": "paused", "reason": "quit", "holder": None}, output.INTERRUPTED),
        ({"status": "failed", "ended_at": 1, "error_code": "human_input_unavailable"}, output.INPUT_NEEDED),
    ],
)
def test_the_exit_code_is_that_of_the_run(fields, code):
    assert ending.exit_code(view(**fields)) == code


def test_an_open_question_needs_a_person():
    assert ending.exit_code(view(prompts=[question()], prompts_open=1)) == output.INPUT_NEEDED


def test_the_last_words_can_be_pasted():
    one = view(prompts=[question("select", ["it's", "b"])], status="paused", reason="quit", holder=None)
    assert ending.advice(one) == [
        "asks:   Go?",
        "  1  it's",
        "  2  b",
        f"answer: perdure answer {ROOT} 'it'\"'\"'s'",
        f"resume: perdure resume {ROOT}",
    ]
    two = view(prompts=[question(), question(prompt_id="p2")], status="paused", holder=None)
    assert f"answer: perdure answer {ROOT} p2 yes" in ending.advice(two)


def test_the_tally_names_what_it_cost():
    shown = view(*begin(agent=None), nodes_done=12, tokens_in=1000, tokens_out=200, cost_nanos=12_300_000)
    assert ending.tally(shown, 3) == "12 steps, 3 replayed, 1m 20s, 1200 tokens, $0.0123"


def test_a_run_that_ended_shows_its_time_and_not_the_time_since():
    shown = view(*begin(), status("completed"), status="completed", ended_at=1000, holder=None)
    assert text.duration(shown.elapsed_ms) == "0.0s"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputInvalid(), 2),
        (TargetNotFound(), 3),
        (ControlRefused("stage_ambiguous", "two"), 3),
        (ControlRefused("run_active", "live"), 4),
        (ControlRefused("owned_elsewhere", "live"), 5),
        (LeaseHeld(), 5),
        (StorageUnavailable(), 6),
        (ControlRefused("control_failed", "?"), 1),
    ],
)
def test_each_refusal_has_its_exit_code(error, code):
    assert output.exit_code(error) == code


def test_an_error_is_told_with_candidates_and_the_next_command(capsys):
    out = output.Output(as_json=False)
    error = ControlRefused("run_active", "Run r1 is running.", run_id="r1", candidates=["a", "b"])
    assert out.refuse(error) == output.REFUSED
    assert capsys.readouterr().err.splitlines() == ["error: Run r1 is running.", "  a", "  b", "next: perdure quit r1"]


def test_an_error_nobody_expected_is_one_line_unless_debugging(capsys):
    try:
        raise RuntimeError("boom\nmore")
    except RuntimeError as error:
        assert output.Output(as_json=False).crash(error) == output.FAILED
        assert "Traceback" not in (said := capsys.readouterr().err)
        assert said.startswith("error: RuntimeError: boom …\n")
        output.Output(as_json=False, debug=True).crash(error)
        assert "Traceback" in capsys.readouterr().err


def test_an_output_that_brings_its_own_report_is_read_as_that(capsys):
    out = output.Output(as_json=False)
    ended = status("completed", output=Raw(b'{"report": "# Findings\\n\\nnone", "verdict": "approved"}'))
    ending.draw(out, view(*begin(), ended, status="completed"), headline=False)
    said = capsys.readouterr().out
    assert "# Findings\n\nnone\n" in said
    assert "verdict" not in said


def test_a_line_that_says_how_a_run_stands_comes_below_the_steps_that_led_there(capsys):
    screen = PlainScreen(sys.stdout)
    ended = status("completed")
    screen.show(view(*begin(), finished("/:0", name="build"), ended, status="completed"), [(ROOT, "/:0")])
    first, second = capsys.readouterr().out.splitlines()
    assert "build" in first
    assert "completed" in second
    assert ROOT in second
