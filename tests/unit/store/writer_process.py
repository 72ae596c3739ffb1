"""A process that writes a store, driven by test_processes.py: acquire, hold, append, race."""

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from perdure.errors import JournalError
from perdure.host.identity import here
from perdure.store import open_database
from perdure.store.journal import Journal, Terms
from tests.bed.stores import done, item, new_run


def say(text):
    print(text, flush=True)


async def acquire(journal, run_id, holder):
    say("ready")
    sys.stdin.readline()
    try:
        say(f"epoch {(await journal.acquire(run_id, holder, process=here())).epoch}")
    except JournalError as error:
        say(type(error).__name__)
    sys.stdin.readline()


async def hold(journal, run_id, holder, timeout_ms="90000"):
    lease = await journal.create(new_run(run_id), Terms(holder, int(timeout_ms), here()))
    say(f"epoch {lease.epoch}")
    sys.stdin.readline()
    try:
        await journal.append(lease, item(done(9), run_id))
        say("appended")
    except JournalError as error:
        say(type(error).__name__)
    sys.stdin.readline()


async def append(journal, run_id):
    lease = await journal.create(new_run(run_id), Terms(f"holder-{here().pid}-{here().start_time}", process=here()))
    while True:
        seq = (await journal.row(run_id)).last_seq
        say((await journal.append(lease, item(done(seq + 1), run_id, expect_seq=seq))).stored.seq)


async def race(journal, run_id, seconds):
    lease = await journal.create(new_run(run_id), Terms("racer"))
    say("ready")
    sys.stdin.readline()
    count, longest, end = 0, 0.0, time.monotonic() + float(seconds)
    while (start := time.monotonic()) < end:
        await journal.append(lease, item(done(count), run_id))
        count, longest = count + 1, max(longest, time.monotonic() - start)
    say(f"{count} {longest}")


async def main(verb, path, *args):
    database = open_database(path)
    try:
        await {"acquire": acquire, "hold": hold, "append": append, "race": race}[verb](Journal(database), *args)
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
