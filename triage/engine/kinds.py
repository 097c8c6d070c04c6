"""What a failure can be and what one line can say of one, as values; which exceptions only tell of another's end.

Made by the rooms that read lines (engine.signs, engine.manager, engine.excerpt) and by `engine.entries`; weighed
against each other by `engine.roles`. It must not read a log's lines.
"""

from __future__ import annotations

import re
import signal
from enum import IntEnum

from triage.frozen import frozen
from triage.model import Role


class Kind(IntEnum):
    """What a failure is, the likelier root first."""

    HARDWARE = 0  # kernel: OOM kill, Xid that takes the device away
    NATIVE = 1  # abort, segmentation fault
    FATAL = 2  # an exception that ends a process of the server, a usage error, 203/EXEC
    PLAIN = 3  # any other traceback, a fatal line
    EXIT = 4  # only the parent's or manager's word that a process ended
    COLLECTIVE = 5  # a collective timed out, a watchdog fired
    BARE = 6  # an exception line that nothing stands above
    HINT = 7  # device asserts, peers lost: a root only where there is no other
    CASCADE = 8
    REQUEST = 9  # one request failed, the server goes on


HANG = "hang"  # the sign of a server that answers nobody: nothing was caused by it


@frozen
class Sign:
    """What a line says."""

    name: str  # lines of one name fold into one failure
    kind: Kind
    role: Role
    exception: str
    message: str
    why: str
    pid: int | None = None  # the process it is about, where the line says so
    ends_server: bool = False  # SGLang's own end-of-server line
    cause: str = ""  # the failure that the line itself names as its cause
    own: bool = False  # it is that process's alone: to no other can it have done anything
    rank: str = ""  # whose end it tells, by the number that the parent gave its child ('rank3')


# Exceptions that only say that somebody else is gone.
_PEER_LOST = re.compile(
    r"Connection closed by peer|Connection reset by peer|gloo/transport|ncclRemoteError|"
    r"remote process exited or there was a network error|Broken pipe|"
    r"scheduler died during initialization|Rank \d+ scheduler is dead|monitoredBarrier|"
    r"NCCL communicator was aborted|recvValue failed|sendBytes failed|"
    r"See (?:stack trace \(above\)|root cause above)|The actor (?:died unexpectedly|is dead)"
)
_TEARDOWN_NAMES = frozenset(
    {
        "CancelledError",
        "KeyboardInterrupt",
        "BrokenPipeError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "GeneratorExit",
        "ChildFailedError",
    }
)


def signal_word(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"Signal {number}"


def peer_lost(name: str, message: str) -> bool:
    """Whether an exception only tells that another process is gone."""
    last = name.rsplit(".", 1)[-1]
    if last in _TEARDOWN_NAMES or (last in ("EOFError", "SystemExit") and message in ("", "0")):
        return True
    return bool(_PEER_LOST.search(message))
