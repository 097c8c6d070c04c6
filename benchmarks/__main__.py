"""`make bench`: triage beside its peers on the same files in the same run, as ratios; writes docs/performance.md.

All commands of a table run in turn, seven times, so that a noisy machine is noisy for all; a ratio is the median of the
rounds' ratios of CPU seconds (user and system, start included). Each runs once before it is measured: what Python
compiles and triage caches at its first start is there, as after an installation. A peer that is missing is said to be
so, and so is what needs a systemd of its own (benchmarks.live) where that cannot be had.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.replay import write_store
from benchmarks.ruled import write_rules
from benchmarks.traffic import CRASH_EVERY, write_journal, write_text
from triage.rulebase.rule import Rule
from triage.rulebase.rulefile import load_rules
from triage.shipped import rule_folders

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
PYTHON = sys.executable
INSTALLED = Path(PYTHON).with_name("triage")
TRIAGE = (str(INSTALLED),) if INSTALLED.exists() else (PYTHON, "-m", "triage")
FEWER = 100_000  # lines for peers that take minutes for more
RULES = 200
BANNED = 50  # rules given to fail2ban
NOTES = """\
How to read it. `rg` and the C loop do a part of the work: the one finds lines, the other reads entries; triage reads
the same, puts the crashes together, names them and (the journal) stores them. The database stands before the replay
begins, as on an installed machine. The loop in Python is what message and pid of each entry cost by systemd-python,
no line made, nothing searched; triage asks for the pid of few. Rules cost a log without crashes nothing: they are
asked when a crash is open, and the gate in front of the engine seeks the engine's own words, by some seventy pieces of
them, which `ahocorasick_rs` does with vector instructions: 0.09 s for a million lines, where hyperscan 0.9.1 took
0.12 s for the words themselves. So there is no extra for hyperscan. `--help` is the import of click and little else.
fail2ban-regex is given the first 50 rules' own expressions, one failregex a rule.
"""


@dataclass
class Row:
    """One command beside the one it is measured against; `bound`: what was promised; `lines`: for a ratio by line."""

    name: str
    command: tuple[str, ...] | None
    peer: str
    bound: str
    lines: int = 1
    fresh: tuple[Path, Path] | None = None  # a file that is copied to another before each run
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
        for turn in range(given.rounds + 1):
            for row in rows:
                measure(row, Path(folder))
            print(f"round {turn} of {given.rounds}", file=sys.stderr)
        for row in rows:
            row.seconds = row.seconds[1:]
        page = told(rows, given.lines, given.rounds) + told_others(figures("hostile"), figures("live"))
    print(page)
    if not given.dry:
        PAGE.write_text(page)


def commands(folder: Path, lines: int) -> list[Row]:
    log = write_text(folder / "big.log", lines)
    few = write_text(folder / "few.log", FEWER)
    journal, small = write_journal(folder / "journal", lines), write_journal(folder / "small", FEWER)
    store, fresh = folder / "x.db", write_store(folder / "fresh.db")
    some, many = (write_rules(folder / f"{number}.pickle", number) for number in (50, 500))
    words = folder / "words"
    rules = load_rules(rule_folders()).rules[:RULES]
    anchors = {anchor for rule in rules for clause in rule.clauses for anchor in clause.anchors}
    words.write_text("".join(f"{anchor}\n" for anchor in sorted(anchors) if "\n" not in anchor))
    loop = built(folder)
    ruled = (PYTHON, "-m", "benchmarks.ruled")
    bare = (PYTHON, "-m", "benchmarks.journal_loop", str(journal)) if journal else None
    replay = (PYTHON, "-m", "benchmarks.replay", str(journal), str(store)) if journal else None
    banned = banning(folder, str(few), rules)
    banned_journal = banning(folder, f'systemd-journal[journalpath="{small}"]', rules) if small else None
    return [
        Row("python -c pass", (PYTHON, "-c", "pass"), "", ""),
        Row("triage --help", (*TRIAGE, "--help"), "python -c pass", "5"),
        Row("triage scan, nothing to read", (*TRIAGE, "scan", "/dev/null"), "python -c pass", "15"),
        Row(f"rg -F, {RULES} rules' words", found("rg", "-j1", "-F", "-f", str(words), str(log)), "", ""),
        Row("triage scan, text", (*TRIAGE, "scan", str(log)), "rg", "2.2", lines),
        Row("the same with 50 rules", (*ruled, str(some), str(log)), "", ""),
        Row("the same with 500 rules", (*ruled, str(many), str(log)), "the same with 50", "1.1"),
        Row(f"fail2ban-regex, text, {BANNED} rules", banned, "triage scan, text", ">= 50 a line", FEWER),
        Row("C loop over the journal", (loop, str(journal)) if loop and journal else None, "", ""),
        Row("the same loop in Python", bare, "C loop", ""),
        Row("journal into SQLite", replay, "C loop", "2.0", lines, (fresh, store)),
        Row(f"fail2ban-regex, journal, {BANNED} rules", banned_journal, "journal into", ">= 25 a line", FEWER),
    ]


def found(name: str, *arguments: str) -> tuple[str, ...] | None:
    return (name, *arguments) if shutil.which(name) else None


def built(folder: Path) -> str | None:
    """The C loop, compiled on the spot."""
    flags = ["-O2", str(HERE / "journal_loop.c"), "-o", str(folder / "loop"), "-lsystemd"]
    if shutil.which("gcc") is None or subprocess.run(["gcc", *flags], capture_output=True).returncode:
        return None
    return str(folder / "loop")


def banning(folder: Path, log: str, rules: Iterable[Rule]) -> tuple[str, ...] | None:
    """As many failregexes, each one rule's own expressions before the host that fail2ban asks for. It takes minutes for
    a million lines."""
    if shutil.which("fail2ban-regex") is None:
        return None
    patterns = "\n            ".join(f"^.*(?:{'|'.join(each)}).*<HOST>" for each in islice(plain(rules), BANNED))
    filters = folder / "triage.conf"
    filters.write_text(f"[Definition]\nfailregex = {patterns.replace('%', '%%')}\n")
    return ("fail2ban-regex", "--datepattern", r"^\[%%Y-%%m-%%d %%H:%%M:%%S", log, str(filters))


def plain(rules: Iterable[Rule]) -> Iterator[list[str]]:
    """Of each rule that has some, the expressions that stand in one line and that Python's own module knows too."""
    for rule in rules:
        found = [pattern.text for clause in rule.clauses for pattern in (*clause.messages, *clause.lines)]
        found = [re.sub(r"\(\?P<\w+>", "(?:", text) for text in found if not re.search(r"\^|\n|\\n|\(\?[a-z]", text)]
        if kept := [text for text in found if compiles(text)]:
            yield kept


def compiles(text: str) -> bool:
    try:
        return re.compile(text) is not None
    except re.error:
        return False


def measure(row: Row, folder: Path) -> None:
    if row.command is None:
        return
    if row.fresh is not None:
        shutil.copy(*row.fresh)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(row.command, cwd=HERE.parent, env=surroundings(folder), **quiet)  # type: ignore[call-overload]
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            break
        row.memory = max(row.memory, private(process.pid))
        time.sleep(0.02)
    if process.returncode not in (0, 1):  # 1: a crash was found
        row.command = None
        return
    row.seconds.append(used.ru_utime + used.ru_stime)


def surroundings(folder: Path) -> dict[str, str]:
    """The caches of this run alone, and compiled modules kept even where the caller has switched that off."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def figures(part: str) -> dict[str, Any] | None:
    """What one of the other benchmarks prints; None where it cannot run here."""
    done = subprocess.run([PYTHON, "-m", f"benchmarks.{part}"], cwd=HERE.parent, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        print(f"{part} did not run: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(lines[-1])
    return found


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
        f"{os.cpu_count()} cores, load {os.getloadavg()[2]:.1f}, Python {platform.python_version()}; {lines:,} lines "
        f"with a crash of eight ranks every {CRASH_EVERY:,}, medians of {rounds} rounds run in turn. Seconds are CPU "
        "seconds of the whole process; a ratio is the median of the rounds' ratios, for fail2ban by line "
        f"(it reads {FEWER:,}).",
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
            by_line = against.lines / row.lines if "a line" in row.bound else 1
            ratios = (a / b for a, b in zip(row.seconds, against.seconds, strict=True))
            ratio = f"{statistics.median(ratios) * by_line:.2f}"
        memory = f"{row.memory / 1024:.0f} MB" if "triage" in row.name or "SQLite" in row.name else ""
        out.append(
            f"| {row.name} | {statistics.median(row.seconds):.2f} | {against.name if against else ''} | {ratio} | "
            f"{row.bound} | {memory} |"
        )
    return "\n".join(out) + "\n"


def told_others(hostile: dict[str, Any] | None, live: dict[str, Any] | None) -> str:
    """What is no ratio: delays, and what a `watch` on a real systemd costs."""
    no = "not run here"
    row, idle = (live["row"], live["idle"]) if live else ({}, {})
    lines = [
        ("hostile line, hostile rule: the first time", hostile and f"{hostile['first_ms']} ms", "150 ms"),
        ("the same again", hostile and f"{hostile['again_ms']} ms", "nothing"),
        ("exception line in the journal to the crash's row, p50", live and f"{row['p50_ms']} ms", ""),
        (f"p99, of {row.get('crashes', 0)} crashes", live and f"{row['p99_ms']} ms", "100 ms"),
        ("`watch` beside 200 healthy lines a second", live and f"{idle['core_percent']} % of a core", "2 %"),
        ("its private memory", live and f"{live['private_mb']} MB", "60 MB"),
    ]
    table = [f"| {what} | {figure or no} | {bound} |" for what, figure, bound in lines]
    return "\n".join(["", "| what | measured | promised |", "|---|---|---|", *table, "", NOTES])


if __name__ == "__main__":
    main()
