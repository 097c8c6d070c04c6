"""One raw line -> what stands in front of it (time, rank, level, pid, host) and the text behind it.

In comes a line as a source gave it, out goes `Parsed`. All dialects live here and nowhere else: SGLang's own prefix,
journalctl's short forms, docker and compose, containerd, kubectl, Ray, mpirun, torchrun, loggers around loggers, a
mail's quotation marks, progress bars that end without a newline, ANSI colours. Called by the assembler for each line
that is not plainly healthy, and by `sources.stream` for times.
It must not remember anything between two lines, and must never raise: whatever it does not know is text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# A bar leaves the cursor behind its bracket, so the next writer's line begins there: '...  0/8 [00:00<?, ?it/s][2026-'.
_BAR = re.compile(r"^.{0,400}?\d+%\|?.{0,400}?(?:it/s|s/it|B/s)[^\]\[]{0,80}\]\s*")
_GLUED = re.compile(r".(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z][A-Z_]*\d+)*\] )")

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_WRITER = (  # the host may be left out where a pid tells that the next word is the writer
    r" (?:(?P<host>[\w.-]+) (?P<ident>[^\s\[\]]+?)(?:\[(?P<pid>\d+)\])?|"
    r"(?P<ident2>[^\s\[\]]+?)\[(?P<pid2>\d+)\]|(?P<ident3>kernel)): ?"
)
# A container engine's time (nanoseconds, or Z) and a logger's (a blank amid) have no host behind them: in
# '...Z sglang serve: error: ...' it is text.
_SHORT = re.compile(
    r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|"
    r"(?!(?:\S{10} \S+|\S{19}(?:\.\d{7}\S*|\S*Z)) [\w.-]+ (?!kernel: )[^\s\[\]]+: )"
    + _STAMP
    + r"|\[ *\d+\.\d+(?: +<[ \d.*]+>| {16})?\]|\d\d:\d\d:\d\d(?= \S+ \S+\[)|\d{9,11}\.\d{6})"
    + _WRITER
)
_FULL = re.compile(  # journalctl -o short-full, with-unit
    r"[A-Z][a-z]{2} (?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) (?P<zone>[A-Z]{2,5}|[+-]\d{2,4})" + _WRITER
)
_JOURNAL = (_SHORT, _FULL)
# Compose, Docker Swarm ('llm_engine.1.k2hq@node | '), foreman (a time before it), pm2 (a number).
_COMPOSE = re.compile(r"(?:\d\d:\d\d:\d\d |\d+\|)?(?P<ident>[A-Za-z0-9][\w.-]*(?:@[\w.-]+)?) +\| ?")
_DOCKER = re.compile(
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)) "
    r"(?:std(?:out|err) (?P<tag>[FP])(?: |$)|\{(?:\w+=\"[^\"{}]*\"(?:, )?)*\} |"  # logcli has its labels there
    r"(?![-|]? *(?:DEBUG|INFO|WARN|ERROR|CRITICAL|\[(?:debug|info|warning|error|critical) *\])))"
)
_BRACKET = re.compile(
    r"\[(?P<ident>pod/[\w./-]+|\d+@[\w.-]{1,200}|\d+,\d+|[\w.@-]{1,200},\d+(?=\](?:\[[\w.-]+:\d+\])?<std(?:out|err)>:))\]"
    r"(?:\[[\w.-]+:\d+\](?=<std))?(?:<std(?:out|err)>:)? ?"
)
_MPIRUN = re.compile(  # --timestamp-output; no zone is told
    r"[A-Z][a-z]{2} (?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?:[A-Z]{3,4} )?\d{4} ?"
    r"(?:(?=\[)|<std(?:out|err)>: ?)"
)
_DMESG = re.compile(r"(?P<stamp>\[ *\d+\.\d{6}\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]) ")
_CLOUD = re.compile(
    r"(?:DEFAULT|DEBUG|INFO|NOTICE|WARNING|ERROR|CRITICAL) (?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) "
)
_KERNEL = re.compile(r"(?P<ident>kernel): ")
# Jenkins puts its own time before SGLang's; only its has a zone.
_ZONED = re.compile(r"\[(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))\] ?")
_AIRFLOW = re.compile(
    r"\[\d{4}-\d\d-\d\d(?:, |T)\d\d:\d\d:\d\d(?:\.\d+)? ?(?:UTC|Z|[+-]\d\d:?\d\d)\] "
    r"\{[\w.]{1,80}:\d+\} (?:DEBUG|INFO|WARNING|ERROR) - "
)
_ARROW = re.compile(r"--> ?")
_QUOTE = re.compile(r"(?:> ?)+")
_RAY = re.compile(  # and SkyPilot: '(sglang, rank=0, pid=88) '
    r"\((?:(?P<ident>[\w.:-]{1,200}(?:\([\w.-]{0,80}\))?)(?:,? rank=\d+)?,? )?pid=(?P<pid>\d+)(?:, ip=[\d.]+)?\) ?"
)
_REPEATED = re.compile(r" \[repeated \d+x across cluster\](?: \(Ray .*\))?$")  # Ray says it but once
_RANKED = re.compile(r"\[(?:default)?(?P<rank>(?:rank)?\d+)\]: ?")
_WRITERS = (_COMPOSE, _BRACKET, _RANKED)
_SGLANG = re.compile(
    r"\[(?:(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)|\d\d:\d\d:\d\d)"
    r"(?P<tags>(?: [A-Z][A-Z_]{1,15}\d+)*)\] ?|"
    r"\[(?:gpu=(?P<gpu>\d+)|(?P<tag>[A-Z]{2}\d+))\] ?"
)
_LOGGER = re.compile(
    r"(?P<stamp>" + _STAMP + r")(?:\s+[-|])?\s+(?:[\w.]+ - )?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|DEBG|WARN|ERRO|CRIT)(?:\s+-)?:?\s+(?:\| [\w.<>-]+ \| |"
    r"\| [\w.<>-]+:[\w.<>-]+:\d+ [-|] |"  # loguru's
    r"(?<= - )(?:sglang|uvicorn|root|__main__|\w{1,40}(?:\.\w{1,40}){1,9}) - |"  # level before name
    r"[\w.-]{1,60}: (?=\[20\d\d-))?|"  # whose record the server's own is
    r"\[(?P<low>debug|info|warning|error|critical) *\] ?)"  # structlog's
)
# supervisord's log of what a program wrote: a line before each piece, wherever that begins.
_PIECES = re.compile(r"(?P<stamp>" + _STAMP + r") DEBG '[^']{1,200}' std(?:out|err) output:$")
_TASK = re.compile(r" *(\d{1,6}): $")  # srun -l
# Behind a logger's time: '[2026-11-29 12:00:12][INFO] ', '[2026-11-29 12:00:12] [ERROR][run.py:77] '.
_LEVELLED = re.compile(r" ?\[(?P<level>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL) *\](?: ?\[[\w.]+:\d+\])? ?")
# SGLang's own head behind words that nobody here knows. What a request wrote has such a mark before it.
_BEHIND = re.compile(r"[^\"'={(\r]{1,100}?(?=\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z][A-Z_]*\d+)*\] )")
_LEVEL = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)(?::\s+| +(?=[\w./]+\.py:\d+))(?:[\w./]+\.py:\d+: )?"
)
_GLOG = re.compile(r"\[?(?P<level>[IWEF])\d{3,4} \d\d:\d\d:\d\d\.\d+\s+(?:\d+ )?[\w.]+:\d+\] ?")
_LEVELS = "DIWECF["  # how one of the two begins
_GLOG_LEVEL = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}


class Parsed(NamedTuple):
    """`headed`: the line began a log record of its own, so it does not continue what the same process said before.

    A tuple, as one is made for each line that is read and a frozen dataclass takes four times as long."""

    text: str
    headed: bool = False
    rank: str | None = None
    level: str | None = None
    stamp: str | None = None
    pid: int | None = None
    host: str | None = None  # empty: the line is journalctl's, which left it out
    ident: str | None = None  # journalctl's or compose's name of the writer
    writer: str = ""  # the container, pod or process that a supervisor names before each of its lines
    kernel: bool = False  # the prefix is the kernel's: dmesg's time, or 'kernel:'
    partial: bool = False  # containerd: the line goes on in the next one
    task: str = ""  # the number by which a launcher (mpirun; srun, if it is no line's number) tells its processes


def parse(raw: str) -> Parsed:
    """Take all prefixes off one line."""
    text = visible(raw).removeprefix("^C")  # a terminal's echo of Ctrl-C
    if text.endswith(" output:") and (match := _PIECES.match(text)) is not None:
        return Parsed("", stamp=match["stamp"])
    stamp = host = ident = rank = level = None
    pid: int | None = None
    writer = task = ""
    headed = kernel = partial = False
    for _ in range(4):  # supervisors stack: journalctl over compose over Ray
        match = _supervisor(text)
        if match is None:
            break
        groups = match.groupdict()
        text = text[match.end() :]
        if match.re in _JOURNAL:
            if host is not None:
                continue  # a process that prints what looks like a journal: it is not the manager, nor the kernel
            host = groups["host"] or ""
            groups["ident"] = groups["ident"] or groups["ident2"] or groups["ident3"]
            groups["pid"] = groups["pid"] or groups["pid2"]
        stamp = _zoned(groups["stamp"], groups["zone"]) if match.re is _FULL else groups.get("stamp") or stamp
        ident = groups.get("ident") or ident
        rank = _rank_word(groups.get("rank")) or rank
        pid = int(groups["pid"]) if groups.get("pid") else pid
        if match.re is _RAY and text.endswith(("cluster]", ")")):
            text = _REPEATED.sub("", text)
        if match.re in _WRITERS:
            writer += f"/{groups.get('ident') or rank}"
            task = _number(groups["ident"]) if match.re is _BRACKET else task
        kernel = kernel or groups.get("ident") == "kernel" or match.re is _DMESG
        partial = partial or (match.re is _DOCKER and match["tag"] == "P")
    for _ in range(4):  # one logger's record may be the text of another's: '2026-11-29 12:00:12 - sglang - INFO - [...'
        match = _SGLANG.match(text) if text.startswith("[") else _LOGGER.match(text) if text[:1].isdigit() else None
        if match is None and headed and text[:2].lstrip().startswith("["):
            match = _LEVELLED.match(text)
        if match is None and not headed and "[20" in text[:120] and not _is_record(text, 0):
            match = _BEHIND.match(text)
        if match is None:
            break
        text = text[match.end() :]
        if match.re is _BEHIND:
            label = _TASK.match(match[0])
            task = label[1] if label is not None else task
            continue
        headed = True
        groups = match.groupdict()
        stamp = stamp or groups.get("stamp")  # the outer one, a supervisor's, has a zone
        level = groups.get("level") or (groups.get("low") or "").upper() or level
        gpu = groups.get("gpu")
        rank = (f"TP{gpu}" if gpu else (groups.get("tags") or "").strip() or groups.get("tag")) or rank
    match = (_LEVEL.match(text) or _GLOG.match(text)) if text[:1] in _LEVELS else None
    if match is not None:
        headed = True
        level = _GLOG_LEVEL.get(match["level"], match["level"])
        text = text[match.end() :]
    return Parsed(text, headed, rank, level, stamp, pid, host, ident, writer, kernel, partial, task)


def container(writer: str) -> str:
    """The name of a container or pod, if that is who wrote it; a rank's tag is no such name."""
    name = writer.removeprefix("/")
    return "" if not name[:1].isalpha() or "," in name or re.match(r"rank\d", name) else name


def server_name(parsed: Parsed) -> str:
    """What tells a server from others in one text: its container, else journalctl's identifier, if that is more than a
    container's number, which is another at each start."""
    named = container(parsed.writer)
    if named or parsed.host is None or parsed.kernel or parsed.ident is None:
        return named
    return "" if re.fullmatch(r"[0-9a-f]{12}", parsed.ident) else parsed.ident


def _number(ident: str) -> str:
    """Of '1,3', 'prterun-gpu1-4100@1,3' (OpenMPI: job and rank) and '3@gpu1' (MPICH) the 3."""
    return ident.rpartition(",")[2] if "," in ident else ident.partition("@")[0] if "@" in ident else ""


def _zoned(stamp: str, zone: str) -> str:
    """A zone's other names are not known for sure: then it counts as left out."""
    return stamp + ("Z" if zone in ("UTC", "GMT") else zone.ljust(5, "0") if zone[0] in "+-" else "")


def visible(raw: str) -> str:
    """The line as a terminal would show it in the end: no colours, no overwritten progress bars, no NULs."""
    text = raw
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = _overwritten([part for part in text.split("\r") if part.strip()])
    bar = "it/s" in text or "s/it" in text or "B/s" in text
    if bar or "%|" in text or "% Completed" in text:
        at = _prefix(text)
        return text if _is_record(text, at) else text[:at] + _behind_bar(text[at:], ended=bar)
    return text


def _behind_bar(text: str, *, ended: bool) -> str:
    """What was written behind a progress bar without a line's end; `ended`: it may be whole."""
    bar = _BAR.match(text) if ended else None
    if bar is not None and bar.end() < len(text):
        return text[bar.end() :]
    glued = _GLUED.search(text) if "%|" in text or "% Completed" in text else None
    return text[glued.start(1) :] if glued is not None else text


def _overwritten(parts: list[str]) -> str:
    """What is seen where carriage returns set the cursor back: the last part. But nobody overwrites a record: what
    stands behind one is part of its text, though a request may have it look like a line of its own."""
    at = _prefix(parts[0]) if parts else 0
    for n, part in enumerate(parts):
        before = parts[0][:at] if n else ""
        if n == len(parts) - 1 or _is_record(part, 0 if n else at):
            return before + "\r".join(parts[n:])
    return ""


def _prefix(text: str) -> int:
    """Where the supervisors' words before a line end."""
    at = 0
    for _ in range(4):
        match = _supervisor(text[at:])
        if match is None:
            break
        at += match.end()
    return at


def _is_record(text: str, at: int) -> bool:
    """Whether a logger's record begins there: then it is no bar, and what looks like one within is its text."""
    return any(head.match(text, at) for head in (_SGLANG, _LOGGER, _LEVEL, _GLOG))


def is_progress(text: str) -> bool:
    """Whether it is nothing but a progress bar."""
    return ("it/s" in text or "s/it" in text or "%|" in text) and "%" in text and not text.startswith("[2")


def _supervisor(text: str) -> re.Match[str] | None:
    first = text[:1]
    if first == "[":
        if text[1:3] == "20" and text[5:6] == "-":
            return _AIRFLOW.match(text) or _ZONED.match(text) or _DMESG.match(text)
        return _SHORT.match(text) or _BRACKET.match(text) or _RANKED.match(text) or _DMESG.match(text)
    if first == "(":
        return _RAY.match(text)
    if first.isdigit():
        return _SHORT.match(text) or _DOCKER.match(text) or _COMPOSE.match(text)
    if first.isalpha():
        if text[3:6] == " 20":
            return _FULL.match(text)
        if text[3:4] == " " and text[4:7] in _MONTHS:
            return _MPIRUN.match(text)
        return _SHORT.match(text) or _COMPOSE.match(text) or _KERNEL.match(text) or _CLOUD.match(text)
    if first == ">":
        return _QUOTE.match(text)
    return _ARROW.match(text) if first == "-" else None


def _rank_word(word: str | None) -> str | None:
    if not word:
        return None
    return word if word.startswith("rank") else f"rank{word}"


# ---------------------------------------------------------------- times

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6})\d*)?(Z|[+-]\d\d:?\d\d)?$",
)
_UNIX = re.compile(r"\d{9,11}\.\d{6}$")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?$")
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: n for n, name in enumerate(_NAMES, 1)}


def stamp_time(stamp: str, zone: tzinfo | None = UTC, year: int | None = None) -> int | None:
    """A written time -> microseconds UTC, or None. `zone` (None: this machine's) and `year` are for stamps without."""
    match = _ISO.match(stamp)
    try:
        if match is not None:
            y, mo, d, h, mi, s, micro, offset = match.groups()
            when = datetime(int(y), int(mo), int(d), int(h), int(mi), int(s), int((micro or "0").ljust(6, "0")))
            if offset:
                offset = "+00:00" if offset == "Z" else offset
                return _micros(datetime.fromisoformat(when.isoformat() + offset))
            return _micros(when.replace(tzinfo=zone))
        if _UNIX.match(stamp):
            return int(stamp.replace(".", ""))
        match = _SYSLOG.match(stamp)
        if match is not None and year is not None and match[1] in _MONTHS:
            micro = (match[6] or "0").ljust(6, "0")
            when = datetime(
                year, _MONTHS[match[1]], int(match[2]), int(match[3]), int(match[4]), int(match[5]), int(micro)
            )
            return _micros(when.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        return None
    return None


def _micros(when: datetime) -> int:
    return int(when.timestamp()) * 1_000_000 + when.microsecond
