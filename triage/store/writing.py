"""One recording transaction: the rows it touches, each read once, changed in memory and written once at its end.

A storm brings hundreds of crashes of one incident in one batch; its row, its timeline and the counters are then written
together. Made by `Store.record`, used by `record`. What it holds is gone when the transaction fails, as it should be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from triage.model import Finding
from triage.schema import incident as incidents
from triage.schema import timeline
from triage.store.codec import plain
from triage.store.incident import SYSTEM, get
from triage.store.metrics import bump

Draft = SimpleNamespace  # a row, by the names of its columns

# Built once: to build a statement costs more than to run it.
_FIND = select(incidents).where(
    incidents.c.host == bindparam("host"),
    incidents.c.unit == bindparam("unit"),
    incidents.c.signature == bindparam("signature"),
)
_INSERT = insert(incidents).returning(incidents.c.id)
_UPDATE = update(incidents).where(incidents.c.id == bindparam("row"))
_NOTE = insert(timeline)


class Writing:
    """`now` is the caller's clock; `window` how long, in microseconds, an action is watched."""

    def __init__(
        self,
        tx: Connection,
        *,
        host: str,
        base_url: str,
        window: int,
        document: Callable[[Finding], Mapping[str, Any]],
        now: int,
    ) -> None:
        self.tx = tx
        self.host = host
        self.base_url = base_url
        self.window = window
        self.document = document
        self.now = now
        self._incidents: dict[int, Draft] = {}
        self._as_read: dict[int, dict[str, Any]] = {}
        self._notes: list[dict[str, Any]] = []
        self._counts: Counter[tuple[str, str, tuple[tuple[str, str], ...]]] = Counter()

    def incident(self, number: int) -> Draft:
        """The row, to be changed in place."""
        if number not in self._incidents:
            self._keep(dict(get(self.tx, number)._mapping))
        return self._incidents[number]

    def find(self, host: str, unit: str, signature: str) -> Draft | None:
        """The incident of that key; one that was merged leads to where it went."""
        for draft in self._incidents.values():
            if (draft.host, draft.unit, draft.signature) == (host, unit, signature):
                return self.follow(draft)
        row = self.tx.execute(_FIND, {"host": host, "unit": unit, "signature": signature}).first()
        if row is None:
            return None
        return self.follow(self._keep(dict(row._mapping)))

    def follow(self, draft: Draft) -> Draft:
        while draft.merged_into is not None:
            draft = self.incident(draft.merged_into)
        return draft

    def make(self, values: dict[str, Any]) -> Draft:
        """A new incident, with its number."""
        number = self.tx.execute(_INSERT, values).scalar_one()
        empty = dict.fromkeys(("noticed_at", "mute_until", "merged_into", "sglang_version"))
        return self._keep(empty | values | {"id": number})

    def note(self, incident: Draft, kind: str, text: str, action: str = "") -> None:
        """One line of its timeline."""
        place = {"host": incident.host, "incident": incident.id, "time": self.now}
        self._notes.append(place | {"kind": kind, "text": plain(text)[:2000], "who": SYSTEM, "action": action})

    def count(self, host: str, name: str, labels: Mapping[str, str]) -> None:
        self._counts[host, name, tuple(sorted(labels.items()))] += 1

    def flush(self) -> None:
        """Write what was changed, and forget it: the next use reads again."""
        for number, draft in self._incidents.items():
            if vars(draft) != self._as_read[number]:
                values = {name: value for name, value in vars(draft).items() if name != "id"}
                self.tx.execute(_UPDATE, values | {"row": number})
        if self._notes:
            self.tx.execute(_NOTE, self._notes)
        for (host, name, labels), by in self._counts.items():
            bump(self.tx, host, name, dict(labels), by)
        for held in (self._incidents, self._as_read, self._notes, self._counts):
            held.clear()

    def _keep(self, row: dict[str, Any]) -> Draft:
        self._incidents[row["id"]] = Draft(**row)
        self._as_read[row["id"]] = row
        return self._incidents[row["id"]]
