"""What a unit's server was started with when it last came up, against what it is started with now: the way back.

A crash and a ladder's edits come in; a rung to be done by hand goes out. Called by `offer`. Pure. It is no edit: SGLang
works out some of its arguments by itself, and those differ too where nobody changed them.
"""

from __future__ import annotations

from collections.abc import Iterable

from triage.model import Crash, Edit, Phase, Remedy
from triage.never import NEVER_FLAGS
from triage.rulebase.catalogue import catalogue
from triage.rulebase.options import NOT_SET, fields

_MOST = 3  # flags named; of more, most came with something else
_BEFORE = frozenset({Phase.ARGUMENTS, Phase.LOAD, Phase.MEMORY, Phase.CAPTURE, Phase.WARMUP})


def way_back(crash: Crash, edits: Iterable[Edit]) -> tuple[Remedy, bool] | None:
    """The rung, and whether it goes before all others: where one of their edits is about a flag that changed.

    None where the last good run is not known or nothing changed, and, once it served, unless an edit is about it."""
    changes = {name: (before, now) for name, before, now in crash.context.changes or ()}
    release, now = changes.pop("sglang_version", (None, None))
    about = {field for edit in edits for field in fields(edit.name) if field in changes} if changes else set()
    if not about and crash.phase not in _BEFORE:
        return None
    if release and now:
        title, versions = f"Go back to sglang {release}, with which it last came up (now {now})", f"sglang=={release}"
        return Remedy(
            "last-good-release", "advice", title, "What the newer release was for.", False, versions=versions
        ), False
    told = [_as_it_was(name, *changes[name], crash.context.sglang_version) for name in about or sorted(changes)]
    named = [text for text in told if text]
    if not named or len(named) > _MOST:
        return None
    title = f"Go back to what it last came up with: {', '.join(named)}"
    return Remedy("last-good-flags", "advice", title, "What the change was for.", False), bool(about)


def _as_it_was(field: str, before: str | None, now: str | None, release: str | None) -> str:
    """'--page-size 1 (now 64)'; '' for what is no flag, or one that triage has no word on."""
    unset = before is None or before in NOT_SET
    name = catalogue().setting(field, (now if unset else before) or "", release)
    if name is None or name in NEVER_FLAGS:
        return ""
    if unset:
        return f"without {name}"
    return name if before == "True" else f"{name} {before} (now {'none' if now is None or now in NOT_SET else now})"
