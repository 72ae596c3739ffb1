"""The command line as a user has it: a real process, its output and its exit code."""

import contextlib
import re
import signal
from pathlib import Path

import pytest

from tests.bed.cli import CommandLine, until


@pytest.fixture
def perdure(tmp_path):
    line = CommandLine(tmp_path)
    yield line
    line.close()


def find_id(text):
    return re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", text)[0]


def open_files(pid):
    """The names of the files that a process has open."""
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            names.append(str(entry.readlink()))
    return " ".join(names)


# --- before anything runs


def test_help_lists_the_commands_of_this_version_only(perdure):
    said = perdure("--help")
    assert said.code == 0
    listed = re.findall(r"^    ([a-z-]+)\b", said.out, re.MULTILINE)
    assert listed == [
        "init", "new", "trust", "list", "inputs", "doctor", "run", "resume", "status", "show", "stages", "stage",
        "transcript", "wait", "answer", "quit", "delete",
    ]  # fmt: skip


def test_help_does_not_import_what_it_does_not_use(perdure):
    said = perdure("--help", PYTHONPROFILEIMPORTTIME="1")
    heavy = {"asyncio", "pydantic", "rich", "apsw", "msgspec", "perdure.config", "perdure.engine"}
    imported = set(re.findall(r"\| +([\w.]+)$", said.err, re.MULTILINE))
    assert "argparse" in imported
    assert not heavy & imported


def test_a_wrong_command_line_is_wrong_use(perdure):
    assert perdure("rnu").code == 2
    assert perdure("status", "--nope").code == 2
    assert perdure("run", "flows.py:sums", "--nope").code == 2


def test_looking_at_nothing_makes_no_database(perdure):
    assert "No runs yet" in perdure("status").out
    assert perdure("status", "--json").data == {"runs": []}
    assert perdure("show", "deadbeef").code == 3
    assert list(perdure.home.iterdir()) == []


def test_init_writes_a_project_that_runs_once_it_is_trusted(perdure):
    assert perdure("init").code == 0
    assert "perdure trust" in perdure("run", "hello").err
    assert perdure("trust").code == 0
    assert "hello" in perdure("list").out
    assert perdure("init").code == 4


def test_new_writes_a_workflow_and_its_test(perdure):
    said = perdure("new", "night-shift", "--json")
    assert [path.rpartition("/")[2] for path in said.data["written"]] == ["night_shift.py", "test_night_shift.py"]


def test_inputs_are_shown_with_their_defaults(perdure):
    said = perdure("inputs", "flows.py:sums")
    assert re.search(r"n +int +(= 3)", said.out)
    assert perdure("inputs", "flows.py:sums", "--json").data["schema"]["properties"]["n"]["type"] == "integer"


# --- refusals leave nothing behind


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", "flows.py:smus"], 3, "sums"),
        (["run", "nothing"], 3, "no workflow nothing"),
        (["run", "flows.py:sums", "n=x", "zap=1"], 2, "zap"),
        (["run", "flows.py:sums", "--agent", "gpt"], 2, "rehearsal"),
        (["run", "flows.py:sums", "--budget", "max_tokens=3"], 2, "later version"),
        (["resume", "deadbeef"], 3, "no run"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_writes_nothing(perdure, words, code, says):
    said = perdure(*words)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")
    assert says in said.err
    assert list(perdure.home.rglob("*.db")) == []


def test_a_refusal_in_json_is_one_envelope(perdure):
    said = perdure("run", "flows.py:sums", "n=x", "--json")
    assert said.code == 2
    assert said.envelope["v"] == 1
    assert said.envelope["ok"] is False
    assert said.envelope["error"]["code"] == "input_invalid"
    assert set(said.envelope["error"]) == {"code", "message", "run_id", "retryable", "details"}


# --- running


def test_a_run_shows_its_steps_and_its_output(perdure):
    said = perdure("run", "flows.py:sums", "n=4")
    assert (said.code, said.err) == (0, "")
    assert said.out.count("✓ double") == 4
    assert '"total": 12' in said.out
    assert "4 steps" in said.out
    assert f"✓ sums  {find_id(said.out)}  completed" in said.out


def test_a_run_in_json_prints_one_envelope_and_its_progress_beside_it(perdure):
    said = perdure("run", "flows.py:sums", "--json", "n=2")
    assert (said.data["status"], said.data["output"], said.data["steps"]) == ("completed", {"total": 2}, 2)
    assert "sums" in said.err


def test_inputs_may_come_from_a_file(perdure):
    (perdure.folder / "in.json").write_text('{"n": 5}')
    assert perdure("run", "flows.py:sums", "--inputs", "in.json", "--json").data["output"] == {"total": 20}


@pytest.mark.parametrize(("name", "code", "status"), [("breaks", 1, "failed"), ("skips", 0, "skipped")])
def test_the_exit_code_follows_the_end_of_the_run(perdure, name, code, status):
    said = perdure("run", f"flows.py:{name}", "--json")
    assert (said.code, said.data["status"]) == (code, status)


def test_a_failure_says_why_and_how_to_go_on(perdure):
    said = perdure("run", "flows.py:breaks")
    assert "ValueError: no good" in said.out
    assert f"perdure resume {find_id(said.out)}" in said.out


def test_a_rehearsal_is_called_one_on_every_screen(perdure):
    said = perdure("run", "flows.py:talks", "--agent", "rehearsal")
    run = find_id(said.out)
    assert "REHEARSAL" in said.out
    assert "a rehearsal: no model was asked" in said.out
    assert "REHEARSAL" in perdure("show", run).out
    said = perdure("transcript", run, "draft")
    assert "[prompt]\nWrite something short" in said.out


def test_a_stage_without_an_agent_says_how_to_name_one(perdure):
    said = perdure("run", "flows.py:talks")
    assert said.code == 1
    assert "--agent" in said.out


# --- looking


def test_a_run_can_be_looked_at_by_a_prefix_of_its_id(perdure):
    run = perdure("run", "flows.py:sums", "n=2", "--json").data["run_id"]
    shown = perdure("show", run[:18], "--json").data
    assert (shown["run_id"], shown["inputs"], len(shown["stages"])) == (run, {"n": 2}, 2)
    stage = perdure("stage", run, shown["stages"][1]["stage_id"], "--json").data
    assert (stage["name"], stage["value"], stage["display_status"]) == ("double", 2, "completed")
    said = perdure("stage", run, "double")
    assert said.code == 3
    assert shown["stages"][0]["stage_id"] in said.err


def test_colours_are_for_terminals_that_want_them(perdure):
    assert "\x1b" not in perdure("run", "flows.py:sums").out
    assert "\x1b[32m" in perdure.on_terminal("status", typing=[]).out
    perdure.environ["NO_COLOR"] = "1"
    assert "\x1b[32m" not in perdure.on_terminal("status", typing=[]).out


# --- questions


def test_without_a_terminal_a_question_quits_the_run_durably_and_says_how_to_go_on(perdure):
    said = perdure("run", "flows.py:asks")
    run = find_id(said.out)
    assert said.code == 8
    assert f"answer: perdure answer {run} yes" in said.out
    assert f"resume: perdure resume {run}" in said.out
    assert perdure("wait", run).code == 8
    (listed,) = perdure("status", "--json").data["runs"]
    assert (listed["display_status"], listed["resumable"]) == ("quit", True)
    assert [(p["kind"], p["message"]) for p in listed["awaiting_input"]] == [("confirm", "Go on?")]


def test_a_bad_answer_leaves_the_question_open(perdure):
    run = perdure("run", "flows.py:asks", "--json").data["run_id"]
    said = perdure("answer", run, "perhaps", "--json")
    assert (said.code, said.data["status"], said.data["changed"]) == (2, "noop", False)
    assert perdure("status", run, "--json").data["runs"][0]["awaiting_input"]


def test_an_answered_run_goes_on_and_does_nothing_twice(perdure):
    run = perdure("run", "flows.py:asks", "--json").data["run_id"]
    assert perdure("answer", run, "y").code == 0
    assert perdure("resume", run).code == 8
    assert perdure("answer", run, "2").code == 0
    said = perdure("resume", run, "--json")
    assert (said.code, said.data["output"], said.data["replayed"]) == (0, "True green", 2)


def test_no_input_fails_at_the_question(perdure):
    said = perdure("run", "flows.py:asks", "--no-input", "--json")
    assert (said.code, said.data["status"]) == (8, "failed")
    assert said.data["error"]["code"] == "human_input_unavailable"


def test_on_a_terminal_the_question_is_asked_there(perdure):
    typing = [("yes or no> ", "perhaps\n"), ("yes or no> ", "yes\n"), ("number or text> ", "2\n")]
    said = perdure.on_terminal("run", "flows.py:asks", typing=typing)
    assert said.code == 0
    assert "Please answer yes or no" in said.out
    assert "True green" in said.out


def test_the_end_of_input_at_a_question_leaves_it_open_and_quits(perdure):
    said = perdure.on_terminal("run", "flows.py:asks", typing=[("yes or no> ", "\x04")])
    assert said.code == 8
    assert "answer: perdure answer" in said.out


def test_an_interrupt_at_a_question_quits_durably(perdure):
    said = perdure.on_terminal("run", "flows.py:asks", typing=[("yes or no> ", "\x03")])
    assert said.code == 130
    assert "Quitting durably" in said.out
    assert "resume: perdure resume" in said.out


def test_a_question_answered_elsewhere_ends_the_wait_at_the_terminal(perdure):
    def answer():
        (run,) = perdure("status", "--json").data["runs"]
        assert perdure("answer", run["run_id"], "yes").code == 0

    said = perdure.on_terminal("run", "flows.py:asks", typing=[("yes or no> ", answer), ("number or text> ", "red\n")])
    assert said.code == 0
    assert "(answered elsewhere)" in said.out
    assert "True red" in said.out


# --- stopping and going on


def test_a_watcher_that_is_interrupted_leaves_and_the_run_goes_on(perdure):
    run = perdure("run", "flows.py:lasts", "marker=here", "--detach", "--json").data["run_id"]
    until((perdure.folder / "here").exists)
    said = perdure.on_terminal("wait", run, "--timeout", 0, typing=[])
    assert said.code == 124
    watcher = perdure.start("wait", run, "--debug")
    until(lambda: "perdure.db" in open_files(watcher.pid))
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=15)
    assert watcher.returncode == 130
    assert perdure("status", run, "--json").data["runs"][0]["status"] == "running"
    assert perdure("quit", run).code == 0


def test_an_interrupt_quits_durably_and_prints_how_to_resume(perdure):
    running = perdure.start("run", "flows.py:lasts", "marker=here")
    until((perdure.folder / "here").exists)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=15)
    assert running.returncode == 130
    assert "Quitting durably" in err
    assert f"perdure resume {find_id(out)}" in out
    assert perdure("status", find_id(out), "--json").data["runs"][0]["display_status"] == "quit"


def test_a_killed_run_is_crashed_at_once_and_can_be_resumed(perdure):
    running = perdure.start("run", "flows.py:lasts", "marker=here")
    until((perdure.folder / "here").exists)
    running.kill()
    running.communicate(timeout=15)
    (seen,) = perdure("status", "--json").data["runs"]  # it may have died before it printed anything
    run = seen["run_id"]
    assert (seen["display_status"], seen["resumable"]) == ("crashed", True)
    (perdure.folder / "here").unlink()
    again = perdure.start("resume", run)
    until((perdure.folder / "here").exists)
    again.send_signal(signal.SIGTERM)
    out, _ = again.communicate(timeout=15)
    assert again.returncode == 130
    assert "1 replayed" in out


def test_a_resume_with_changed_code_stops_before_anything_runs_unless_told_to_rerun(perdure):
    run = perdure("run", "flows.py:asks", "--json").data["run_id"]
    perdure("answer", run, "yes")
    flows = perdure.folder / "flows.py"
    flows.write_text(flows.read_text().replace("await ctx.tool(double, 1)", "await ctx.tool(double, 5)"))
    said = perdure("resume", run, "--json")
    assert (said.code, said.data["status"], said.data["error"]["code"]) == (7, "blocked", "replay_mismatch")
    assert "has changed since this run began" in said.err
    said = perdure("resume", run, "--on-drift", "rerun")
    assert said.code == 8
    assert "Which colour?" in said.out


def test_a_detached_run_is_watched_and_quit_from_elsewhere(perdure):
    run = perdure("run", "flows.py:lasts", "marker=here", "--detach", "--json").data["run_id"]
    until((perdure.folder / "here").exists)
    assert perdure("status", run, "--json").data["runs"][0]["active_stages"][0]["name"] == "linger"
    assert perdure("resume", run).code == 5
    assert perdure("delete", run).code == 4
    said = perdure("quit", run)
    assert (said.code, said.out) == (0, f"Quit {run}. Resume: perdure resume {run}\n")


def test_a_detached_run_keeps_waiting_at_its_question_and_ends_after_the_answers(perdure):
    run = perdure("run", "flows.py:asks", "--detach", "--json").data["run_id"]
    assert perdure("wait", run, "--timeout", 20).code == 8
    assert perdure("answer", run, "no").code == 0
    until(lambda: "Which" in perdure("status", run).out)
    assert perdure("answer", run, "red").code == 0
    said = perdure("wait", run, "--timeout", 20, "--json")
    assert (said.code, said.data["output"]) == (0, "False red")


def test_waiting_has_a_timeout(perdure):
    run = perdure("run", "flows.py:lasts", "marker=here", "--detach", "--json").data["run_id"]
    until((perdure.folder / "here").exists)
    assert perdure("wait", run, "--timeout", 0.2).code == 124
    assert perdure("quit", run).code == 0


def test_a_deleted_run_is_gone(perdure):
    run = perdure("run", "flows.py:sums", "--json").data["run_id"]
    assert perdure("delete", run).code == 0
    assert perdure("show", run).code == 3
    assert perdure("status", "--json").data["runs"] == []


def test_a_run_that_ended_cannot_be_resumed_or_quit(perdure):
    run = perdure("run", "flows.py:sums", "--json").data["run_id"]
    for verb in ("resume", "quit"):
        said = perdure(verb, run, "--json")
        assert (said.code, said.envelope["error"]["run_id"]) == (4, run)
