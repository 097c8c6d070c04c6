"""What a release says of the flags of an edit, put into the edit, for root's side knows no catalogue.

In: a remedy, the flags as the unit's command spells them, the server's release. Out: the remedy with `Edit.also` (which
words of the command abbreviate the flag) and `Edit.takes` (whether a word behind it is its value). Called by
`planning`. Where the release is not known, what all catalogued releases agree on counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from triage.model import Edit, Remedy
from triage.rulebase.catalogue import Catalogue, catalogue


def hinted(remedy: Remedy, spelled: Iterable[str], release: str | None) -> Remedy:
    """`spelled`: the names of the command's flags as they stand there."""
    words = frozenset(spelled)
    return replace(remedy, edits=tuple(_hinted(edit, words, release, catalogue()) for edit in remedy.edits))


def _hinted(edit: Edit, words: frozenset[str], release: str | None, book: Catalogue) -> Edit:
    if not edit.op.endswith("-flag") or not book.knows(edit.name):
        return edit
    asked = book.near(release) or book.releases
    having = {one: found for one in asked if (found := book.flag(edit.name, one))}
    takes = {found.takes for found in having.values()}
    also = [
        word
        for word in sorted(words)
        if edit.name.startswith(word)
        and word != edit.name
        and all((found := book.flag(word, one)) and found.dest == having[one].dest for one in having)
    ]
    return replace(edit, also=tuple(also) if having else (), takes=takes.pop() if len(takes) == 1 else "")
