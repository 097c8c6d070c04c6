"""Is what a crash failed at not its own server's doing: another crash before it, another process on its GPU?

A crash comes in; what to do first and why the rule's own rungs do not fit come out. Called by `offer`. Pure. It must
not judge which crash follows which: `engine.aftermath` does.
"""

from __future__ import annotations

import re

from triage.frozen import frozen
from triage.model import Crash

# torch names those that hold memory of the card. In a container it may not know itself among them: then it says only
# "Process N" of all, its own too, and nothing can be told.
_ITSELF = re.compile(r"\bthis process has \d")
_OTHER = re.compile(r"\bProcess (?P<pid>\d{1,10}) has (?P<size>\d{2,4}(?:\.\d{1,4})? GiB)")


@frozen
class Elsewhere:
    """What comes before the rule's own rungs."""

    id: str
    title: str
    why: str  # the reason why those do not fit


def elsewhere(crash: Crash) -> Elsewhere | None:
    """Where the cause lies, if the crash itself says that it is not in how its server was started."""
    if crash.follows:
        return Elsewhere(
            "mend-the-one-before",
            "Mend the crash that it follows first; wait for what that one left on the GPU or the port, or end it "
            "(nvidia-smi, ss -ltnp)",
            "it may only follow another crash, whose cause is not here",
        )
    message = crash.root.cause.message
    if not crash.root.cause.exception.endswith("OutOfMemoryError") or not _ITSELF.search(message):
        return None
    other = _OTHER.search(message)
    if other is None:
        return None
    pid, size = other["pid"], other["size"]
    return Elsewhere(
        "end-the-other-process",
        f"See what process {pid} is, which holds {size} of that GPU (ps -fp {pid}; nvidia-smi), and end it if it is a "
        "left-over or move it",
        f"process {pid} holds {size} of that GPU",
    )
