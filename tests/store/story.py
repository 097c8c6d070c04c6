"""A journal's worth of findings, recorded in a process that may be killed: `python -m tests.store.story FOLDER`.

As the pipeline does it: the cursor goes along only between crashes, and reading begins at the cursor that was stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.store.made import T0, amended, closed, made_finding, made_store, opened, record
from triage.model import FindingEvent

CRASHES = 300


def story(after: str | None = None) -> Iterator[tuple[tuple[FindingEvent, ...], str | None]]:
    """Batches of events with the cursor that may be saved with them; a crash takes three batches."""
    for number in range(int(after or 0) + 1, CRASHES + 1):
        finding = made_finding(number, signature="one" if number % 3 else "two")
        yield (opened(finding),), None
        yield (amended(finding),), None
        yield (closed(finding),), str(number)


def main() -> None:
    store = made_store(Path(sys.argv[1]))
    print("reading", flush=True)
    for events, cursor in story(store.resume("journal:")[0]):
        record(store, *events, now=T0, cursor=cursor)
    store.close()


if __name__ == "__main__":
    main()
