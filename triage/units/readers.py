"""Who may read a file that is not for all: its group and whom its ACL names; and the same given to another file.

In: a path or an open file. Out: readers such as `g:998` and `u:997`. Called by `unitsearch` and `place`. Root's part
may not change a file's group (it has no CAP_CHOWN); an ACL of a file of its own it may set.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import struct

_ACL = "system.posix_acl_access"
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_VERSION, _NOBODY = 2, 0xFFFFFFFF
_OWNER, _USER, _GROUP_OWNER, _GROUP, _MASK, _OTHER = 1, 2, 4, 8, 16, 32
_READ, _WRITE = 4, 2


def readers(path: str, facts: os.stat_result) -> tuple[str, ...]:
    """Besides its owner; nobody is named where all may read it."""
    if facts.st_mode & stat.S_IROTH:
        return ()
    try:
        data = os.getxattr(path, _ACL)
    except OSError:  # it has none
        return (f"g:{facts.st_gid}",) if facts.st_mode & stat.S_IRGRP else ()
    entries = list(_ENTRY.iter_unpack(data[_HEAD.size :]))
    if not all(perm & _READ for tag, perm, _ in entries if tag == _MASK):
        return ()
    may = [(tag, facts.st_gid if tag == _GROUP_OWNER else number) for tag, perm, number in entries if perm & _READ]
    found = [f"{'u' if tag == _USER else 'g'}:{number}" for tag, number in may if tag in (_USER, _GROUP_OWNER, _GROUP)]
    return tuple(sorted(found))


def admit(handle: int, names: tuple[str, ...]) -> None:
    """Let these read the open file, beside its owner. Raises OSError where the disk has no ACLs."""
    if not names:
        return
    entries = [
        (_OWNER, _READ | _WRITE, _NOBODY),
        (_GROUP_OWNER, 0, _NOBODY),
        (_MASK, _READ, _NOBODY),
        (_OTHER, 0, _NOBODY),
    ]
    for name in names:
        kind, _, number = name.partition(":")
        entries.append((_USER if kind == "u" else _GROUP, _READ, int(number)))
    data = b"".join(_ENTRY.pack(*entry) for entry in sorted(entries, key=lambda entry: (entry[0], entry[2])))
    os.setxattr(handle, _ACL, _HEAD.pack(_VERSION) + data)


def among(names: tuple[str, ...], group: int) -> bool:
    """Whether the user whose own group that is, is one of these readers."""
    for user in pwd.getpwall():
        if user.pw_gid == group:
            mine = {group, *(other.gr_gid for other in grp.getgrall() if user.pw_name in other.gr_mem)}
            if f"u:{user.pw_uid}" in names or any(f"g:{one}" in names for one in mine):
                return True
    return False
