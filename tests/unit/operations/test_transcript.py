"""The transcript: whole messages, few writes, never the stage's trouble."""

from __future__ import annotations

import asyncio

from perdure.agents.session import AgentEvent
from perdure.errors import StorageUnavailable
from perdure.operations.transcript import ENTRY_CHARS_MAX, READY_MAX, Transcript
from tests.bed.stages import StageLoop


class FakeTx:
    now_ms = 5

    def __init__(self, rows):
        self.rows = rows

    def one(self, name, **params):
        return (1, 1, "run")

    def run_rows(self, name, rows):
        self.rows.append([row[3:5] for row in rows])


class FakeStore:
    """Keeps each write as a list of (kind, entry text)."""

    def __init__(self, broken=False):
        self.writes, self.broken = [], broken

    async def write(self, unit):
        if self.broken:
            raise StorageUnavailable("The disk is full.")
        unit(FakeTx(self.writes))


def play(scenario, store):
    loop = StageLoop()
    try:
        return loop.run_until_complete(scenario(Transcript(store, "run", "/:0", 0)))
    finally:
        loop.close()


def text(kind, said):
    return AgentEvent(kind, said)


def test_pieces_of_a_message_become_one_entry():
    store = FakeStore()

    async def scenario(said):
        said.prompted("Go.")
        for piece in ("Hel", "lo"):
            said.add(text("text", piece))
        said.add(text("thought", "hm"))
        said.add(AgentEvent("tool_call", "write", {"path": "a"}))
        said.add(text("text", "Done."))
        await said.flush()

    play(scenario, store)
    assert [row for write in store.writes for row in write] == [
        ("prompt", '{"text":"Go."}'),
        ("text", '{"text":"Hello"}'),
        ("thought", '{"text":"hm"}'),
        ("tool_call", '{"data":{"path":"a"},"text":"write"}'),
        ("text", '{"text":"Done."}'),
    ]


def test_at_most_four_writes_a_second():
    store = FakeStore()

    async def scenario(said):
        for number in range(1000):
            said.add(text("note", str(number)))
            await asyncio.sleep(0.01)

    play(scenario, store)
    assert 30 <= len(store.writes) <= 41


def test_a_flush_waits_for_everything_and_later_entries_follow():
    store = FakeStore()

    async def scenario(said):
        said.add(text("text", "a"))
        await said.flush()
        assert len(store.writes) == 1
        said.add(text("note", "b"))
        await said.flush()
        await said.flush()

    play(scenario, store)
    assert [len(write) for write in store.writes] == [1, 1]


def test_a_store_that_refuses_costs_entries_only(caplog):
    async def scenario(said):
        said.add(text("note", "a"))
        await said.flush()

    play(scenario, FakeStore(broken=True))
    assert "disk is full" in caplog.text


def test_entries_and_their_number_are_bounded():
    store = FakeStore()

    async def scenario(said):
        said.add(text("note", "x" * (ENTRY_CHARS_MAX + 5)))
        for _ in range(READY_MAX + 4):
            said.add(text("note", "y"))
        await said.flush()

    play(scenario, store)
    [write] = store.writes
    assert write[0][1].endswith('[... cut]"}')
    assert write[-1][1] == '{"text":"5 entries are left out here."}'


def test_secrets_are_redacted():
    store = FakeStore()

    async def scenario(said):
        said.add(text("text", "the key is sk-abcdefghijklmnopqrstuvw"))
        await said.flush()

    play(scenario, store)
    assert "sk-abc" not in store.writes[0][0][1]
