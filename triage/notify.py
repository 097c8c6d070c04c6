"""What a service tells its manager: ready, status, still alive (sd_notify's protocol, one datagram each).

Called by the loops in `triage.cli.services`. Without NOTIFY_SOCKET it does nothing.
"""

from __future__ import annotations

import os
import socket


def notify(*states: str) -> None:
    """Send e.g. 'READY=1', 'STATUS=reading', 'WATCHDOG=1'. A manager that does not listen is no error."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto("\n".join(states).encode(), address)
        except OSError:
            return


def watchdog_interval() -> float | None:
    """Seconds between two signs of life that the manager wants, halved for safety; None where it wants none."""
    wanted = os.environ.get("WATCHDOG_USEC", "")
    return int(wanted) / 2_000_000 if wanted.isdigit() else None
