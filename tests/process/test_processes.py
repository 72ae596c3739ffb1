"""Real processes: recorded before they act, ended with all they started, found again after their owner was killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.host import processes
from perdure.host.census import Group
from perdure.host.identity import Identity, here, identity_of, is_gone
from perdure.host.processes import Process, environment, reap, shell, spawn, spawn_detached, stop, sweep

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

STUBBORN = "trap '' TERM; echo up; while :; do sleep 1000; done"
# A child in a session of its own and one in the group; each tells its pid.
FAMILY = "setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000 & echo $!; exec sleep 1000"


def alive(pid: int) -> bool:
    return identity_of(pid) is not None


def until(truth: Callable[[], bool]) -> None:
    """Wait for what other processes do; the test's own time limit ends it if it never comes."""
    tick = threading.Event()
    while not truth():
        tick.wait(0.005)


async def started(script: str, **more: object) -> Process:
    return await spawn(["sh", "-c", script], cwd=Path("/"), env=environment(), **more)  # type: ignore[arg-type]


async def pids_told(process: Process, count: int) -> list[int]:
    return [int(await process.stdout.readline()) for _ in range(count)]


def test_nothing_runs_before_the_group_is_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        mark = tmp_path / "ran"
        recorded: list[Group] = []

        async def record(group: Group) -> None:
            await asyncio.sleep(0)
            assert not mark.exists()
            recorded.append(group)

        process = await started(f"touch {mark}; pwd", on_started=record)
        assert await process.wait() == 0
        assert mark.exists()
        assert recorded == [process.group]
        assert recorded[0].leader.pid == process.pid
        assert not await stop(process)

    asyncio.run(scenario())


def test_a_group_that_could_not_be_recorded_never_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        groups: list[Group] = []

        async def refuse(group: Group) -> None:
            groups.append(group)
            raise RuntimeError("the store is full")

        with pytest.raises(RuntimeError, match="full"):
            await started(f"touch {tmp_path}/ran", on_started=refuse)
        assert is_gone(groups[0].leader)

    asyncio.run(scenario())
    assert not list(tmp_path.iterdir())


def test_stop_ends_the_whole_family_even_a_child_in_a_session_of_its_own() -> None:
    async def scenario() -> None:
        process = await started(FAMILY)
        pids = await pids_told(process, 2)
        assert {os.getsid(pid) == pid for pid in pids} == {True, False}
        assert not await stop(process, eof_seconds=0)
        assert not any(alive(pid) for pid in (*pids, process.pid))
        assert process.exit_code == -signal.SIGTERM

    asyncio.run(scenario())


def test_a_process_that_ignores_term_is_killed() -> None:
    async def scenario() -> None:
        process = await started(STUBBORN)
        assert await process.stdout.readline() == b"up\n"
        assert not await stop(process, eof_seconds=0, term_seconds=0.05)
        assert process.exit_code == -signal.SIGKILL

    asyncio.run(scenario())


def test_a_process_that_leaves_at_the_end_of_its_input_is_not_signalled() -> None:
    async def scenario() -> None:
        process = await started("cat; exit 5")
        assert not await stop(process, eof_seconds=30)
        assert process.exit_code == 5

    asyncio.run(scenario())


def test_stop_may_be_called_twice_and_after_the_end() -> None:
    async def scenario() -> None:
        process = await started("exit 0")
        await process.wait()
        assert not await stop(process)
        assert not await stop(process)

    asyncio.run(scenario())


def test_stop_runs_to_its_end_though_its_caller_is_cancelled() -> None:
    async def scenario() -> None:
        process = await started(FAMILY)
        pids = await pids_told(process, 2)
        stopping = asyncio.create_task(stop(process, eof_seconds=0))
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert not any(alive(pid) for pid in pids)

    asyncio.run(scenario())


def test_shell_leaves_nothing_running_when_its_command_ends() -> None:
    result = asyncio.run(shell(["sh", "-c", "setsid sleep 1000 & echo $!; sleep 1000 & echo $!"]))
    assert not any(alive(int(pid)) for pid in result.stdout.split())


def test_shell_leaves_nothing_running_when_it_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"longer than 0\.2 s"):
        asyncio.run(shell(["sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 1000"], timeout=0.2))
    assert not alive(int((tmp_path / "pid").read_text()))


def test_shell_leaves_nothing_running_when_it_is_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 1000"
        running = asyncio.create_task(shell(["sh", "-c", script]))
        await asyncio.to_thread(until, (tmp_path / "pid").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scenario())
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_loop_outside_the_main_thread_runs_processes_too() -> None:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(shell(["echo", "hi"])).stdout))
    thread.start()
    thread.join()
    assert results == ["hi\n"]


def test_stderr_in_a_file_never_blocks_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = await started("head -c 1000000 /dev/zero >&2; echo done", stderr_path=tmp_path / "logs" / "stderr")
        assert await process.stdout.readline() == b"done\n"
        await process.wait()
        assert not await stop(process)

    asyncio.run(scenario())
    log = tmp_path / "logs" / "stderr"
    assert (log.stat().st_size, log.stat().st_mode & 0o777) == (1_000_000, 0o600)


OWNER = """
import asyncio, json, os, sys
from pathlib import Path
from perdure.host.identity import here
from perdure.host.processes import environment, spawn

async def main():
    process = await spawn(["sh", "-c", sys.argv[1]], cwd=Path("/"), env=environment())
    pids = [int(await process.stdout.readline()) for _ in range(2)]
    print(json.dumps({"owner": here().to_dict(), "group": process.group.to_dict(), "pids": pids}), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def killed_owner() -> dict[str, object]:
    """What an owner told that was killed while its agent and the agent's children ran on."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, FAMILY], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    told: dict[str, object] = json.loads(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    return told


def test_what_a_killed_owner_left_is_swept_by_its_identity_alone() -> None:
    told = killed_owner()
    pids: list[int] = told["pids"]  # type: ignore[assignment]
    assert all(alive(pid) for pid in pids)
    owner = Identity.from_dict(told["owner"])  # type: ignore[arg-type]
    assert not asyncio.run(sweep(owner))
    assert not any(alive(pid) for pid in pids)


def test_a_recorded_group_is_reaped_after_its_owner_was_killed() -> None:
    told = killed_owner()
    pids: list[int] = told["pids"]  # type: ignore[assignment]
    assert not asyncio.run(reap([Group.from_dict(told["group"])]))  # type: ignore[arg-type]
    assert not any(alive(pid) for pid in pids)


def test_a_living_owner_is_not_swept() -> None:
    async def scenario() -> None:
        process = await started("echo up; cat")
        assert await process.stdout.readline() == b"up\n"
        assert not await sweep(here())
        assert process.exit_code is None
        assert not await stop(process)

    asyncio.run(scenario())


def test_an_owner_killed_before_the_gate_opens_leaves_no_process(tmp_path: Path) -> None:
    never = "on_started=lambda group: (print(group.leader.pid, flush=True), asyncio.Event().wait())[1]"
    code = OWNER.replace("env=environment())", f"env=environment(), {never})")
    owner = subprocess.Popen([sys.executable, "-c", code, f"touch {tmp_path}/ran"], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    until(lambda: not alive(pid))
    assert not (tmp_path / "ran").exists()


def test_a_detached_process_outlives_its_starter_and_carries_no_mark(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from perdure.host.processes import spawn_detached;"
        "print(spawn_detached(['sh', '-c', 'env; echo ready; exec sleep 1000'], Path(sys.argv[1]),"
        " {**os.environ, 'PERDURE_GROUP': 'x'}))"
    )
    log = tmp_path / "log"
    shown = subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, text=True, check=True)
    pid = int(shown.stdout)
    try:
        until(lambda: "ready" in log.read_text())
        assert os.getsid(pid) == pid
        assert "PERDURE_GROUP" not in log.read_text()
    finally:
        os.kill(pid, signal.SIGKILL)


def test_ended_detached_processes_are_collected_by_the_next_start(tmp_path: Path) -> None:
    env = environment()
    first = spawn_detached(["true"], tmp_path / "log", env)
    until(lambda: not alive(first))
    second = spawn_detached(["true"], tmp_path / "log", env)
    assert not Path(f"/proc/{first}").exists()
    until(lambda: not alive(second))
    for child in processes._detached:
        child.wait()


def test_a_missing_command_or_folder_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no command 'no-such'"):
        asyncio.run(shell(["no-such"]))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        asyncio.run(shell(["true"], cwd=tmp_path / "nowhere"))
