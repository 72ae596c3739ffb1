"""Lanes: who made a call, which number it has, and what came before it (spec/authoring.md 2, lanes).

A lane is one asyncio task of the author's code; the body is lane `/`. Identity, graph and order all come from lanes,
so they must come out the same on every replay whatever the timing:

- A lane's id is a hash of (parent id, name, counter of that name in the parent). Nothing in it depends on when.
- A position is `lane:number`. Steps, timers (`lane:tN`) and join nodes (`lane:jN`) count apart, so that a library
  which sets more or fewer timeouts in another run does not shift the steps.
- The frontier holds the settled nodes that nothing has followed yet. A call's parents are the frontier of its lane at
  the call; settling puts the node in the place of its parents; a fork hands the child a copy; a lane's end puts what
  the child reached in the place of what it started from. So a branch shows only its own past, a join shows all.

Wide joins are folded into one join node, so a node has few parents however many branches met before it.
This module is pure: no clock, no I/O, no asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, Final

from perdure.events import LaneName

BODY: Final = "/"
FORK_PARENTS_MAX: Final = 4  # a child lane starts from at most this many nodes
FRONTIER_MAX: Final = 64  # a lane holds at most this many unfollowed nodes

Parents = tuple[str, ...]
Join = Callable[[str, Parents], None]  # told of every join node that is made: position, parents


class Lane:
    """One line of the author's code."""

    __slots__ = (
        "_base",
        "_counters",
        "_followed",
        "_joins",
        "_numbers",
        "_on_join",
        "_renamable",
        "_timers",
        "frontier",
        "hash",
        "id",
        "mentioned",
        "name",
        "owner",
        "parent",
        "start",
        "touched",
    )

    def __init__(self, owner: Any, *, on_join: Join, parent: Lane | None = None, name: str = "") -> None:
        """The body's lane, or a child of `parent` called `name`. Of `owner`, the run, only `run_id` matters."""
        self.owner = owner
        self.parent = parent
        self._on_join = on_join
        self._counters: dict[str, int] = {}
        self._numbers = self._timers = self._joins = 0
        self._followed: Parents | None = None  # a wide frontier that one call follows already
        self.touched = False  # whether it has done anything that its parent must follow
        self._renamable = parent is not None
        self.frontier: Parents = ()
        if parent is None:
            self.id, self.name, self.mentioned = BODY, "", True
            self.hash = _number(blake2b(owner.run_id.encode(), digest_size=8).digest())
        else:
            if len(parent.frontier) > FORK_PARENTS_MAX:
                parent.frontier = (parent.join(parent.frontier),)
            self.frontier = parent.frontier
            self._identify(name)
        self.start = self.frontier

    def _identify(self, name: str) -> None:
        assert self.parent is not None
        counters = self.parent._counters  # noqa: SLF001  the parent counts its children's names
        number = counters.get(name, 0)
        counters[name] = number + 1
        self._base = name
        digest = blake2b(f"{self.parent.id}\0{name}\0{number}".encode("utf-8", "surrogatepass"), digest_size=8)
        self.id = digest.hexdigest()
        self.hash = _number(digest.digest()) ^ self.parent.hash  # differs between runs, not between replays
        self.name = f"{name}.{number}" if number else name
        self.mentioned = False

    def rename(self, name: str) -> None:
        """Take the name the author gave the task right after making it; later names change nothing."""
        if not self._renamable:
            return
        assert self.parent is not None
        counters = self.parent._counters  # noqa: SLF001
        counters[self._base] -= 1  # as if it had had the new name from the start
        self._identify(name)
        self._renamable = False

    def settle_identity(self) -> None:
        """From now on the lane keeps its id: it has begun to run or somebody took its hash."""
        self._renamable = False

    def child(self, name: str) -> Lane:
        """A lane forked here."""
        return Lane(self.owner, on_join=self._on_join, parent=self, name=name)

    @property
    def path(self) -> str:
        """The readable name, such as `/review/item-42`."""
        parts = []
        lane: Lane | None = self
        while lane is not None and lane.parent is not None:
            parts.append(lane.name)
            lane = lane.parent
        return BODY + "/".join(reversed(parts))

    def mention(self) -> LaneName | None:
        """The lane's readable name, the first time somebody asks; then None, for it is stored once."""
        if self.mentioned:
            return None
        self.mentioned = True
        assert self.parent is not None
        return LaneName(self.id, self.parent.id, self.name)

    def next_position(self) -> str:
        """The position of the next call."""
        self._renamable = False
        number = self._numbers
        self._numbers = number + 1
        return f"{self.id}:{number}"

    def call_parents(self) -> Parents:
        """The parents of a call made now. Many calls that fan out from many nodes do so through one join node."""
        frontier = self.frontier
        if len(frontier) > FORK_PARENTS_MAX:
            if self._followed is frontier:
                self.frontier = frontier = (self.join(frontier),)
            self._followed = frontier
        return frontier

    def next_timer(self) -> str:
        """The position of the next timer of the author's own code."""
        number = self._timers
        self._timers = number + 1
        return f"{self.id}:t{number}"

    def settle(self, position: str, parents: Parents) -> None:
        """The node at `position` is over and the code of this lane knows it."""
        self.touched = True
        if self.frontier == parents:  # the usual case: a sequence
            self.frontier = (position,)
            return
        self.frontier = (*(p for p in self.frontier if p not in parents and p != position), position)
        self._fold()

    def end(self) -> None:
        """The lane is over: what it reached takes the place of what it started from, in the lane it came from."""
        parent = self.parent
        if parent is None or not self.touched:
            return
        parent.touched = True
        start = self.start
        parent.frontier = (
            *(p for p in parent.frontier if p not in start and p not in self.frontier),
            *self.frontier,
        )
        parent._fold()  # noqa: SLF001

    def _fold(self) -> None:
        if len(self.frontier) > FRONTIER_MAX:
            self.frontier = (self.join(self.frontier),)

    def join(self, parents: Parents) -> str:
        """Make a join node of this lane that stands for `parents`."""
        position = f"{self.id}:j{self._joins}"
        self._joins += 1
        self._on_join(position, parents)
        return position


def _number(digest: bytes) -> int:
    return int.from_bytes(digest, "big") >> 3


# The lane of the running callback. Inside a tool it is TOOL, so that a ctx call there can say what is wrong.
LANE: Final[ContextVar[Lane | None]] = ContextVar("perdure.lane", default=None)
