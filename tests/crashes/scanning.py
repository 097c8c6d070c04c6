"""Bytes -> the document that `triage scan --json` prints, without the process around it."""

from __future__ import annotations

import io
from typing import Any

from triage.diagnose import NoRules, diagnose
from triage.document import finding_document
from triage.engine.assemble import Assembler
from triage.model import Change, Crash, CrashEvent
from triage.sources.stream import StreamSource

ALARMING = ("fatal", "degraded")


def events_of(data: bytes, units: tuple[str, ...] = ("sglang*.service",), tz: str = "UTC") -> list[CrashEvent]:
    source = StreamSource("test", io.BytesIO(data), units=units, tz=tz)
    assembler = Assembler()
    events = [event for batch in source.batches() for line in batch.lines for event in assembler.feed(line)]
    return events + assembler.finish()


def crashes_of(data: bytes, **options: Any) -> list[Crash]:
    """Each as it was known last; a correction speaks for a crash that was closed."""
    closed: dict[tuple[object, ...], Crash] = {}
    for event in events_of(data, **options):
        if event.change is Change.CORRECTED:
            assert (event.crash.owner, *event.crash.key) in closed
        if event.change in (Change.CLOSED, Change.CORRECTED):
            closed[event.crash.owner, *event.crash.key] = event.crash
    return list(closed.values())


def documents_of(data: bytes, **options: Any) -> list[dict[str, Any]]:
    return [finding_document(diagnose(crash, NoRules())) for crash in crashes_of(data, **options)]
