"""The database: one writer at a time, nothing half, private files, no newer one touched."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from tests.store.made import SECOND, T0, closed, made_finding, made_result, made_store, opened, record
from triage.model import InputError, Unreachable
from triage.schema import HEAD, REVISIONS, metadata
from triage.shipped import shipped
from triage.store import Store
from triage.store.database import Database


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'state' / 'triage.db'}"


def test_the_migrations_build_what_the_code_expects(store: Store, tmp_path: Path) -> None:
    engine = create_engine(url(tmp_path))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()
    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)


def test_numbers_of_incidents_are_never_given_twice(store: Store, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state/triage.db") as raw:
        tables = [row[0] for row in raw.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")]
    raw.close()
    assert sum("AUTOINCREMENT" in sql for sql in tables) == 3


def test_files_are_the_owners_alone(store: Store, tmp_path: Path) -> None:
    record(store, closed(made_finding()))
    folder = tmp_path / "state"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_it_is_write_ahead_and_waits_for_others(tmp_path: Path) -> None:
    made_store(tmp_path).close()
    database = Database(url(tmp_path))
    with database.read() as tx:
        answers = [
            tx.execute(text(f"PRAGMA {what}")).scalar() for what in ("journal_mode", "synchronous", "foreign_keys")
        ]
        assert answers == ["wal", 1, 1]
        assert int(tx.execute(text("PRAGMA busy_timeout")).scalar() or 0) >= 5000
    database.close()


def test_many_writers_at_once_all_get_through(tmp_path: Path) -> None:
    made_store(tmp_path).close()
    faults: list[BaseException] = []

    def write(thread: int) -> None:
        store = made_store(tmp_path)
        try:
            for number in range(10):
                record(store, closed(made_finding(thread * 100 + number)))
                store.import_result(made_result(f"a{thread}-{number}"), T0)
        except BaseException as fault:
            faults.append(fault)
        finally:
            store.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    store = made_store(tmp_path)
    assert store.incident(1).incident.crashes == 60
    assert len(store.workarounds()) == 60
    store.close()


def test_a_write_takes_the_lock_before_it_reads(tmp_path: Path) -> None:
    """Else two that read and then write would both have read the old, and one of them would fail."""
    made_store(tmp_path).close()
    database = Database(url(tmp_path))
    other = sqlite3.connect(tmp_path / "state/triage.db", timeout=0, isolation_level=None)
    with database.write():
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        with database.read() as tx:
            tx.execute(text("SELECT * FROM incident")).all()
    other.execute("BEGIN IMMEDIATE")
    other.close()
    database.close()


def test_upgrades_at_once_wait_for_each_other(tmp_path: Path) -> None:
    before: list[str | None] = []
    faults: list[BaseException] = []

    def upgrade() -> None:
        database = Database(url(tmp_path))
        try:
            before.append(database.upgrade())
        except BaseException as fault:
            faults.append(fault)
        finally:
            database.close()

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert sorted(before, key=str) == [HEAD, HEAD, HEAD, None]


def test_a_newer_database_is_refused_and_left_alone(store: Store, tmp_path: Path) -> None:
    store.close()
    file = tmp_path / "state/triage.db"
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    for ask in (store.ready, store.upgrade):
        with pytest.raises(Unreachable, match=r"newer triage.*9999"):
            ask()


def test_a_missing_database_says_what_to_do_and_is_not_made(tmp_path: Path) -> None:
    store = Store(url(tmp_path))
    with pytest.raises(Unreachable, match="triage db upgrade"):
        store.ready()
    assert not (tmp_path / "state").exists()


def test_a_file_that_is_no_database_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/triage.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(Unreachable, match="not a database"):
        Store(url(tmp_path)).ready()


@pytest.mark.parametrize("address", ["nonsense", "sqlite://", "mysql://db/triage"])
def test_an_address_that_cannot_serve_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="database"):
        Store(address)


def test_read_only_reads_and_never_writes(store: Store, tmp_path: Path) -> None:
    record(store, closed(made_finding()))
    reader = Store(url(tmp_path), read_only=True)
    assert reader.incident(1).incident.crashes == 1
    with pytest.raises(Unreachable, match="readonly"):
        reader.resolve(1, "ada", T0)
    reader.close()


def test_a_backup_is_whole_private_and_never_overwrites(store: Store, tmp_path: Path) -> None:
    record(store, closed(made_finding()))
    target = tmp_path / "backup.db"
    store.backup(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = Store(f"sqlite:///{target}")
    copy.ready()
    assert copy.incident(1).incident.crashes == 1
    assert copy.faults() == ()
    copy.close()
    with pytest.raises(InputError, match="exists"):
        store.backup(target)


def test_pruning_keeps_what_still_matters(store: Store) -> None:
    day = 86_400 * SECOND
    for number in range(1, 4):
        record(store, closed(made_finding(number, signature="open")), now=T0)
    record(store, closed(made_finding(4, signature="over")), now=T0)
    record(store, closed(made_finding(5, signature="acted")), now=T0)
    store.resolve(2, "ada", T0)
    store.resolve(3, "ada", T0)
    store.import_result(made_result(incident=3), T0)
    store.fan_out({"ops": frozenset(("incident.opened",))}, T0)
    waiting = store.health().outbox.waiting
    pruned = store.prune(T0 + 30 * day)
    assert {row.number for row in store.incidents(alarming=False).rows} == {1, 3}
    assert [crash.id for crash in store.crashes(1).rows] == ["id3"], "the newest crash of an open incident stays"
    assert pruned.incidents == 1
    assert store.action("a1").incident == 3
    assert store.health().outbox.waiting == waiting, "what was not delivered yet is kept"
    assert store.faults() == ()
    assert store.prune(T0 + 30 * day).crashes == 0


def test_pruning_lets_go_what_was_delivered(store: Store) -> None:
    record(store, closed(made_finding()), now=T0)
    store.fan_out({"ops": frozenset(("incident.opened",))}, T0)
    (due,) = store.due("ops", T0)
    store.delivered(due.id, "ops", "200", T0)
    assert store.prune(T0 - SECOND).events == 0
    assert store.prune(T0 + SECOND).events == 1


def test_a_crash_whose_end_was_lost_is_closed_and_its_evidence_called_cut(store: Store) -> None:
    hour = 3600 * SECOND
    record(store, opened(made_finding(1, signature="lost")), closed(made_finding(2)), now=T0)
    record(store, opened(made_finding(3, signature="new")), now=T0 + hour)
    assert store.close_left_open(T0 + hour) == 0
    assert store.close_left_open(T0 + hour + 1) == 1
    rows = {row.id: row for row in store.crashes().rows}
    assert (rows["id1"].closed_at, rows["id1"].grade) == (T0 + hour + 1, "cut")
    assert rows["id1"].document["evidence"]["grade"] == "cut"
    assert rows["id3"].closed_at is None
    record(store, closed(made_finding(1, signature="lost")), now=T0 + 2 * hour)  # read after all
    [late] = [row for row in store.crashes().rows if row.id == "id1"]
    assert (late.grade, late.outcome) == ("complete", "fatal")
