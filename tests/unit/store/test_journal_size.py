"""What a step costs on disk (DESIGN 10)."""

import asyncio

from perdure import events as ev
from perdure.store import open_database
from perdure.store.journal import Journal
from tests.bed.stores import done, item, owned, status

STEPS = 20_000
BATCH = 256


def step(number):
    position = f"/:{number}"
    start = ev.NodeStarted(
        position=position, kind="tool", name="fetch", digest="h" + "0" * 32, parents=(f"/:{number - 1}",)
    )
    return done(number, start=start)


def test_a_quick_step_takes_at_most_three_hundred_bytes_beside_its_payload(tmp_path):
    path = tmp_path / "perdure.db"

    async def scenario():
        database = open_database(path)
        journal = Journal(database)
        lease = await owned(journal)
        await journal.append(lease, item(status("running")))
        for first in range(0, STEPS, BATCH):
            await journal.append_many(lease, [item(step(n)) for n in range(first, min(first + BATCH, STEPS))])
        await database.close()
        return lease.root

    assert asyncio.run(scenario()) == 1
    payload = sum(len(ev.encode(step(n))) for n in range(STEPS))
    per_step = path.stat().st_size / STEPS
    assert per_step - payload / STEPS <= 300, (per_step, payload / STEPS)
    assert per_step <= 500
