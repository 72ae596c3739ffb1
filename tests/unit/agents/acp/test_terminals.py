"""Commands that an agent runs through us, as the protocol has them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp.peer import Refused
from perdure.agents.acp.terminals import TERMINALS_MAX, Terminals
from perdure.host.census import mark_of, marked_with
from perdure.host.identity import here


def play(folder: Path, scenario: Callable[[Terminals], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        terminals = Terminals(folder, dict(os.environ))
        try:
            return await scenario(terminals)
        finally:
            await terminals.close()
            assert marked_with(mark_of(here())) == ()

    return asyncio.run(main())


def test_a_command_line_or_a_command_with_arguments_is_run(tmp_path: Path) -> None:
    async def scenario(terminals: Terminals) -> list[Any]:
        outputs = []
        for params in (
            {"command": "printf '%s ' a b; cat"},
            {"command": "printf", "args": ["%s ", "a", "b"]},
            {"command": "printf '%s ' $A $B", "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}]},
        ):
            place = await terminals.create(params)
            assert await terminals.wait_for_exit(place) == {"exitCode": 0, "signal": None}
            outputs.append(await terminals.output(place))
        return outputs

    ended = {"output": "a b ", "truncated": False, "exitStatus": {"exitCode": 0, "signal": None}}
    assert play(tmp_path, scenario) == [ended, ended, ended]


def test_long_output_keeps_its_end(tmp_path: Path) -> None:
    async def scenario(terminals: Terminals) -> Any:
        place = await terminals.create({"command": "printf 0123456789", "outputByteLimit": 4})
        await terminals.wait_for_exit(place)
        return await terminals.output(place)

    assert play(tmp_path, scenario)["output"] == "6789"


def test_a_killed_command_keeps_its_output_and_a_released_one_is_forgotten(tmp_path: Path) -> None:
    async def scenario(terminals: Terminals) -> None:
        place = await terminals.create({"command": "echo first; exec sleep 1000"})
        while not (await terminals.output(place))["output"]:
            await asyncio.sleep(0.01)
        await terminals.kill(place)
        state = await terminals.output(place)
        assert (state["output"], state["exitStatus"]) == ("first\n", {"exitCode": None, "signal": "15"})
        await terminals.release(place)
        with pytest.raises(Refused, match="no terminal"):
            await terminals.output(place)

    play(tmp_path, scenario)


def test_terminals_at_once_are_bounded(tmp_path: Path) -> None:
    async def scenario(terminals: Terminals) -> None:
        for _ in range(TERMINALS_MAX):
            await terminals.create({"command": "exec sleep 1000"})
        with pytest.raises(Refused, match="at once"):
            await terminals.create({"command": "true"})

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (None, "needs command"),
        ({"command": " "}, "needs command"),
        ({"command": "ls", "args": "-l"}, "list of texts"),
        ({"command": "ls", "cwd": ".."}, "outside the stage's folder"),
        ({"command": "ls", "cwd": "/"}, "outside the stage's folder"),
        ({"command": "ls", "cwd": "missing"}, "cannot start"),
    ],
)
def test_a_request_that_is_none_or_leads_out_is_refused(tmp_path: Path, params: Any, said: str) -> None:
    async def scenario(terminals: Terminals) -> None:
        with pytest.raises(Refused, match=said):
            await terminals.create(params)

    play(tmp_path, scenario)
