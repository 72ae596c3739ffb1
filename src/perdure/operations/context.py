"""`ctx`: everything a workflow may ask of perdure (spec/authoring.md 2 and 3).

Every method that is a step takes its place when it is called and does its work when it is awaited. Methods are plain
functions that return a coroutine, so the place is taken even if the await comes later.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from perdure.errors import NotAvailable, UsageError
from perdure.events import Patched
from perdure.ids import draw_random, new_id
from perdure.operations import parallel, timers
from perdure.operations.ask import Ask
from perdure.operations.base import lane_of
from perdure.operations.child import call_child
from perdure.operations.exit import leave
from perdure.operations.results import ChildResult, TaskResult, Usage
from perdure.operations.stage import Stage, StageOptions, call_chain, call_stage
from perdure.operations.stage_result import plain_usage
from perdure.operations.tool import call_tool
from perdure.states import ExitStatus

if TYPE_CHECKING:
    from perdure.engine.runner import Run

_logger = logging.getLogger("perdure.run")


class Context:
    """The run, as its workflow function sees it."""

    __slots__ = ("_run", "ask")

    def __init__(self, run: Run) -> None:
        """Made by the engine, one for each execution of a run."""
        self._run = run
        self.ask = Ask(run)

    # --- what the run is

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The validated inputs."""
        return dict(self._run.inputs)

    @property
    def run_id(self) -> str:
        """The run's full id."""
        return self._run.run_id

    @property
    def workflow_name(self) -> str:
        """The name of the running workflow."""
        return self._run.workflow.name

    @property
    def cwd(self) -> Path:
        """The folder in which stages work: in the workflow's worktree, if it names one."""
        return self._run.cwd

    @property
    def attempt(self) -> int:
        """1 for the first execution of this run, one more for each resume."""
        return self._run.epoch

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the run. Logging is not recorded; replayed code logs again."""
        return logging.LoggerAdapter(_logger, {"run_id": self._run.run_id})

    # --- stages

    def task(self, name: str, prompt: str, **options: Any) -> Coroutine[Any, Any, TaskResult]:
        """One stage, one prompt: a session of an agent. Options: StageOptions. Raises StageFailed."""
        return call_stage(self._run, name, prompt, StageOptions.of(options))

    def chain(self, items: Iterable[Mapping[str, Any]]) -> Coroutine[Any, Any, list[TaskResult]]:
        """Stages in sequence, each given as the arguments of `task`; each gets the result before it as `previous`."""
        return call_chain(self._run, items)

    def stage(self, name: str, **options: Any) -> Stage:
        """A stage that is talked with: `async with ctx.stage("plan") as stage: await stage.prompt(...)`."""
        return Stage(self._run, name, StageOptions.of(options))

    def parallel(
        self,
        items: Iterable[Any] | Mapping[str, Any],
        limit: int | None = None,
        on_error: Literal["cancel", "collect"] = "cancel",
    ) -> Coroutine[Any, Any, Any]:
        """Run branches at once, at most `limit`; results in input order, or by name for a mapping.

        "cancel": the first failure cancels the others and is raised. "collect": failures come back in place.
        """
        return parallel.call_parallel(items, limit, on_error)

    def as_completed(self, items: Iterable[Any]) -> AsyncIterator[Any]:
        """Results in the order in which branches finish: `async for result in ctx.as_completed(...)`."""
        return parallel.as_completed(items)

    # --- side effects, people, children

    def tool(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run a function whose result is recorded once. Options by `@tool`. Raises ToolFailed."""
        return call_tool(self._run, function, args, kwargs)

    def workflow(self, child: Any, *, label: str | None = None, **inputs: Any) -> Coroutine[Any, Any, ChildResult]:
        """Run another workflow inside this run, with an id of its own. Raises ChildFailed."""
        return call_child(self._run, child, inputs, label)

    def exit(
        self, status: ExitStatus = "completed", reason: str = "", output: Any = None, resumable: bool = False
    ) -> NoReturn:
        """End the run here, from any depth. The first exit wins."""
        leave(self._run, status, reason, output, resumable)

    def send(self, target: str, text: str) -> NoReturn:
        """Messages between stages come with a later version."""
        raise NotAvailable("ctx.send is not in this version of perdure.", target=target, text=text)

    # --- time, chance, versions

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait, keeping the deadline across crashes."""
        return timers.call_sleep(self._run, seconds)

    def now(self) -> Coroutine[Any, Any, float]:
        """The time in seconds since 1970, recorded."""
        return timers.call_value(self._run, "now", lambda: self._run.store_now_ms() / 1000)

    def random(self) -> Coroutine[Any, Any, float]:
        """A number in [0, 1), recorded."""
        return timers.call_value(self._run, "random", draw_random)

    def uuid(self) -> Coroutine[Any, Any, str]:
        """A fresh UUID, recorded."""
        return timers.call_value(self._run, "uuid", new_id)

    async def usage(self) -> Usage:
        """What the run has used so far, recorded."""
        fields = plain_usage(self._run.usage)
        return Usage(**await timers.call_value(self._run, "usage", lambda: fields))

    async def patched(self, name: str) -> bool:
        """Whether this run takes the new side of a change to its code; a run that began before keeps the old side."""
        run = self._run
        lane_of(run)
        run.order.check()
        if not name or not isinstance(name, str):
            raise UsageError("ctx.patched needs a name for the change.", got=repr(name))
        known = run.record.patches.get(name)
        if known is None:
            known = run.record.patches[name] = not run.record.is_open
            run.log.note(run, Patched(name=name, new=known))
        return known
