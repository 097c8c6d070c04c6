"""`make bench`: triage beside its peers on the same files in the same run, as ratios; writes docs/performance.md.

All commands of a table run in turn, seven times, so that a noisy machine is noisy for all; a ratio is the median of the
rounds' ratios of CPU seconds (user and system, start included). A peer that is missing is said to be so.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.traffic import write_journal, write_text
from triage.rulebase.rulefile import load_rules
from triage.shipped import rule_folders

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
PYTHON = sys.executable
TRIAGE = (PYTHON, "-m", "triage")
FEWER = 100_000  # lines for peers that take minutes for more
RULES = 200


@dataclass
class Row:
    """One command beside the one it is measured against; `bound`: what was promised."""

    name: str
    command: tuple[str, ...] | None
    peer: str
    bound: str
    seconds: list[float] = field(default_factory=list)
    memory: int = 0


def main() -> None:
    options = argparse.ArgumentParser(prog="make bench")
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--dry", action="store_true", help="print the page, do not write it")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="triage-bench-") as folder:
        rows = commands(Path(folder), given.lines)
        for turn in range(given.rounds):
            for row in rows:
                measure(row)
            print(f"round {turn + 1} of {given.rounds}", file=sys.stderr)
    page = told(rows, given.lines, given.rounds)
    print(page)
    if not given.dry:
        PAGE.write_text(page)


def commands(folder: Path, lines: int) -> list[Row]:
    log = write_text(folder / "big.log", lines)
    few = write_text(folder / "few.log", FEWER)
    journal = write_journal(folder / "journal", lines)
    words = folder / "words"
    rules = load_rules(rule_folders()).rules[:RULES]
    anchors = {anchor for rule in rules for clause in rule.clauses for anchor in clause.anchors}
    words.write_text("".join(f"{anchor}\n" for anchor in sorted(anchors) if "\n" not in anchor))
    loop = built(folder)
    return [
        Row("python -c pass", (PYTHON, "-c", "pass"), "", ""),
        Row("triage --help", (*TRIAGE, "--help"), "python -c pass", "5"),
        Row("triage scan, nothing to read", (*TRIAGE, "scan", "/dev/null"), "python -c pass", "15"),
        Row(f"rg -F, {RULES} rules' words", found("rg", "-j1", "-F", "-f", str(words), str(log)), "", ""),
        Row("triage scan, text", (*TRIAGE, "scan", str(log)), "rg", "2.2"),
        Row("triage scan, 100,000 lines", (*TRIAGE, "scan", str(few)), "", ""),
        Row(
            "fail2ban-regex, 50 rules' words, 100,000 lines",
            banning(folder, few, sorted(anchors)),
            "triage scan, 100",
            ">= 50",
        ),
        Row("C loop over the journal", (loop, str(journal)) if loop and journal else None, "", ""),
        Row(
            "journal into SQLite",
            (PYTHON, "-m", "benchmarks.replay", str(journal), str(folder / "x.db")) if journal else None,
            "C loop",
            "2.0",
        ),
    ]


def found(name: str, *arguments: str) -> tuple[str, ...] | None:
    return (name, *arguments) if shutil.which(name) else None


def built(folder: Path) -> str | None:
    """The C loop, compiled on the spot."""
    flags = ["-O2", str(HERE / "journal_loop.c"), "-o", str(folder / "loop"), "-lsystemd"]
    if shutil.which("gcc") is None or subprocess.run(["gcc", *flags], capture_output=True).returncode:
        return None
    return str(folder / "loop")


def banning(folder: Path, log: Path, anchors: list[str]) -> tuple[str, ...] | None:
    """A filter of as many patterns, each with the host that fail2ban asks for."""
    if shutil.which("fail2ban-regex") is None:
        return None
    escaped = ["".join(f"\\{c}" if not c.isalnum() and c not in " _" else c for c in each) for each in anchors[:50]]
    patterns = "\n            ".join(f"^.*{each.replace('%', '%%')}.*<HOST>" for each in escaped)
    rules = folder / "triage.conf"
    rules.write_text(f"[Definition]\nfailregex = {patterns}\n")
    return ("fail2ban-regex", "--datepattern", r"^\[%%Y-%%m-%%d %%H:%%M:%%S", str(log), str(rules))


def measure(row: Row) -> None:
    if row.command is None:
        return
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(row.command, cwd=HERE.parent, **quiet)  # type: ignore[call-overload]
    while True:
        pid, _, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = 0
            break
        row.memory = max(row.memory, private(process.pid))
        time.sleep(0.02)
    row.seconds.append(used.ru_utime + used.ru_stime)


def private(pid: int) -> int:
    """kB of memory that is the process's own; mapped journals are not."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty"))


def told(rows: list[Row], lines: int, rounds: int) -> str:
    out = [
        "# Performance",
        "",
        f"Written by `make bench` on {datetime.now(UTC):%Y-%m-%d}: {platform.processor() or platform.machine()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}; {lines:,} lines, medians of {rounds} rounds "
        "run in turn. Seconds are CPU seconds of the whole process; a ratio is the median of the rounds' ratios.",
        "",
        "| what | seconds | beside | ratio | promised | private memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if not row.seconds:
            out.append(f"| {row.name} | not run: it is missing here | | | {row.bound} | |")
            continue
        against = next(
            (other for other in rows if row.peer and other.seconds and other.name.startswith(row.peer)), None
        )
        ratio = ""
        if against is not None:
            ratio = f"{statistics.median(a / b for a, b in zip(row.seconds, against.seconds, strict=True)):.2f}"
        memory = f"{row.memory / 1024:.0f} MB" if "triage" in row.name or "SQLite" in row.name else ""
        out.append(
            f"| {row.name} | {statistics.median(row.seconds):.2f} | {against.name if against else ''} | {ratio} | "
            f"{row.bound} | {memory} |"
        )
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
