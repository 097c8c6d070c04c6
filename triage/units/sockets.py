"""Who listens on a port of this machine, by cgroup; and the command lines that run in a unit's cgroup.

In: a unit's control group as the manager names it. Out: whether its processes listen there, else who does, and their
argvs. Called by `readiness`. The kernel tells the cgroup of each listening socket (sock_diag, Linux 5.7) to anybody, so
this needs no rights: /proc/PID/fd, which would tell the process too, is closed to root's one-shot as it is confined.
It proves that the socket was made inside the unit, whoever has it now. Without the unified hierarchy nothing is told.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from triage.frozen import frozen

_HIERARCHY = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))  # hybrid, unified
_SOCK_DIAG = 4
_BY_FAMILY, _REQUEST_DUMP, _ERROR, _DONE = 20, 0x301, 2, 3
_LISTEN = 1 << 10  # TCP_LISTEN, as a bit
_CGROUP_ID = 21  # INET_DIAG_CGROUP_ID
_SECONDS = 5.0
_ROOT = 1  # the id of the hierarchy's root: nothing is told of such a socket


@frozen
class Listener:
    address: str
    port: int
    cgroup: int  # id: the inode of the cgroup's folder


@frozen
class Ears:
    """Whose listener a connection comes to. `ours` is None where that cannot be told; `other`: who else, '' nobody."""

    ours: bool | None
    other: str = ""


def ears(host: str, port: int, control_group: str) -> Ears:
    """Of a connection to host and port of this machine."""
    inside, heard = _ids(control_group), listeners()
    if not inside or heard is None:
        return Ears(None)
    there = _reached(host, [one for one in heard if one.port == port])
    if not there:
        return Ears(False)
    foreign = [one.cgroup for one in there if one.cgroup not in inside]
    named = _literal(host) is not None
    if not foreign or (not named and len(foreign) < len(there)):
        return Ears(True)
    if _ROOT in foreign:
        return Ears(None)
    return Ears(False, _name(foreign[0]))


def listeners() -> tuple[Listener, ...] | None:
    """All of this network namespace's TCP; None where the kernel does not tell their cgroups."""
    try:
        found = tuple(one for family in (socket.AF_INET, socket.AF_INET6) for one in _listeners(family))
    except (OSError, struct.error, AttributeError):  # no netlink here, or a kernel that does not know this
        return None
    return None if any(one.cgroup == 0 for one in found) else found


def command_lines(control_group: str) -> tuple[tuple[str, ...], ...]:
    """The argvs of all processes of a control group and those below, none twice."""
    found: dict[tuple[str, ...], None] = {}
    for folder, _, _ in _walk(control_group):
        with contextlib.suppress(OSError):
            for pid in Path(folder, "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    data = Path("/proc", pid, "cmdline").read_bytes()
                    if data:
                        found[tuple(data.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0"))] = None
    return tuple(found)


def _listeners(family: int) -> Iterator[Listener]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as line:
        line.settimeout(_SECONDS)
        asked = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _LISTEN) + bytes(48)
        line.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + asked)
        while True:
            data, at = line.recv(1 << 18), 0
            while at < len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR or length < 16:
                    raise OSError("sock_diag is not answered")
                yield _listener(family, data[at + 16 : at + length])
                at += (length + 3) & ~3


def _listener(family: int, told: bytes) -> Listener:
    """One `inet_diag_msg` with its attributes."""
    (port,) = struct.unpack_from(">H", told, 4)
    address = socket.inet_ntop(family, told[8 : 8 + (4 if family == socket.AF_INET else 16)])
    cgroup, at = 0, 72
    while at + 4 <= len(told):
        length, kind = struct.unpack_from("=HH", told, at)
        if length < 4:
            break
        if kind == _CGROUP_ID:
            (cgroup,) = struct.unpack_from("=Q", told, at + 4)
        at += (length + 3) & ~3
    return Listener(address, port, cgroup)


def _reached(host: str, there: list[Listener]) -> list[Listener]:
    """Those that a connection comes to: the closest address wins. Of a host by name: all of the port."""
    wanted = _literal(host)
    if wanted is None:
        return there
    ranked: dict[int, list[Listener]] = {}
    for one in there:
        bound = ipaddress.ip_address(one.address)
        if bound == wanted or getattr(bound, "ipv4_mapped", None) == wanted:
            ranked.setdefault(0, []).append(one)
        elif bound.is_unspecified and (bound.version == wanted.version or bound.version == 6):
            ranked.setdefault(1 if bound.version == wanted.version else 2, []).append(one)
    return ranked[min(ranked)] if ranked else []


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _folder(control_group: str) -> Path | None:
    if not control_group.startswith("/"):
        return None
    for base in _HIERARCHY:
        if (base / "cgroup.controllers").exists():
            return base / control_group.lstrip("/")
    return None


def _walk(control_group: str) -> Iterator[tuple[str, list[str], list[str]]]:
    folder = _folder(control_group)
    return iter(()) if folder is None else os.walk(folder)


def _ids(control_group: str) -> frozenset[int]:
    found = set()
    for folder, _, _ in _walk(control_group):
        with contextlib.suppress(OSError):
            found.add(os.stat(folder).st_ino)
    return frozenset(found)


def _name(cgroup: int) -> str:
    """The unit, or whatever the cgroup's path says, that has this id."""
    for folder, _, _ in _walk("/"):
        with contextlib.suppress(OSError):
            if os.stat(folder).st_ino == cgroup:
                units = [part for part in folder.split("/") if part.endswith((".service", ".scope"))]
                return units[-1] if units else folder
    return "somebody else"
