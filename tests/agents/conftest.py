"""Every test here has a stand-in model, a real agent that is pointed at it, and leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.installed import NotInstalled
from tests.agents.real import KEY, REAL, Real, keep_offline, processes_of
from tests.bed.cli import until
from tests.bed.model_server import ModelServer

HAS_PROC = Path("/proc/self/environ").exists()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(params=list(REAL))
def real(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Real]:
    """Each agent that can be had here, on the PATH, with the test's empty home."""
    if not HAS_PROC:
        pytest.skip("needs /proc to see what is left")
    one = REAL[request.param]
    try:
        monkeypatch.setenv("PATH", one.path())
    except NotInstalled as reason:
        pytest.skip(f"{one.name}: {reason}")
    monkeypatch.setenv(KEY, "none")
    keep_offline(home)
    yield one
    until(lambda: processes_of(home) == [], seconds=5)
