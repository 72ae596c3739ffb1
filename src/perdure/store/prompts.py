"""Questions to people, and the home of their answers (spec/control.md 5).

    reserve -> reserved -open-> open -answer, by any process-> answered
                  |               |
                  +---release-----+-> released -reserve-> reserved, generation + 1

Every move compares-and-sets on (prompt id, generation, state), so a late answer cannot settle a newer question and a
second release changes nothing. `runs.prompts_open` counts open questions, of a run and of those below it, in the same
transaction. Plain functions of a transaction; those of the owner take its lease.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct, json

from perdure import ids
from perdure.store import leases
from perdure.store.database import Row, Tx
from perdure.store.leases import Lease
from perdure.store.runs import place_of
from perdure.values import dump, load

State = Literal["reserved", "open", "answered", "released"]


class Prompt(Struct, frozen=True):
    """A question. `question` and `answer` are plain JSON, None until there is one; times are store milliseconds."""

    prompt_id: str
    prompt_key: str
    run_id: str
    position: str
    generation: int
    state: State
    question: Any
    answer: Any
    actor: str
    reason: str
    asked_at: int | None
    answered_at: int | None


def reserve(tx: Tx, lease: Lease, run_id: str, position: str, prompt_key: str) -> Prompt:
    """The row of a question of a run, to be made durable before the question is shown.

    Asked again it is the same row: still open, or answered already; after a release, the next generation.
    """
    leases.check(tx, lease)
    place = place_of(tx, run_id)
    prompt_id = ids.node_id(run_id, prompt_key)
    tx.run("prompts.reserve", prompt_id=prompt_id, prompt_key=prompt_key, run=place.run, position=position)
    stored = get(tx, prompt_id)
    assert stored is not None
    return stored


def open_prompt(tx: Tx, lease: Lease, prompt_id: str, generation: int, question: Any) -> bool:
    """Show a reserved question; False if it is not this generation's any more, or shown already."""
    leases.check(tx, lease)
    text = dump(question, what="question")
    opened = tx.run("prompts.open", prompt_id=prompt_id, generation=generation, question=text, now=tx.now_ms)
    return _counted(tx, prompt_id, opened, +1)


def answer(
    tx: Tx, prompt_id: str, generation: int, value: Any, actor: str
) -> Literal["ok", "same", "answered", "stale", "not_found"]:
    """Answer an open question, from any process.

    `same`: it has this answer already. `answered`: it has another one. `stale`: it is not open in this generation.
    """
    text = dump(value, what="answer")
    done = tx.run("prompts.answer", prompt_id=prompt_id, generation=generation, answer=text, actor=actor, now=tx.now_ms)
    if _counted(tx, prompt_id, done, -1):
        return "ok"
    row = tx.one("prompts.one", prompt_id=prompt_id)
    if row is None:
        return "not_found"
    if row[5] != "answered":
        return "stale"
    return "same" if row[7] == text else "answered"


def release(tx: Tx, lease: Lease, prompt_id: str, generation: int, reason: str = "") -> bool:
    """Withdraw a question that nobody answered; False if it is not this generation's any more."""
    leases.check(tx, lease)
    before = tx.one("prompts.one", prompt_id=prompt_id)
    done = tx.run("prompts.release", prompt_id=prompt_id, generation=generation, reason=reason)
    if done and before is not None and before[5] == "open":
        _counted(tx, prompt_id, done, -1)
    return bool(done)


def get(tx: Tx, prompt_id: str) -> Prompt | None:
    """One question."""
    row = tx.one("prompts.one", prompt_id=prompt_id)
    return None if row is None else _to_prompt(row)


def get_many(tx: Tx, prompt_ids: Iterable[str]) -> list[Prompt]:
    """Those of these questions that exist: what an owner that waits for answers polls."""
    return [_to_prompt(row) for row in tx.all("prompts.many", prompt_ids=json.encode(list(prompt_ids)).decode())]


def open_prompts(tx: Tx, run_id: str) -> list[Prompt]:
    """Every open question of a run's whole tree, oldest first."""
    place = place_of(tx, run_id)
    return [_to_prompt(row) for row in tx.all("prompts.open_in_tree", root=place.root)]


def _counted(tx: Tx, prompt_id: str, moved: int, change: int) -> bool:
    if moved:
        row = tx.one("prompts.one", prompt_id=prompt_id)
        assert row is not None
        tx.run("runs.add_prompts", run=row[12], change=change, now=tx.now_ms)
    return bool(moved)


def _to_prompt(row: Row) -> Prompt:
    columns: list[Any] = list(row[:12])
    columns[6:8] = [None if text is None else load(text) for text in columns[6:8]]
    return Prompt(*columns)
