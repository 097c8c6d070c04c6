"""The engine: the only place that opens a transaction, and the only one that knows which database it talks to.

`read()` and `write()` give a connection inside one transaction; a write takes SQLite's lock at once (BEGIN IMMEDIATE):
with a plain BEGIN a transaction that reads before it writes fails at its first write whenever another one was faster.
Called by `Store` only. Faults of the database become `Unreachable`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from triage.model import InputError, Unreachable
from triage.schema import HEAD, REVISIONS
from triage.shipped import shipped

BUSY_MS = 60_000  # SQLite lets writers in by chance, not in turn: on a busy machine one may wait long


class Database:
    """One database, by its SQLAlchemy URL. Safe to share between threads; fork before, not after, the first use."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        try:
            self._url = make_url(url)
        except ArgumentError as error:
            raise InputError(f"the setting 'database' is no SQLAlchemy address: {error}") from error
        if self._url.get_backend_name() != "sqlite" or not self._url.database:
            raise InputError(
                "the setting 'database' must name a SQLite file, such as sqlite:////var/lib/triage/triage.db"
            )
        self.path = Path(self._url.database)
        self._read_only = read_only
        self._engine = create_engine(self._url, connect_args={"timeout": BUSY_MS / 1000})
        self._writer = self._engine.execution_options(begin="BEGIN IMMEDIATE")
        event.listen(self._engine, "connect", self._connected)
        event.listen(self._engine, "begin", _begin)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view; never waits for a writer."""
        with self._told(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """All that happens in the block is kept, or nothing of it."""
        with self._told(), self._writer.begin() as connection:
            yield connection

    def revision(self) -> str | None:
        """The migration the database stands at; None where there is nothing yet."""
        if not self.path.exists():
            return None
        with self.read() as connection:
            return _revision(connection)

    def ready(self) -> None:
        """Raises unless the tables are those of this code."""
        revision = self.revision()
        if revision is None:
            raise Unreachable(
                f"there is no triage database at {self.path}: start the services or run `triage db upgrade`"
            )
        _known(revision, self.path)
        if revision != HEAD:
            raise Unreachable(f"the database {self.path} is of an older triage: run `triage db upgrade`")

    def upgrade(self) -> str | None:
        """Bring the tables to this code's; gives the revision before. Two that do so at once wait for each other."""
        if (revision := self.revision()) == HEAD:
            return revision
        self._make_file()
        with self.write() as connection:
            before = _revision(connection)
            if before is not None:
                _known(before, self.path)
            if before != HEAD:
                _migrate(connection)
        return before

    def backup(self, target: Path) -> None:
        """A consistent copy while others write, by SQLite's own backup; `target` must not exist."""
        if target.exists():
            raise InputError(f"{target} exists: name a new file for the backup")
        self.ready()
        part = target.with_name(target.name + ".part")
        try:
            part.unlink(missing_ok=True)
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(part)) as copy:
                source.backup(copy, pages=1000)
            part.rename(target)
        except (OSError, sqlite3.Error) as error:
            part.unlink(missing_ok=True)
            raise Unreachable(
                f"the backup failed: {error}; name a file in a folder that this user may write"
            ) from error

    def faults(self) -> tuple[str, ...]:
        """What SQLite's own check of the file finds; empty when it is sound."""
        with self.read() as connection:
            found = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
            found += [f"foreign key: {tuple(row)}" for row in connection.execute(text("PRAGMA foreign_key_check"))]
        return tuple(fault for fault in found if fault != "ok")

    def size(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            why = str(error.orig)
            if "readonly" in why or "unable to open" in why:
                why += " (is it yours? try it as the user of the services: sudo -u triage triage ...)"
            raise Unreachable(f"the database {self.path} cannot be used: {why}") from error

    def _make_file(self) -> None:
        """Made before SQLite does, since its own would be readable by all; -wal and -shm take their mode from it."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise Unreachable(f"the database {self.path} cannot be made: {error.strerror}") from error

    def _connected(self, connection: Any, entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # Python's own BEGIN comes too late and is never IMMEDIATE: _begin does it
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = NORMAL")
        if self._read_only:
            cursor.execute("PRAGMA query_only = ON")
        else:
            _write_ahead(cursor)
        cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _write_ahead(cursor: Any) -> None:
    """The switch needs the file for itself and does not wait for it, unlike all else: so wait here."""
    end = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.05)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _known(revision: str, path: Path) -> None:
    if revision not in REVISIONS:
        raise Unreachable(
            f"the database {path} is of a newer triage (revision {revision}, this one knows up to {HEAD}): "
            "install that version again, or restore the backup made before its upgrade"
        )


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
