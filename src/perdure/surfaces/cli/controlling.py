"""answer, quit, delete: what a person may do to a run from any terminal."""

from __future__ import annotations

from argparse import Namespace

from perdure.control import ControlOutcome
from perdure.surfaces.cli.commands import Parts, check_database
from perdure.surfaces.cli.foreground import actor
from perdure.surfaces.cli.output import OK, USAGE, Output


async def answer_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Answer an open question. A value that is no answer leaves it open and is wrong use."""
    check_database(parts, arguments.run)
    outcome = await parts.control().answer(arguments.run, arguments.prompt, arguments.value, actor=actor())
    _report(outcome, out)
    return USAGE if outcome.status == "noop" else OK


async def quit_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Stop a live run durably."""
    check_database(parts, arguments.run)
    _report(await parts.control().quit(arguments.run, actor=actor()), out)
    return OK


async def delete_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Forget a run."""
    check_database(parts, arguments.run)
    _report(await parts.control().delete(arguments.run), out)
    return OK


def _report(outcome: ControlOutcome, out: Output) -> None:
    out.result(outcome.to_dict(), lambda: out.say(outcome.message))
