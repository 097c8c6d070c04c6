"""Whose a unit of `systemctl --user` is, by the machine's own list of users.

In: a uid, as the journal tells it or a request says it. Out: `Owner`, or Refused. Called by `planning` and by root's
side; nobody believes a name or a home that somebody else wrote down. It looks at no file of the user's.
"""

from __future__ import annotations

import pwd

from triage.actionmodel import Owner
from triage.model import Refused

_SYSTEM = range(1000)  # root, and the users of services (systemd's own border, UID_MIN)
_DYNAMIC = range(61184, 65536)  # DynamicUser=, nobody, containers' edge: nobody's account


def owner_of(uid: int) -> Owner:
    """Raises Refused for root, users of services and uids that nobody has."""
    if uid in _SYSTEM or uid in _DYNAMIC:
        raise Refused(f"uid {uid} is no person's account: units of its manager are not touched")
    try:
        entry = pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        raise Refused(f"there is no user of uid {uid} on this machine") from None
    if not entry.pw_dir.startswith("/") or entry.pw_dir == "/" or not entry.pw_dir.isprintable():
        raise Refused(f"user {entry.pw_name} has no home of their own")
    return Owner(uid, entry.pw_name, entry.pw_dir.rstrip("/"))
