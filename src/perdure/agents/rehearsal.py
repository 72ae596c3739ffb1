"""The rehearsal agent: no model, no cost, no network. Answers come from a script, else from a seed.

Settings: `seed` (a number, 0), `script` (a file or a mapping, see `script`). An answer depends on the seed, the stage's
name, the number of that stage's turn in this run, and the schema alone, so the same run gives the same answers.
Turns are counted by stage name within a process, over retries and repeated calls; a run resumed by another process
counts afresh. What is made up says that it is a rehearsal; what the script says is passed on untouched, after a note.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from msgspec import UNSET

from perdure.agents.sample import sample
from perdure.agents.script import Script, ScriptFailure, ScriptTurn, load_script
from perdure.agents.session import AgentEvent, Capabilities, Emit, SessionSpec, Turn, Turns, TurnUsage
from perdure.errors import AgentError, AgentProtocolError, AgentUnavailable, ConfigInvalid, PerdureError, TimedOut
from perdure.host.processes import shell

STAGES_COUNTED_MAX: Final = 100_000
COMMAND_SECONDS_MAX: Final = 600.0
_PROMPT_SHOWN: Final = 80  # characters of the prompt in a made-up answer
_FAILURES: Final = {kind.code: kind for kind in (AgentProtocolError, TimedOut, AgentUnavailable)}


def build(name: str, settings: Mapping[str, Any]) -> RehearsalAgent:
    """The agent for these settings; ConfigInvalid if they do not fit."""
    if unknown := set(settings) - {"seed", "script"}:
        raise ConfigInvalid(f"Agent {name!r}: unknown settings {sorted(unknown)}. A rehearsal takes seed and script.")
    seed = settings.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigInvalid(f"Agent {name!r}: seed must be a whole number.", seed=seed)
    return RehearsalAgent(name, seed, load_script(settings.get("script")))


class RehearsalAgent:
    """Answers every stage without asking anybody."""

    kind = "rehearsal"
    capabilities = Capabilities(schema=True, reopen=True, steer=True)

    def __init__(self, name: str = "rehearsal", seed: int = 0, script: Script | None = None) -> None:
        self.name = name
        self._seed = seed
        self._script = script or Script({})
        self._turns_begun: dict[tuple[str, str], int] = {}

    async def open(self, spec: SessionSpec, emit: Emit) -> RehearsalSession:
        """A session whose id depends on the run and the node alone. The run's own seed and script come first."""
        emit(AgentEvent("note", "This is a rehearsal: no model is asked."))
        return RehearsalSession(self._for_run(spec.options), spec, emit)

    def _for_run(self, options: Mapping[str, Any]) -> RehearsalAgent:
        seed, script = options.get("seed"), options.get("script")
        if not seed and script is None:
            return self
        agent = RehearsalAgent(self.name, seed or self._seed, self._script if script is None else load_script(script))
        agent._turns_begun = self._turns_begun  # turns are counted across the sessions of a run
        return agent

    def begin_turn(self, spec: SessionSpec) -> int:
        """The number of the stage's next turn in this run, from 0."""
        key = (spec.run_id, spec.stage)
        number = self._turns_begun.pop(key, 0)
        self._turns_begun[key] = number + 1
        if len(self._turns_begun) > STAGES_COUNTED_MAX:
            del self._turns_begun[next(iter(self._turns_begun))]
        return number

    def scripted(self, stage: str, number: int) -> ScriptTurn | None:
        """What the script says about the stage's turn."""
        return self._script.turn(stage, number)

    def value_for(self, spec: SessionSpec, number: int) -> Any:
        """A made-up value for the stage's schema; UNSET without one."""
        return UNSET if spec.schema is None else sample(spec.schema, self._seed, spec.stage, number)


class RehearsalSession:
    """One stage's conversation with nobody."""

    def __init__(self, agent: RehearsalAgent, spec: SessionSpec, emit: Emit) -> None:
        self.session_id = spec.reopen_id or f"rehearsal-{uuid5(NAMESPACE_URL, f'{spec.run_id}/{spec.node_id}')}"
        self._agent = agent
        self._spec = spec
        self._emit = emit
        self._turns = Turns()
        self._steered: list[str] = []

    async def prompt(self, text: str) -> Turn:
        """The stage's next answer."""
        return await self._turns.run(self._answer(text))

    async def steer(self, text: str) -> bool:
        """Noted, and repeated in a made-up answer."""
        if not self._turns.running:
            return False
        self._steered.append(text)
        self._emit(AgentEvent("note", f"Steered: {text}"))
        return True

    async def cancel(self) -> None:
        """End the turn, its delay and its commands."""
        await self._turns.stop()

    async def close(self) -> None:
        """End the session."""
        await self._turns.close()

    async def _answer(self, prompt: str) -> Turn:
        number = self._agent.begin_turn(self._spec)
        turn = self._agent.scripted(self._spec.stage, number) or ScriptTurn()
        if turn.delay:
            await asyncio.sleep(turn.delay)
        for path, content in turn.files.items():
            _write(self._spec.cwd, path, content)
            self._emit(AgentEvent("tool_call", f"write {path}", {"path": path}))
        for argv in turn.commands:
            await self._run(argv)
        if turn.fail:
            raise _failed(turn.fail, self._spec)
        value = turn.value if turn.value is not UNSET else self._agent.value_for(self._spec, number)
        text = turn.text if turn.text is not None else self._made_up(prompt, number, value)
        self._emit(AgentEvent("text", text))
        return Turn("end_turn", text, value, turn.usage or TurnUsage(0, 0, 0))

    async def _run(self, argv: tuple[str, ...]) -> None:
        self._emit(AgentEvent("tool_call", " ".join(argv), {"argv": list(argv)}))
        result = await shell(argv, cwd=self._spec.cwd, timeout=COMMAND_SECONDS_MAX)
        self._emit(AgentEvent("tool_result", result.stdout + result.stderr, {"exit_code": result.exit_code}))
        if result.exit_code != 0:
            raise AgentError(
                f"The rehearsal script's command {argv[0]!r} of stage {self._spec.stage!r} ended with exit code "
                f"{result.exit_code}. Correct the script, or make the command succeed.",
                argv=list(argv),
                exit_code=result.exit_code,
                stdout=result.stdout,
                stderr=result.stderr,
            )

    def _made_up(self, prompt: str, number: int, value: Any) -> str:
        lines = [f"[rehearsal] Stage {self._spec.stage!r}, turn {number + 1}: no model was asked."]
        first = next(iter(prompt.strip().splitlines()), "")
        lines.append(f"The prompt began: {first[:_PROMPT_SHOWN]}")
        lines += [f"Steered by: {text}" for text in self._steered]
        if value is not UNSET:
            lines.append(json.dumps(value, ensure_ascii=False))
        return "\n".join(lines)


def _write(folder: Path, path: str, content: str) -> None:
    target = (folder / path).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise AgentError(f"The rehearsal script may not write {path!r}: it leads out of the stage's folder.", path=path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")


def _failed(fail: ScriptFailure, spec: SessionSpec) -> PerdureError:
    kind = _FAILURES.get(fail.code, AgentError)
    error = kind(fail.message, stage=spec.stage, rehearsal=True)
    if kind is AgentError:
        error.details["code"] = fail.code  # what failures.classify reads beside the class
    return error
