"""One request that ends the server whenever it comes: no flag helps against that.

In: an incident as the store shows it. Out: why its crashes look so, and where the request can be found. Called by
`triage apply` and the dashboard before a remedy is taken that nobody named. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triage.model import Phase, Refused
from triage.store import CrashRow, IncidentView

RUNS = 3  # crashes of one kind in a row, each of a start of its own
FEW = 20  # answered requests of one start
_MEMORY = ("OutOfMemory", "SIGKILL")  # load, not one request, fills memory


def check_poison(view: IncidentView, ladder: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refused where a request is to blame: nothing is taken then that nobody named."""
    if why := poison(view):
        ids = ", ".join(rung["id"] for rung in ladder if rung["applicable"])
        raise Refused(
            f"{why}. No flag is changed; to change one all the same name it with --remedy ID: {ids or 'none'}"
        )


def poison(view: IncidentView) -> str:
    """Why this looks like one request that ends the server whenever it comes, and where to look for it; '' if not.

    A server that dies at its very first request has a fault of its own. This one serves others before."""
    runs: dict[str, CrashRow] = {}
    for crash in view.crashes:
        runs.setdefault(crash.invocation, crash)
    newest = list(runs.values())[:RUNS]
    if len(newest) < RUNS or not all(_soon(crash) for crash in newest):
        return ""
    answered = [int(crash.document.get("context", {}).get("answered", 0)) for crash in newest]
    if sum(count > 0 for count in answered) < RUNS - 1:
        return ""
    told = ", ".join(str(count) for count in answered)
    return (
        f"this looks like a poison request: {RUNS} crashes of this kind in a row, each after only a few answered "
        f"requests of a new start ({told}). {_dump(newest[0])}"
    )


def _soon(crash: CrashRow) -> bool:
    document = crash.document
    exception = str((document.get("root") or {}).get("exception", ""))
    serving = crash.phase is Phase.SERVING and crash.outcome.actionable
    few = int(document.get("context", {}).get("answered", 0)) <= FEW
    return serving and few and bool(crash.invocation) and not any(word in exception for word in _MEMORY)


def _dump(crash: CrashRow) -> str:
    """Where the request itself can be found."""
    flags = crash.document.get("context", {}).get("flags", {})
    folder = flags.get("crash_dump_folder", "")
    if folder not in ("", "None"):
        return f"The requests before each crash are in {folder} (--crash-dump-folder)"
    if flags.get("log_requests") == "True":
        return f"The request log has it: journalctl -u {crash.unit}, the last request before each crash"
    return "Start with --crash-dump-folder DIR, and the requests before the next crash are kept there"
