"""One journal entry's fields -> a `Line`: the one place that knows which field means what.

In come the fields of an entry as text (whoever read them: libsystemd, `journalctl -o json`, `-o export`), out goes a
`Line`. Called by `sources.journal` and `sources.stream`, so that the same crash is the same by every road. It must not
do I/O of its own and must not read a clock.

Only trusted fields (those that journald adds, with a leading underscore) decide where a line comes from: a server that
logs a field `UNIT=` of its own is still a process, not the manager. Docker's word for a container counts in
docker's own unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from triage.model import AT_NUL, BROKEN_OFF, CONTAINER, EMPTY, LOST, OWNER, Line, Origin

# What a reader has to fetch; nothing else is looked at. The first ones are enough for a process's line.
PROCESS_FIELDS = (
    "MESSAGE",
    "_PID",
    "_HOSTNAME",
    "_SYSTEMD_UNIT",
    "_SYSTEMD_USER_UNIT",
    "_SYSTEMD_INVOCATION_ID",
    "_STREAM_ID",
    "_TRANSPORT",
    "_LINE_BREAK",
)
NOTICE_FIELDS = (
    "_COMM",
    "UNIT",
    "USER_UNIT",
    "INVOCATION_ID",
    "USER_INVOCATION_ID",
    "MESSAGE_ID",
    "EXIT_CODE",
    "EXIT_STATUS",
    "UNIT_RESULT",
    "JOB_TYPE",
    "JOB_RESULT",
    "N_RESTARTS",
    "N_DROPPED",
    "COMMAND",
    "OBJECT_SYSTEMD_UNIT",
    "OBJECT_SYSTEMD_INVOCATION_ID",
    "COREDUMP_UNIT",
    "COREDUMP_USER_UNIT",
    "COREDUMP_PID",
    "COREDUMP_SIGNAL",
)
FIELDS = PROCESS_FIELDS + NOTICE_FIELDS

# Of docker's own unit: what its journald driver writes of each container.
ENGINES = frozenset({"docker.service", "snap.docker.dockerd.service"})
CONTAINER_FIELDS = ("CONTAINER_NAME", "CONTAINER_ID_FULL", "CONTAINER_PARTIAL_MESSAGE", "CONTAINER_PARTIAL_LAST")
_CONTAINED: Mapping[str, str] = MappingProxyType({CONTAINER: "1"})

COREDUMP = "fc2e22bc6ee647b6b90729ab34a250b1"
# A piece that journald broke off: over 48K, at a NUL, or another process wrote in the middle of the line.
BROKEN = frozenset({BROKEN_OFF, AT_NUL, "pid-change"})


def entry_line(fields: Mapping[str, str], time: int | None, *, cut: bool = False) -> Line:
    """The entry as a `Line`; `time` is its realtime stamp, microseconds UTC; `cut`: a field came without its value."""
    get = fields.get
    text = clean(get("MESSAGE", ""))
    host = get("_HOSTNAME")
    pid = _number(get("_PID"))
    if get("_TRANSPORT") == "kernel":
        return Line(text, time=time, host=host, origin=Origin.KERNEL, cut=cut)
    if pid == 1 and get("UNIT"):
        return Line(
            text,
            time=time,
            host=host,
            unit=get("UNIT"),
            invocation=get("INVOCATION_ID"),
            pid=pid,
            origin=Origin.MANAGER,
            cut=cut,
            fields=_kept(fields),
        )
    if get("USER_UNIT") and _user_manager(fields):
        return Line(
            text,
            time=time,
            host=host,
            unit=get("USER_UNIT"),
            invocation=get("USER_INVOCATION_ID"),
            pid=pid,
            origin=Origin.MANAGER,
            cut=cut,
            fields={**_kept(fields), **_owned(get("_SYSTEMD_UNIT"))},
        )
    if get("MESSAGE_ID") == COREDUMP and (get("_SYSTEMD_UNIT") or "").startswith("systemd-coredump"):
        return Line(
            text,
            time=time,
            host=host,
            unit=get("COREDUMP_USER_UNIT") or get("COREDUMP_UNIT"),
            invocation=get("OBJECT_SYSTEMD_INVOCATION_ID"),
            pid=_number(get("COREDUMP_PID")),
            origin=Origin.MANAGER,
            cut=cut,
            fields={**_kept(fields), **_owned(get("COREDUMP_UNIT") if get("COREDUMP_USER_UNIT") else None)},
        )
    if get("_TRANSPORT") == "driver":
        return Line(
            text,
            time=time,
            host=host,
            unit=get("OBJECT_SYSTEMD_UNIT"),
            invocation=get("OBJECT_SYSTEMD_INVOCATION_ID"),
            origin=Origin.JOURNALD,
            cut=cut,
            fields=_kept(fields),
        )
    return process_line(
        text,
        time,
        host=host,
        unit=get("_SYSTEMD_USER_UNIT") or get("_SYSTEMD_UNIT"),
        invocation=get("_SYSTEMD_INVOCATION_ID"),
        pid=pid,
        stream=get("_STREAM_ID"),
        broken=get("_LINE_BREAK"),
        cut=cut,
        owner=_owned(get("_SYSTEMD_UNIT")) if get("_SYSTEMD_USER_UNIT") else EMPTY,
    )


def process_line(
    text: str,
    time: int | None,
    *,
    host: str | None,
    unit: str | None,
    invocation: str | None,
    pid: int | None,
    stream: str | None,
    broken: str | None,
    cut: bool,
    owner: Mapping[str, str] = EMPTY,
) -> Line:
    """A line that a unit's own process wrote; for a reader that has the fields at hand and millions of them. `owner`:
    the field OWNER of a user's unit."""
    return Line(
        text,
        time=time,
        host=host,
        unit=unit,
        invocation=invocation,
        pid=pid,
        stream=stream,
        cut=cut or broken == BROKEN_OFF,
        fields={"_LINE_BREAK": broken, **owner} if broken in BROKEN and broken else owner,
    )


def contained(line: Line, fields: Mapping[str, str]) -> Line:
    """What docker wrote for one of its containers is that container's, under its name and not by docker's pid."""
    name = fields.get("CONTAINER_NAME")
    if line.unit not in ENGINES or line.origin is not Origin.PROCESS or not name:
        return line
    piece = fields.get("CONTAINER_PARTIAL_MESSAGE") == "true" and fields.get("CONTAINER_PARTIAL_LAST") != "true"
    return replace(
        line,
        unit=name,
        invocation=fields.get("CONTAINER_ID_FULL"),
        pid=None,
        cut=line.cut or piece,
        fields={**_CONTAINED, "_LINE_BREAK": BROKEN_OFF} if piece else _CONTAINED,
    )


def gap_line(count: int, time: int | None) -> Line:
    """Says to whoever reads the lines that entries are missing here; -1: how many is not known."""
    return Line("", time=time, origin=Origin.JOURNALD, fields={LOST: str(count)})


def clean(text: str) -> str:
    """Text that can be stored and shown anywhere: no NUL (databases refuse it), no half surrogate."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8", "replace")
    return text


def _user_manager(fields: Mapping[str, str]) -> bool:
    """Whether a user's systemd wrote it: it lives in user@UID.service itself, its units in folders below that."""
    return (
        fields.get("_COMM") == "systemd"
        and (fields.get("_SYSTEMD_UNIT") or "").startswith("user@")
        and fields.get("_SYSTEMD_USER_UNIT") in (None, "", "init.scope")
    )


def _owned(unit: str | None) -> Mapping[str, str]:
    """Whose the units below that unit of the system are: user@1000.service is the manager of uid 1000."""
    uid = (unit or "").removeprefix("user@").removesuffix(".service")
    return {OWNER: uid} if _number(uid) is not None and unit != uid else EMPTY


def _kept(fields: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name in NOTICE_FIELDS if (value := fields.get(name)) is not None}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def raw_field(reader: Any, name: str) -> bytes:
    """A field of the entry that libsystemd's reader stands on; empty where it has none."""
    try:
        value: bytes = reader._get(name)
    except KeyError:
        return b""
    return value
