"""What a stage needs before its agent is asked: the agent, the folder, the files, the session to go on with.

Checked in the engine, not in the author's lane, because the answer depends on the machine: what is missing becomes the
stage's recorded failure, and a resume looks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perdure.agents.session import Agent
from perdure.errors import AgentUnavailable, UsageError
from perdure.operations.base import Call, lane_of
from perdure.operations.candidates import Candidate, candidates_of
from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_output import check_reads, output_path
from perdure.operations.workplace import Workplace, enter
from perdure.values import check

_WITHOUT_TOOLS: Final = frozenset({"rehearsal", "local"})  # kinds of agents that satisfy any allow-list


@dataclass(frozen=True, slots=True)
class Spoken:
    """A session that the author's code knows of, because it has the stage's result: what a later stage may fork.

    It is looked up by what the author wrote, never by what the configuration said, so a replay finds the same one.
    """

    stage: str
    lane: str
    written: tuple[Any, ...]  # agent, cwd and worktree as the author gave them
    agent: str  # that answered
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and with whom a stage works."""

    candidates: tuple[Candidate, ...]  # who may answer, in order
    workplace: Workplace
    output: Path | None
    forked: str | None  # id of the session to go on with

    @property
    def cwd(self) -> Path:
        """The folder the agent works in."""
        return self.workplace.cwd


def check_names(name: Any, prompt: Any) -> None:
    """Raise UsageError unless a stage has a name and a prompt, PayloadInvalid for text that cannot be stored."""
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"A stage needs a name, got {name!r:.80}.", got=repr(name)[:80])
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError(f"Stage {name} needs a prompt that is a text, got {prompt!r:.80}.", got=repr(prompt)[:80])
    check([name, prompt], "stage [name, prompt]")


def spoken_before(run: Any, name: str, options: StageOptions) -> Spoken | None:
    """The session that context="fork" continues; None for a fresh one. Raises UsageError when there is none."""
    if options.context != "fork":
        return None
    lane, written = lane_of(run).id, options.where
    known: list[Spoken] = run.spoken
    for one in reversed(known):
        if options.fork_from is None:
            if (one.lane, one.written) == (lane, written):
                return one
        elif one.stage == options.fork_from:
            return one
    wanted = options.fork_from or "an earlier stage of this lane with the same agent, cwd and worktree"
    names = ", ".join(dict.fromkeys(one.stage for one in known)) or "none"
    raise UsageError(
        f"Stage {name} wants to go on from {wanted}, which has no result yet. Stages with one: {names}.",
        fork_from=options.fork_from,
    )


async def set_up(call: Call, options: StageOptions, spoken: Spoken | None) -> Setting:
    """The setting of a stage. Raises AgentUnavailable, UsageError and GitFailed before anybody is asked."""
    run: Any = call.run
    agent: Agent = run.tree.agent(options.agent)
    candidates = candidates_of(run, options, agent)
    for one in dict.fromkeys(candidate.agent for candidate in candidates):
        if options.tools is not None and one.kind not in _WITHOUT_TOOLS:
            raise AgentUnavailable(
                f"Agent {one.name} cannot be held to a list of tools. Leave tools= out, or name another agent.",
                agent=one.name,
            )
        if spoken is not None:
            _check_fork(one, spoken)
    workplace = await enter(call, options)
    check_reads(options, workplace.cwd)
    return Setting(
        candidates=candidates, workplace=workplace, output=output_path(options, workplace.cwd),
        forked=None if spoken is None else spoken.session_id,
    )  # fmt: skip


def _check_fork(agent: Agent, spoken: Spoken) -> None:
    if spoken.agent != agent.name:
        raise AgentUnavailable(
            f"The session of stage {spoken.stage} belongs to agent {spoken.agent}; {agent.name} cannot go on with it.",
            agent=agent.name,
        )
    if not agent.capabilities.reopen:
        raise AgentUnavailable(
            f'Agent {agent.name} cannot go on with an earlier session. Use context="fresh" and previous=, or an agent '
            "that keeps its sessions.",
            agent=agent.name,
        )
