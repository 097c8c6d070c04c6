"""A folder of journals through the whole pipeline into an SQLite file: what `watch` does, but to the end only."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from triage.collector import collect_seldom


def write_store(path: Path) -> Path:
    """An empty database with its tables."""
    from triage.store import Store

    store = Store(f"sqlite:///{path}")
    store.upgrade()
    store.close()
    return path


def main(folder: str, database: str) -> None:
    collect_seldom()  # before the rest is imported, as the command line does
    from triage.diagnose import diagnose
    from triage.engine.assemble import Assembler
    from triage.engine.gate import Gate
    from triage.pipeline import run
    from triage.rulebase.rulebook import Rulebook
    from triage.shipped import rule_folders
    from triage.sources import open_source
    from triage.store import Store

    store = Store(f"sqlite:///{database}")
    store.ready()
    book, assembler = Rulebook.load(rule_folders()), Assembler()
    source = open_source(f"journal:{folder}", gate=Gate(assembler))
    count = 0

    def counted(batch) -> bool:
        nonlocal count
        count += batch.size
        return True

    run(
        source,
        assembler,
        lambda crash: diagnose(crash, book),
        store,
        clock=lambda: time.time_ns() // 1000,
        each_round=counted,
    )
    print(count, "lines")


if __name__ == "__main__":
    main(*sys.argv[1:])
