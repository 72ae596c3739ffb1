"""Small helpers of the programs that the lanes bed plays."""

from __future__ import annotations

from perdure.events import NodeStarted
from tests.bed.lanes import Result, play


class world_of:  # noqa: N801  a tool's arguments must be JSON, so the world travels beside them
    current = None

    def __new__(cls, world):
        cls.current = world
        return "world"


async def refuse(_, what):
    world_of.current.executed.append(what)
    raise ValueError(f"{what} refused")


def nodes(result: Result) -> dict[str, NodeStarted]:
    found = {}
    for stored in result.events:
        event = stored.event
        start = event if isinstance(event, NodeStarted) else getattr(event, "start", None)
        if start is not None:
            found[start.position] = start
    return found


def executed_after(body, first: Result, **options) -> Result:
    return play(body, events=first.events, **options)
