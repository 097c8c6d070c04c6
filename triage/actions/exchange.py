"""The unit's one file, from the old bytes to the new and back: each deed looks first at what is there.

In: the record of an action, whose digests say what was and what shall be. Out: the file on the disk, the old bytes in
the ledger. Called by `carry`, again after a kill: doing a deed twice does it once. It must not touch what is neither
the old file nor the new one, nor ask the manager for anything.
"""

from __future__ import annotations

from triage.actionmodel import Unit
from triage.actions.ledger import Ledger, Record
from triage.actions.place import Place
from triage.model import Refused
from triage.units.dropin import may_read, mode
from triage.units.unitfile import digest


class Exchange:
    """By the hands of one `Place`."""

    def __init__(self, place: Place, ledger: Ledger) -> None:
        self._place = place
        self._ledger = ledger

    def digest(self, unit: str) -> str:
        """Of what is there now; '' where nothing is."""
        data = self._place.read(unit)
        return "" if data is None else digest(data.decode("utf-8", "surrogateescape"))

    def save(self, record: Record) -> None:
        """Keep the old bytes and their mode, before anything is touched."""
        unit = record.request.unit
        old = self._place.read(unit)
        if old is not None:
            self._ledger.save_old(record.request.action, old)
            record.keep(old_mode=f"{self._place.mode(unit):o}")

    def write(self, record: Record, text: str, files: Unit) -> None:
        """The new file, or none where `text` is empty. Raises Refused where somebody changed it meanwhile."""
        unit, now = record.request.unit, self.digest(record.request.unit)
        if now not in (record.request.result_digest, record.kept["old_digest"]):
            raise Refused(f"{self._place.path(unit)} was changed by hand while the action was under way")
        if text and now == record.request.result_digest:
            return  # written before the kill
        if text:
            self._place.make_folder(unit)
            self._place.write(unit, text.encode("utf-8", "surrogateescape"), mode(files), may_read(files))
        else:
            self._place.remove(unit, folder_too=record.kept["folder_is_ours"] == "1")

    def restore(self, record: Record) -> None:
        """The old file, or none where there was none. Raises Refused where somebody changed it meanwhile."""
        unit, now, old = record.request.unit, self.digest(record.request.unit), record.kept["old_digest"]
        if now == old:
            if not old:  # nothing was written yet, but the folder may have been made
                self._place.remove(unit, folder_too=record.kept["made_folder"] == "1")
            return
        if now != record.request.result_digest:
            raise Refused(f"{self._place.path(unit)} was changed by hand meanwhile: it is left as it is")
        if not old:
            self._place.remove(unit, folder_too=record.kept["made_folder"] == "1")
            return
        data = self._ledger.old(record.request.action)
        if data is None or digest(data.decode("utf-8", "surrogateescape")) != old:
            raise Refused("the saved bytes are gone")
        self._place.make_folder(unit)
        readers = tuple(filter(None, record.kept.get("readers", "").split(",")))
        self._place.write(unit, data, int(record.kept["old_mode"], 8), readers)
