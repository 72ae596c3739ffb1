"""Appending together and one by one have the same outcomes (spec/journal.md 2.4)."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import PerdureError
from perdure.store import open_database
from perdure.store.append import Exists, Rejected
from perdure.store.journal import Item, Journal
from tests.bed.stores import done, owned

RUNS = ("run-a", "run-b")

call = st.tuples(
    st.sampled_from(RUNS),
    st.booleans(),  # under a stale lease
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 6)), min_size=1, max_size=4),
)


def oracle(calls):
    """What a sequence of single appends to a dict would give."""
    keys, results = {name: [] for name in RUNS}, []
    for name, is_stale, items in calls:
        if is_stale:
            results.append("StaleLease")
            continue
        outcomes = []
        for number, expected in items:
            known = keys[name]
            if number in known:
                outcomes.append(("Exists", known.index(number) + 1))
            elif expected is not None and expected != len(known):
                outcomes.append(("Rejected", "sequence_conflict"))
            else:
                known.append(number)
                outcomes.append(("Appended", len(known)))
        results.append(outcomes)
    return results


def told(result):
    if isinstance(result, PerdureError):
        return type(result).__name__
    return [
        ("Rejected", outcome.error.code)
        if isinstance(outcome, Rejected)
        else ("Exists" if isinstance(outcome, Exists) else "Appended", outcome.stored.seq)
        for outcome in result
    ]


async def appended(folder, calls, at_once):
    database = open_database(folder / "perdure.db")
    journal = Journal(database)
    old = {name: await owned(journal, name) for name in RUNS}
    for lease in old.values():
        await journal.release(lease)
    new = {name: await journal.acquire(name, "two") for name in RUNS}
    pending = [
        journal.append_many(
            (old if is_stale else new)[name], [Item(name, done(number), expect_seq=seq) for number, seq in items]
        )
        for name, is_stale, items in calls
    ]
    try:
        if at_once:
            return await asyncio.gather(*pending, return_exceptions=True)
        return [(await asyncio.gather(one, return_exceptions=True))[0] for one in pending]
    finally:
        for name in RUNS:
            await journal.verify(name)
        await database.close()


@settings(max_examples=25)
@given(st.lists(call, max_size=6), st.booleans())
def test_a_batch_is_a_sequence_of_single_appends(calls, at_once):
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(appended(Path(folder), calls, at_once))
    assert [told(result) for result in results] == oracle(calls)
