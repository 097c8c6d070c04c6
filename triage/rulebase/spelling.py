"""Edits in the words of a release: its names for flags, what each takes, or why that release has no such edit.

In: the edits of a remedy, a release and who knows its words (the catalogue, or the installed server itself). Out: the
same edits respelled. Called by `offer`, where the log tells the release, and by planning. It must not look at the unit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from triage.model import Edit, Remedy
from triage.rulebase.catalogue import Vocabulary, catalogue
from triage.rulebase.releases import covers, release_key

_SEVERAL = ("cap-flag", "scale-flag", "step-flag", "search-flag", "remove-flag")  # these may list several spellings
_TAKING = ("remove-flag", "unset-env")


def respelled(remedy: Remedy, release: str | None, book: Vocabulary | None = None) -> Remedy:
    """The remedy in the words of the server that is installed, or blocked with the reason. For planning.

    `book`: what that server says of itself; without it the catalogue answers for the release."""
    if (release is None and book is None) or not remedy.edits:
        return remedy
    if release and (why := next((why for where, why in remedy.known_bad if known_in(where, release)), None)):
        return replace(remedy, blocked_by=remedy.blocked_by or makes_worse(why, release))
    here = spelled(_parts(remedy), release or "of its own build", book)
    edits = tuple(edit for part in here.parts for edit in part)
    return replace(remedy, edits=edits, blocked_by=remedy.blocked_by or here.why)


def doubted(remedy: Remedy, release: str | None, book: Vocabulary | None = None) -> str:
    """In words that nobody can say whether that release takes the edits; '' where it is known."""
    return (spelled(_parts(remedy), release, book).doubt if release else None) or ""


def _parts(remedy: Remedy) -> list[list[Edit]]:
    parts: list[list[Edit]] = []
    for edit in remedy.edits:  # neighbours that say the same of different names are spellings of one change
        last = parts[-1][-1] if parts else None
        if last is not None and edit.op in _SEVERAL and replace(last, name=edit.name) == edit:
            parts[-1].append(edit)
        else:
            parts.append([edit])
    return parts


class Spelling(NamedTuple):
    """Edits in the words of a release."""

    parts: list[list[Edit]]
    renamed: tuple[str, ...] = ()  # new names that were put in
    why: str | None = None  # it cannot be done
    doubt: str | None = None  # whether it can is not known; the edits are as they were


def spelled(parts: list[list[Edit]], release: str, book: Vocabulary | None = None) -> Spelling:
    """The edits as this release spells its flags, or why it cannot be done, or that this is not known.

    A part lists the spellings of one change; one of them has to be there. What is to be taken away and is not there
    anyway is left out. A release that nobody catalogued is spoken for by the two around it where they agree.
    """
    book = book or catalogue()
    near = book.near(release) if parts else ()
    told = [_spelled(parts, one, release, book) for one in near]
    if not told:
        return Spelling(parts)
    if all(one == told[0] for one in told) or all(one.why for one in told):
        return told[0]
    return Spelling(parts, doubt=f"not known for sglang {release}: {' and '.join(near)} differ")


def _spelled(parts: list[list[Edit]], release: str, said: str, book: Vocabulary) -> Spelling:
    """By the words of `release`; reasons name the one they are told for."""
    out: list[list[Edit]] = []
    renamed: list[str] = []
    nothing = None
    for part in parts:
        told = [_here(edit, release, said, book) for edit in part]
        kept = [edit for edit, _ in told if edit is not None]
        why = next((why for _, why in told if why), None)
        if kept:
            out.append(kept)
            renamed += [edit.name for edit in kept if edit not in part]
        elif part[0].op in _TAKING:
            nothing = nothing or why
        else:
            return Spelling(parts, why=why)
    return Spelling(out, tuple(renamed)) if out else Spelling(parts, why=nothing)


def _here(edit: Edit, release: str, said: str, book: Vocabulary) -> tuple[Edit | None, str | None]:
    """One edit in the words of one release, or why it has none."""
    if edit.op.endswith("-env"):
        ours = book.knows_variable(edit.name) and not book.variable(edit.name, release)
        return (None, f"sglang {said} knows no {edit.name} (it is in {book.span(edit.name)})") if ours else (edit, None)
    if not edit.op.endswith("-flag") or not book.knows(edit.name):
        return edit, None
    declared = book.flag(edit.name, release)
    if declared is None:
        new = book.successor(edit.name, release)
        if new is None:
            return None, f"sglang {said} has no {edit.name} (it is in {book.span(edit.name)})"
        name, value = new
        if value is not None and edit.op != "set-flag":
            return None, f"sglang {said} has no {edit.name} any more: {name} {value} stands for it"
        edit, declared = (
            replace(edit, name=name, value=edit.value if value is None else value),
            book.flag(name, release),
        )
    for wanted in _values(edit):
        if declared is not None and (why := declared.refusal(wanted)):
            return None, f"{edit.name} {why} in sglang {said}"
    return edit, None


def _values(edit: Edit) -> tuple[str | int | float | None, ...]:
    """What the flag may come to by this edit, as it would be written: 128.0 is 128."""
    given = (edit.value,) if edit.op in ("set-flag", "cap-flag") else ()
    values = (*given, *(bound for bound in (edit.floor, edit.ceiling) if bound is not None))
    return tuple(int(value) if isinstance(value, float) and value.is_integer() else value for value in values)


def known_in(ranges: str, release: str) -> bool:
    """A build that nobody can place is not said to be among them."""
    return release_key(release) is not None and covers(ranges, release)


def makes_worse(why: str, release: str | None) -> str:
    return f"it is known to make it worse {f'in sglang {release}' if release else 'here'}: {why}"
