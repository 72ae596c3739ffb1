"""The README's set-up commands, from a clean clone in an empty home."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this checkout is no git clone")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_demo_runs_from_a_clean_clone_in_an_empty_home_and_stops_at_its_question(tmp_path: Path):
    home, clone = tmp_path / "home", tmp_path / "perdure"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "AGENT": "rehearsal"}
    environ |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    done = subprocess.run(
        ["scripts/demo"], cwd=clone, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "REHEARSAL" in said
    assert "Accept this review?" in said
    assert "perdure answer" in said
    assert "perdure resume" in said
    assert "kill -9" in said
