"""A run in the foreground: its screen, its questions, its interrupts, and the last words.

What is shown comes from the read model, never from the engine's memory, so it is what every other surface shows. The
first interrupt quits durably, the second one ends the process at once (the run then counts as crashed, and resumes).
A terminal that closes, or a pipe that nobody reads any more, quits durably without a word.
"""

from __future__ import annotations

import asyncio
import errno
import getpass
import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from perdure.errors import ControlRefused, PerdureError, StaleLease, StorageUnavailable
from perdure.inspect import PromptView, RunView
from perdure.surfaces.cli import ending, output
from perdure.surfaces.cli.asking import Keyboard, ask
from perdure.surfaces.cli.commands import Parts
from perdure.surfaces.cli.output import Output
from perdure.surfaces.cli.screen import LiveScreen, PlainScreen, Screen
from perdure.watch import Watch

if TYPE_CHECKING:
    from perdure.engine.engine import Ending, Execution

TICK_S: Final = 0.1  # at most ten pictures a second
IDLE_TICKS: Final = 10  # times go on even when nothing happens
STAGES_SHOWN_MAX: Final = 200
LETS_GO_S: Final = 2.0  # how long the engine may take to give its lease back


class Foreground:
    """Follows one execution to its end."""

    def __init__(
        self,
        parts: Parts,
        execution: Execution,
        out: Output,
        *,
        watch: Watch | None = None,
        is_owner_only: bool = False,
    ) -> None:
        """`watch` has read what happened before, which is not told again.

        `is_owner_only`: the background half of --detach, which asks nobody and keeps waiting at a question.
        """
        self._execution, self._out, self._parts = execution, out, parts
        self._watch = watch or Watch(parts.database(), execution.run_id)
        self._screen: Screen = (
            LiveScreen(out) if out.is_live else PlainScreen(out.stderr if out.as_json else out.stdout)
        )
        self._asks_here = out.is_live and sys.stdin.isatty() and not is_owner_only
        self._waits_at_questions = is_owner_only
        self._keyboard = Keyboard()
        self._asking: asyncio.Task[None] | None = None
        self._asked: PromptView | None = None
        self._was_interrupted = False  # told by a signal; `_is_interrupted` follows when the loop runs
        self._is_interrupted = False
        self._is_silent = False
        self._needs_input = False

    async def follow(self) -> int:
        """Show the run until its execution ends; the exit code."""
        log_to(self._out)
        waiter = asyncio.ensure_future(self._execution.wait())
        loop = asyncio.get_running_loop()
        former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        if former[signal.SIGHUP] is signal.SIG_IGN:  # nohup
            del former[signal.SIGHUP]
        for number in former:
            signal.signal(number, partial(self._on_signal, loop))
        try:
            while not waiter.done():
                await self._draw()
                await self._pause(waiter)
                self._check_database()
            end = await waiter
            await self._stop_asking()
            await self._draw()
            await self._until_released()
        finally:
            self._close_screen()
            for number, react in former.items():
                signal.signal(number, react)
        self._check_recorded(end)
        return self._report(end)

    def _on_signal(self, loop: asyncio.AbstractEventLoop, number: int, _: Any) -> None:
        """Runs even while the author's code blocks the loop, so that the second interrupt always ends the process."""
        if number == signal.SIGHUP:
            loop.call_soon_threadsafe(self._hang_up)
            return
        if self._was_interrupted:
            with suppress(Exception):  # whatever it breaks into, the process ends
                self._close_screen()
            os._exit(output.INTERRUPTED)
        self._was_interrupted = True
        loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        self._is_interrupted = True
        self._execution.quit()
        if not self._is_silent:
            self._out.note("Quitting durably; once more ends the process at once.")

    def _hang_up(self) -> None:
        """Nobody sees us any more: quit durably, silently."""
        self._is_silent = self._is_interrupted = True
        self._out.go_silent()
        self._screen = PlainScreen(self._out.stderr)
        self._execution.quit()

    def _close_screen(self) -> None:
        try:
            self._screen.close()
        except OSError:
            self._out.go_silent()

    async def _until_released(self) -> None:
        """Our own lease is on its way back; until it is there the run looks owned and not resumable."""
        for _ in range(round(LETS_GO_S / TICK_S)):
            if not self._watch.view(latest=0).is_live:
                return
            await asyncio.sleep(TICK_S / 10)
            await self._watch.refresh()

    def _check_database(self) -> None:
        """Raise StorageUnavailable when the database's file was removed: what is recorded then is on no disk."""
        if not self._parts.has_database_file:
            raise StorageUnavailable(
                f"{self._parts.config.database} is gone: it was removed while the run went on. The run was stopped.",
                path=self._parts.config.database,
            )

    # --- showing and asking

    async def _draw(self) -> None:
        touched = await self._watch.refresh()
        view = self._watch.view(latest=STAGES_SHOWN_MAX)
        if self._asking is None:
            try:
                self._screen.show(view, touched)
            except OSError as error:
                if error.errno not in {errno.EPIPE, errno.EIO}:
                    raise
                self._hang_up()  # the pipe's reader has gone, or the terminal
        await self._attend(view)

    async def _pause(self, waiter: asyncio.Future[Ending]) -> None:
        """Until something changed, the run ended, or a second went by; never less than a tick."""
        for _ in range(IDLE_TICKS):
            await asyncio.wait({waiter}, timeout=TICK_S)
            if waiter.done() or self._watch.is_behind or (self._asking is not None and self._asking.done()):
                return

    async def _attend(self, view: RunView) -> None:
        """See to open questions: ask here, or leave them open and quit, or just wait."""
        if self._asking is not None and (self._asking.done() or self._asked not in view.awaiting_input):
            await self._stop_asking()
        if not view.awaiting_input or self._is_interrupted or self._waits_at_questions or self._asking is not None:
            return
        if not self._asks_here:
            if not self._needs_input:
                self._needs_input = True
                self._execution.quit()
            return
        self._screen.close()
        self._asked = view.awaiting_input[0]
        self._asking = asyncio.create_task(self._ask(self._asked), name="ask")

    async def _ask(self, prompt: PromptView) -> None:
        try:
            value = await ask(self._out, self._keyboard, prompt)
        except (EOFError, OSError):
            self._asks_here = False
            return
        try:
            await self._parts.control().answer(prompt.run_id, prompt.prompt_id, value, actor=actor())
        except ControlRefused as refused:
            self._out.note(refused.message)

    async def _stop_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is None:
            return
        if not asking.done():
            asking.cancel()
            self._out.say()
            if not self._is_interrupted:
                self._out.note("(answered elsewhere)")
        await asyncio.wait({asking})
        if not asking.cancelled():
            asking.result()

    # --- the end

    def _check_recorded(self, end: Ending) -> None:
        """Raise when the run went on without us: another process took over, or the disk failed."""
        if end.recorded:
            return
        run_id = self._execution.run_id
        error: type[PerdureError] = StorageUnavailable if end.code == "storage_unavailable" else StaleLease
        raise error(
            f"{end.reason or 'Nothing more could be recorded.'} The run is as it was last recorded.",
            run_id=run_id,
            next=f"perdure {'resume' if error is StorageUnavailable else 'status'} {run_id}",
        )

    def _report(self, end: Ending) -> int:
        view = self._watch.view(latest=STAGES_SHOWN_MAX)
        code = ending.exit_code(view)
        if end.status == "paused":
            code = output.INPUT_NEEDED if self._needs_input and not self._is_interrupted else output.INTERRUPTED
        data = ending.to_dict(view, replayed=end.replayed)
        self._out.result(data, lambda: ending.draw(self._out, view, replayed=end.replayed, headline=False))
        return code


def actor() -> str:
    """Who acts, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


class _Notes(logging.Handler):
    """Log lines become notes beside the result."""

    def __init__(self, out: Output) -> None:
        super().__init__(logging.INFO)
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        message: Any = self.format(record)
        self._out.note(message if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {message}")


def log_to(out: Output) -> None:
    """Show what the engine warns of and what authors log."""
    logger = logging.getLogger("perdure")
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes(out))
    logger.setLevel(logging.INFO)
    logger.propagate = False
