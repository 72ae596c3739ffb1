"""Control: the one path from any surface to a run (spec/control.md 4 and 5).

Whoever owns a run acts on it; everybody else posts a request into its mailbox and waits for the owner's outcome. If no
outcome comes in time the request is withdrawn; withdrawing and settling compare-and-set on one column, so a request
that was refused never runs later. On a run without a live owner, verbs act on the rows themselves.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from perdure import answers
from perdure.clock import Clock, SystemClock
from perdure.errors import ControlRefused, InputInvalid, PerdureError
from perdure.host.identity import here
from perdure.host.snapshots import forget_snapshots
from perdure.host.worktrees import drop_branch, drop_empty, remove_worktree
from perdure.ids import new_id
from perdure.inspect import RunView, StageView, is_live
from perdure.states import TERMINAL
from perdure.store import prompts, requests, worktrees
from perdure.store.database import Database, Tx
from perdure.store.journal import Journal
from perdure.store.prompts import Prompt
from perdure.store.requests import Request
from perdure.store.runs import RunRow, find, row_of

OWNER_ANSWERS_S: Final = 10.0
OWNER_LETS_GO_S: Final = 2.0
POLL_S: Final = 0.05
PREFIX_HEX_MIN: Final = 8
MENTION_CHARS_MAX: Final = 120


class ControlOutcome(Struct, frozen=True, kw_only=True):
    """What came of a verb. `noop`: nothing had to be done, or nothing could be; `message` says which."""

    action: str
    run_id: str
    status: str
    changed: bool
    message: str
    unconfirmed: int = 0
    failed: tuple[dict[str, str], ...] = ()
    cancelled_tools: tuple[dict[str, str], ...] = ()
    abandoned_tools: tuple[dict[str, str], ...] = ()
    resumable_elsewhere: bool = False
    details: dict[str, Any] = {}

    def to_dict(self) -> dict[str, Any]:
        """As JSON output and the mailbox have it."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


class Control:
    """The verbs. Each raises ControlRefused with a code of spec/control.md 4 when the state does not allow it."""

    def __init__(self, database: Database, *, clock: Clock | None = None, patience_s: float = OWNER_ANSWERS_S) -> None:
        """`patience_s` is how long an owner may take to settle a request."""
        self._database = database
        self._clock = clock or SystemClock()
        self._patience_s = patience_s

    async def resolve(self, target: str) -> RunRow:
        """The run of a full id, or of a prefix of 8 or more hex digits that only one run has."""
        prefix = to_prefix(target)

        def unit(tx: Tx) -> tuple[RunRow | None, list[str]]:
            found = find(tx, prefix) if prefix else []
            return (row_of(tx, found[0]) if len(found) == 1 else None), found

        row, found = await self._database.read(unit)
        if row is not None:
            return row
        if found:
            raise ControlRefused(
                "run_ambiguous", f"{len(found)} runs begin with {target}. Write more of the id.", candidates=found
            )
        why = (
            f"There is no run {target}."
            if prefix
            else f"{target!r} is no run id and no prefix of 8 or more hex digits."
        )
        raise ControlRefused("run_not_found", why, target=target)

    async def quit(self, target: str, *, actor: str, request_id: str | None = None) -> ControlOutcome:
        """Stop a live run durably; a resume goes on where it stopped. Nothing to do when nobody runs it."""
        known = await self._stored(request_id)
        if known is not None:
            return _outcome("quit", known)
        row = await self.resolve(target)
        if row.parent_run_id is not None:
            raise ControlRefused(
                "invalid_target", f"{row.run_id} is part of {row.root_run_id}. Quit that one.", run_id=row.root_run_id
            )
        if row.status in TERMINAL:
            raise ControlRefused("run_ended", f"Run {row.run_id} has ended: {row.status}.", run_id=row.run_id)
        request = request_id or new_id()
        if await self._is_live(row.run_id):
            settled = await self._ask_owner(row.run_id, "quit", {}, actor=actor, request_id=request)
            if settled is not None:
                await self._until_released(row.run_id)
                return settled
        outcome = ControlOutcome(
            action="quit", run_id=row.run_id, status="noop", changed=False,
            message=f"Nobody runs {row.run_id}. Resume: perdure resume {row.run_id}",
        )  # fmt: skip
        if request_id is not None:
            await self._settle_ourselves(outcome, actor=actor, request_id=request_id)
        return outcome

    async def answer(self, target: str, prompt: str | None, value: Any, *, actor: str) -> ControlOutcome:
        """Answer an open question; durable on return, whether or not anybody runs the run.

        `prompt` is its id or a prefix of it, or its stage's id; None when only one is open. A value that is no answer
        leaves it open: `noop`, with what was expected.
        """
        row = await self.resolve(target)
        if row.status in TERMINAL:
            raise ControlRefused("run_ended", f"Run {row.run_id} has ended: {row.status}.", run_id=row.run_id)
        asked = await self._prompt(row, prompt)
        question = asked.question or {}
        try:
            settled = answers.normalise(
                question.get("kind", "input"),
                value,
                choices=question.get("choices") or (),
                schema=question.get("schema"),
            )
        except InputInvalid as refused:
            return ControlOutcome(
                action="answer", run_id=row.run_id, status="noop", changed=False, message=refused.message,
                details={"prompt_id": asked.prompt_id, **refused.details},
            )  # fmt: skip
        came = await self._database.write(
            lambda tx: prompts.answer(tx, asked.prompt_id, asked.generation, settled, actor)
        )
        if came in {"answered", "stale", "not_found"}:
            code = "prompt_answered" if came == "answered" else "changed"
            raise ControlRefused(
                code, "Somebody answered the question meanwhile, or it was withdrawn.",
                run_id=row.run_id, prompt_id=asked.prompt_id,
            )  # fmt: skip
        live = await self._is_live(row.root_run_id)
        advice = "" if live else f"\nresume: perdure resume {row.root_run_id}"
        return ControlOutcome(
            action="answer", run_id=row.run_id, status="running" if live else "paused", changed=came == "ok",
            message=f"Answered: {_first_line(question.get('message', ''))}{advice}",
            details={"prompt_id": asked.prompt_id, "value": settled},
        )  # fmt: skip

    async def delete(self, target: str) -> ControlOutcome:
        """Drop a run's record for good, its children and worktrees too; transcripts stay. Refused while it is owned."""
        row = await self.resolve(target)
        if row.parent_run_id is not None:
            raise ControlRefused(
                "invalid_target", f"{row.run_id} is part of {row.root_run_id}. Delete that one.", run_id=row.root_run_id
            )
        came = await Journal(self._database).delete_if_inactive(row.run_id, here())
        if came == "running":
            raise ControlRefused("run_active", f"Run {row.run_id} is running. Quit it first.", run_id=row.run_id)
        if came == "not_found":
            raise ControlRefused("run_not_found", f"There is no run {row.run_id}.", run_id=row.run_id)
        left = await self._without_worktrees(row.run_id)
        return ControlOutcome(
            action="delete", run_id=row.run_id, status="noop", changed=True,
            message=" ".join([f"Deleted {row.run_id}.", *left]), details={"left": left} if left else {},
        )  # fmt: skip

    async def _without_worktrees(self, run_id: str) -> list[str]:
        """Remove a deleted run's worktrees and snapshots. What was left, and why, in words."""
        known = await self._database.read(lambda tx: worktrees.of_tree(tx, run_id))
        left: list[str] = []
        for owner, one in known:
            repository = Path(one.repository)
            try:
                if one.kind != "given":
                    await remove_worktree(repository, Path(one.path))
                    drop_empty(Path(one.path).parents[:2])  # of its kind, of its run
                if one.branch is not None and not await drop_branch(repository, one.branch):
                    left.append(f"Branch {one.branch} stays: its commits are nowhere else.")
                await forget_snapshots(repository, owner)
            except PerdureError as error:
                left.append(f"The worktree {one.path} stays: {error.message}")
                continue
            await self._database.write(partial(worktrees.forget, run_id=owner, path=one.path))
        return left

    # --- the mailbox

    async def _ask_owner(
        self, run_id: str, verb: str, args: dict[str, Any], *, actor: str, request_id: str
    ) -> ControlOutcome | None:
        """Post a request and wait for its outcome; None when the owner is gone and did nothing."""
        await self._database.write(lambda tx: requests.post(tx, request_id, run_id, verb, args, actor))
        deadline = self._clock.monotonic() + self._patience_s
        while self._clock.monotonic() < deadline:
            settled = await self._stored(request_id)
            if settled is not None:
                return _outcome(verb, settled)
            if not await self._is_live(run_id):
                break
            await asyncio.sleep(POLL_S)
        withdrawn = await self._database.write(lambda tx: requests.withdraw(tx, request_id))
        settled = await self._stored(request_id)
        if settled is not None and not withdrawn:
            return _outcome(verb, settled)
        if not await self._is_live(run_id):
            return None
        raise ControlRefused(
            "owned_elsewhere",
            f"The process that owns {run_id} does not answer; the request was withdrawn and will not run later. "
            "If it is gone, resume takes the run over once its lease has run out.",
            run_id=run_id,
        )

    async def _until_released(self, run_id: str) -> None:
        """Wait a little for the owner to let go, so that a resume which follows at once is not refused."""
        deadline = self._clock.monotonic() + min(OWNER_LETS_GO_S, self._patience_s)
        for _ in range(round(OWNER_LETS_GO_S / POLL_S)):
            if not await self._is_live(run_id) or self._clock.monotonic() >= deadline:
                return
            await asyncio.sleep(POLL_S)

    async def _settle_ourselves(self, outcome: ControlOutcome, *, actor: str, request_id: str) -> None:
        """Nobody owns the run: keep the outcome, so that the same request id has the same outcome."""

        def unit(tx: Tx) -> None:
            requests.post(tx, request_id, outcome.run_id, outcome.action, {}, actor)
            requests.settle(tx, request_id, outcome.to_dict())

        await self._database.write(unit)

    async def _stored(self, request_id: str | None) -> Request | None:
        """A request that has its final outcome."""
        if request_id is None:
            return None
        request = await self._database.read(lambda tx: requests.get(tx, request_id))
        return request if request is not None and request.state != "pending" else None

    async def _is_live(self, run_id: str) -> bool:
        def unit(tx: Tx) -> bool:
            row = row_of(tx, run_id)
            return row is not None and is_live(row, tx.now_ms)

        return await self._database.read(unit)

    async def _prompt(self, row: RunRow, wanted: str | None) -> Prompt:
        found = await self._database.read(lambda tx: prompts.open_prompts(tx, row.run_id))
        if wanted is not None:
            fits: list[Callable[[Prompt], bool]] = [
                lambda prompt: wanted in {prompt.prompt_id, prompt.prompt_key},
                lambda prompt: len(wanted) >= PREFIX_HEX_MIN and prompt.prompt_id.startswith(wanted),
            ]
            found = next((some for fit in fits if (some := [prompt for prompt in found if fit(prompt)])), [])
        if len(found) == 1:
            return found[0]
        if not found and wanted is not None:
            return await self._answered(row, wanted)
        if not found:
            raise ControlRefused("prompt_not_found", f"Run {row.run_id} asks nothing right now.", run_id=row.run_id)
        raise ControlRefused(
            "stage_ambiguous",
            "The run asks several questions. Name one.",
            run_id=row.run_id,
            candidates=[f"{p.prompt_id}  {_first_line((p.question or {}).get('message', ''))}" for p in found],
        )

    async def _answered(self, row: RunRow, wanted: str) -> Prompt:
        """A question that was answered before: the same answer again is fine, another one is refused by the store."""
        known = await self._database.read(lambda tx: prompts.get(tx, wanted))
        if known is not None and known.state == "answered" and known.question is not None:
            return known
        raise ControlRefused("prompt_not_found", f"Run {row.run_id} has no open question {wanted}.", run_id=row.run_id)


def _outcome(verb: str, request: Request) -> ControlOutcome:
    """The owner's words as the caller hears them. Raises ControlRefused for a refusal or a withdrawn request."""
    told = request.outcome if isinstance(request.outcome, dict) else {}
    if request.state == "withdrawn":
        raise ControlRefused(
            "owned_elsewhere", "The request was withdrawn before anybody did it.", run_id=request.run_id
        )
    if "error" in told:
        error = told["error"]
        raise ControlRefused(
            str(error.get("code", "control_failed")),
            str(error.get("message", "The run refused.")),
            run_id=request.run_id,
        )
    return ControlOutcome(
        action=verb,
        run_id=request.run_id,
        status=str(told.get("status", "noop")),
        changed=bool(told.get("changed", True)),
        message=str(told.get("message", "")),
        unconfirmed=int(told.get("unconfirmed", 0)),
        failed=tuple(told.get("failed", ())),
        cancelled_tools=tuple(told.get("cancelled_tools", ())),
        abandoned_tools=tuple(told.get("abandoned_tools", ())),
        resumable_elsewhere=bool(told.get("resumable_elsewhere", False)),
        details=dict(told.get("details", {})),
    )


def _first_line(message: str) -> str:
    """A question, short enough to be mentioned."""
    line = (message.strip().splitlines() or ["the question"])[0]
    return line if len(line) <= MENTION_CHARS_MAX else line[: MENTION_CHARS_MAX - 1] + "…"


def to_prefix(target: str) -> str:
    """The stored form of an id or of a prefix of one: dashes may be left out. Empty when it cannot be one."""
    digits = target.strip().lower().replace("-", "")
    if not re.fullmatch(rf"[0-9a-f]{{{PREFIX_HEX_MIN},32}}", digits):
        return ""
    parts = [digits[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)) if digits[start:end]]
    return "-".join(parts)


def find_stage(view: RunView, target: str) -> StageView:
    """The step of an exact id, a position, `run:stage`, or a name that only one step has."""
    stages: Sequence[StageView] = view.stages or ()
    run, colon, name = target.rpartition(":")
    exact = [s for s in stages if target in {s.stage_id, s.position}]
    scoped = [s for s in stages if colon and run and s.run_id.startswith(run.lower()) and name in {s.stage_id, s.name}]
    named = [s for s in stages if s.name == target]
    begun = [s for s in stages if len(target) >= PREFIX_HEX_MIN and s.stage_id.startswith(target.lower())]
    for found in (exact, scoped, named, begun):
        if len(found) == 1:
            return found[0]
        if found:
            raise ControlRefused(
                "stage_ambiguous",
                f"{len(found)} steps are called {target}. Name one by its id.",
                run_id=view.run_id,
                candidates=[f"{s.stage_id}  {s.name}  {s.display_status}" for s in found],
            )
    known = ", ".join(dict.fromkeys(s.name for s in stages)) or "none yet"
    raise ControlRefused("stage_not_found", f"There is no step {target}. Steps: {known[:500]}.", run_id=view.run_id)
