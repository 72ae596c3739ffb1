"""Opening a database file: what is refused, and that nothing is written then."""

import asyncio
import os
import stat
from collections import defaultdict
from pathlib import Path

import apsw
import pytest

from perdure.errors import ConfigInvalid, FormatTooNew, NotAvailable, PerdureError, StorageUnavailable
from perdure.store import open_database, sql, sqlite
from perdure.store.journal import Journal
from tests.bed.stores import ROOT, done, item, owned


def close(database):
    database.close_now()


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_new_database_is_private_to_its_user(tmp_path):
    folder = tmp_path / "data" / "perdure"
    database = open_database(folder / "perdure.db")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert {"perdure.db", "perdure.db-gate", "perdure.db-turn", "perdure.db-wal"} <= {p.name for p in folder.iterdir()}
    close(database)


def test_the_settings_that_durability_rests_on_are_on(tmp_path):
    database = open_database(tmp_path / "perdure.db")
    connection = database._writer._connection
    assert [connection.pragma(name) for name in ("journal_mode", "synchronous", "foreign_keys")] == ["wal", 2, 1]
    close(database)


def test_what_was_written_is_there_after_reopening(tmp_path):
    async def scenario(count):
        database = open_database(tmp_path / "perdure.db")
        journal = Journal(database)
        lease = await owned(journal)
        await journal.append(lease, item(done(count)))
        stored = await journal.load(ROOT)
        await database.close()
        return len(stored)

    assert [asyncio.run(scenario(n)) for n in range(2)] == [1, 2]


def test_a_missing_database_is_not_made_unasked(tmp_path):
    with pytest.raises(ConfigInvalid, match="There is no database"):
        open_database(tmp_path / "perdure.db", create=False)
    assert files(tmp_path) == {}


def test_a_newer_database_is_refused_and_left_alone(tmp_path):
    database = open_database(tmp_path / "perdure.db")
    asyncio.run(database.write(lambda tx: tx.run("meta.set_version", version=sqlite.VERSION + 1)))
    close(database)
    before = files(tmp_path)
    with pytest.raises(FormatTooNew) as refused:
        open_database(tmp_path / "perdure.db")
    assert refused.value.details == {"found": sqlite.VERSION + 1, "known": sqlite.VERSION}
    assert files(tmp_path) == before


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0 but then not" * 100])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "perdure.db"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="not a perdure database"):
        open_database(path)
    assert files(tmp_path) == {"perdure.db": content}


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "perdure.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = files(tmp_path)
    with pytest.raises(ConfigInvalid, match="another program"):
        open_database(path)
    assert files(tmp_path) == before


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path):
    with pytest.raises(ConfigInvalid, match="is not a file"):
        open_database(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnavailable, match="cannot be made"):
        open_database(tmp_path / "file" / "folder" / "perdure.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageUnavailable, match="cannot be written"):
        open_database(tmp_path / "perdure.db")


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "network_file_system", lambda folder: "NFS")
    with pytest.raises(ConfigInvalid, match="NFS"):
        open_database(tmp_path / "perdure.db")
    assert files(tmp_path) == {}


def test_local_file_systems_are_not_taken_for_network_ones(tmp_path):
    assert sqlite.network_file_system(tmp_path) is None
    assert sqlite.network_file_system(Path("/proc")) is None


def test_a_server_url_is_not_available_yet():
    with pytest.raises(NotAvailable):
        open_database("postgresql://user:secret@host/db")


def test_opening_at_once_from_many_threads_makes_one_schema(tmp_path):
    async def scenario():
        opened = await asyncio.gather(*(asyncio.to_thread(open_database, tmp_path / "perdure.db") for _ in range(8)))
        versions = [await database.read(lambda tx: tx.one("meta.version")[0]) for database in opened]
        await asyncio.gather(*(database.close() for database in opened))
        return versions

    assert asyncio.run(scenario()) == [sqlite.VERSION] * 8


def test_a_failed_opening_leaves_no_lock_behind(tmp_path):
    path = tmp_path / "perdure.db"
    path.write_bytes(b"junk")
    for _ in range(3):
        with pytest.raises(PerdureError):
            open_database(path)
    path.unlink()
    close(open_database(path))


# --- queries


@pytest.fixture
def connection():
    connection = apsw.Connection(":memory:")
    connection.execute(sql.schema())
    yield connection
    connection.close()


def plan(connection, name, count=1):
    text = sql.query(name)
    if "(?, ?" in text:
        text = sql.repeated(name, count)
    params = defaultdict(lambda: None) if ":" in text else [None] * (6 if "?6" in text else text.count("?"))
    return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, params)]


HOT = [
    "events.heads", "events.insert", "events.by_key", "events.page", "events.all", "events.chain", "leases.one",
    "leases.renew", "leases.take", "leases.release", "runs.advance", "runs.advance_one", "runs.set_status",
    "runs.place", "runs.places", "runs.find", "runs.tree", "runs.one", "runs.add_spend", "runs.add_prompts",
    "requests.pending", "requests.one",
    "requests.settle", "prompts.one", "prompts.many", "prompts.answer", "prompts.open_in_tree",
    "transcripts.read", "transcripts.last", "worktrees.one", "worktrees.of_tree",
]  # fmt: skip


@pytest.mark.parametrize("name", HOT)
def test_a_hot_query_searches_and_never_scans_a_table(connection, name):
    tables = {row[0] for row in connection.execute(sql.query("meta.tables"))} | {"run", "root", "parent"}
    for step in plan(connection, name, 4):
        words = step.split()
        assert not (words[0] == "SCAN" and words[1] in tables), step


@pytest.mark.parametrize("name", sql.names())
def test_every_query_is_valid(connection, name):
    if name.startswith("meta.") and name not in {"meta.now", "meta.tables", "meta.version", "meta.set_version"}:
        return  # words of transactions and settings have no plan
    assert isinstance(plan(connection, name), list)


def test_a_query_nobody_wrote_is_a_key_error():
    with pytest.raises(KeyError):
        sql.query("meta.nothing")
