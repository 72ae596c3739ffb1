"""An agent that is any command line: it takes a prompt and prints an answer.

Settings:

    command = ["claude", "-p"]    # the argument list; "{prompt}" and "{model}" in a word are replaced
    prompt = "argument"           # where the prompt goes if no word has "{prompt}": a last argument, or "stdin"
    env = ["ANTHROPIC_API_KEY"]   # variables it may see beside HOME, PATH and the like
    model = "small"               # for "{model}", if the stage names none
    timeout = 1800                # seconds for one turn

Each turn is a process of its own in the stage's folder; what it prints is the final message. The command remembers
nothing, so a later turn is given the earlier ones as text. An exit code other than 0, or no answer, is a failure with
the end of its standard error as evidence.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.agents.session import AgentEvent, Capabilities, Emit, SessionSpec, Turn, Turns
from perdure.errors import AgentError, AgentProtocolError, AgentUnavailable, ConfigInvalid, TimedOut
from perdure.host.processes import ShellResult, environment, find_command, run_to_end, spawn
from perdure.ids import new_id

TIMEOUT_SECONDS: Final = 3600.0
ANSWER_BYTES_MAX: Final = 1024 * 1024  # the end is kept
EVIDENCE_BYTES_MAX: Final = 4096  # of standard error
HISTORY_CHARS_MAX: Final = 60_000  # of earlier turns; the latest are kept

_SETTINGS: Final = ("command", "prompt", "env", "model", "timeout")


def build(name: str, settings: Mapping[str, Any]) -> CommandAgent:
    """The agent for these settings; ConfigInvalid listing everything that does not fit."""
    command, place, names = settings.get("command"), settings.get("prompt", "argument"), settings.get("env", [])
    timeout, model = settings.get("timeout", TIMEOUT_SECONDS), settings.get("model")
    problems = [f"unknown setting {key!r} (known: {', '.join(_SETTINGS)})" for key in settings if key not in _SETTINGS]
    if not _is_words(command) or not command:
        problems.append('command must be a list of words, such as ["claude", "-p"]')
    if place not in {"argument", "stdin"}:
        problems.append(f'prompt must be "argument" or "stdin", got {place!r}')
    if not _is_words(names):
        problems.append("env must be a list of names of variables")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        problems.append(f"timeout must be seconds above 0, got {timeout!r}")
    if model is not None and not isinstance(model, str):
        problems.append(f"model must be a name, got {model!r}")
    if problems:
        raise ConfigInvalid(f"Agent {name!r}: {'; '.join(problems)}.", agent=name, problems=problems)
    words = list(command or ())
    by_stdin = place == "stdin" and not any("{prompt}" in word for word in words)
    return CommandAgent(name, words, by_stdin=by_stdin, env=list(names), model=model, timeout=float(timeout))


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) and word for word in value)


class CommandAgent:
    """A command line that answers a prompt."""

    kind = "command"
    capabilities = Capabilities()

    def __init__(
        self, name: str, command: list[str], *, by_stdin: bool, env: list[str], model: str | None, timeout: float
    ) -> None:
        self.name = name
        self.command = command
        self.by_stdin = by_stdin
        self.timeout = timeout
        self._env = env
        self._model = model

    async def open(self, spec: SessionSpec, emit: Emit) -> CommandSession:
        """A session; nothing runs before the first prompt. AgentUnavailable if the command is not installed."""
        model = spec.model or self._model
        takes_model = any("{model}" in word for word in self.command)
        if takes_model and model is None:
            raise AgentUnavailable(
                f"Agent {self.name!r} needs a model: give the stage one, or set model in its settings."
            )
        if spec.model and not takes_model:
            emit(AgentEvent("note", f"{self.name} takes no model; {spec.model} is not passed on."))
        self.find(spec.cwd)
        return CommandSession(self, spec, emit, model or "")

    def find(self, cwd: Path) -> dict[str, str]:
        """The command's environment, once the command is known to be there."""
        env = environment(self._env)
        try:
            find_command(self.command[0], env, cwd)
        except FileNotFoundError as error:
            raise AgentUnavailable(
                f"Agent {self.name!r} cannot start: {error} Install it, or correct its command.",
                agent=self.name,
                command=self.command[0],
            ) from error
        return env


class CommandSession:
    """Turns of one stage, each a run of the command."""

    def __init__(self, agent: CommandAgent, spec: SessionSpec, emit: Emit, model: str) -> None:
        self.session_id = f"command-{new_id()}"
        self._agent = agent
        self._spec = spec
        self._emit = emit
        self._model = model
        self._turns = Turns()
        self._said: list[str] = []
        self._turn_number = 0

    async def prompt(self, text: str) -> Turn:
        """Run the command once; its output is the answer."""
        return await self._turns.run(self._answer(text))

    async def steer(self, text: str) -> bool:  # noqa: ARG002  part of the contract
        """A running command takes no more text."""
        return False

    async def cancel(self) -> None:
        """End the running command and all it started."""
        await self._turns.stop()

    async def close(self) -> None:
        """End the session."""
        await self._turns.close()

    async def _answer(self, prompt: str) -> Turn:
        self._turn_number += 1
        result = await self._run(self._with_history(prompt))
        text = result.stdout.strip()
        evidence = self._stderr_tail()
        if evidence:
            self._emit(AgentEvent("stderr", evidence))
        if result.exit_code != 0:
            raise self._failed(result, evidence)
        if not text:
            raise AgentProtocolError(
                f"Agent {self._agent.name!r} ended without an answer: it printed nothing. Check its command and how it "
                "takes the prompt.",
                agent=self._agent.name,
                stderr=evidence,
            )
        self._said += [f"You were asked:\n{prompt}", f"You answered:\n{text}"]
        return Turn("end_turn", text)

    async def _run(self, prompt: str) -> ShellResult:
        agent, spec = self._agent, self._spec
        env = agent.find(spec.cwd)
        argv = [word.replace("{model}", self._model).replace("{prompt}", prompt) for word in agent.command]
        if not agent.by_stdin and not any("{prompt}" in word for word in agent.command):
            argv.append(prompt)
        try:
            process = await spawn(argv, cwd=spec.cwd, env=env, stderr_path=self._stderr_path)
        except OSError as error:
            hint = (
                ' The prompt is too long for an argument: set prompt = "stdin".' if error.errno == errno.E2BIG else ""
            )
            raise AgentUnavailable(f"Agent {agent.name!r} cannot start: {error}.{hint}", agent=agent.name) from error
        data = prompt.encode() if agent.by_stdin else b""
        try:
            return await run_to_end(process, data, agent.timeout, ANSWER_BYTES_MAX, self._say)
        except TimeoutError as error:
            raise TimedOut(
                f"Agent {agent.name!r} took longer than {agent.timeout:g} s and was ended. Raise timeout in its "
                "settings, or give it less to do.",
                agent=agent.name,
                timeout=agent.timeout,
                stderr=self._stderr_tail(),
            ) from error

    def _say(self, text: str) -> None:
        self._emit(AgentEvent("text", text))

    def _failed(self, result: ShellResult, evidence: str) -> AgentError:
        how = f"signal {-result.exit_code}" if result.exit_code < 0 else f"exit code {result.exit_code}"
        last = next((line for line in reversed(evidence.splitlines()) if line.strip()), "")
        return AgentError(
            f"Agent {self._agent.name!r} ended with {how}{f': {last}' if last else ''}.",
            agent=self._agent.name,
            exit_code=result.exit_code,
            stdout=result.stdout[-EVIDENCE_BYTES_MAX:],
            stderr=evidence,
        )

    def _with_history(self, prompt: str) -> str:
        if not self._said:
            return prompt
        history = "\n\n".join(self._said)[-HISTORY_CHARS_MAX:]
        return f"Earlier in this conversation:\n\n{history}\n\nNow:\n\n{prompt}"

    @property
    def _stderr_path(self) -> Path:
        return self._spec.scratch / f"{self.session_id}.{self._turn_number}.stderr"

    def _stderr_tail(self) -> str:
        try:
            with self._stderr_path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - EVIDENCE_BYTES_MAX))
                return file.read().decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return ""
