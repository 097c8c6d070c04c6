"""Many words sought in one pass over a text, whatever their number.

Called by `rulebase.rulebook` (which rules can match at all) and by `engine.gate` (which lines can matter at all). The
only room that knows the library; a plain loop over the words gives the same, and the tests hold it against this.
"""

from __future__ import annotations

from collections.abc import Sequence

import ahocorasick_rs


class Automaton:
    """Which of the words stand in a text. Overlapping: no word may hide another."""

    def __init__(self, words: Sequence[str]) -> None:
        kind = ahocorasick_rs.Implementation.DFA
        self._search = ahocorasick_rs.AhoCorasick(list(words), implementation=kind, store_patterns=False)

    def which(self, text: str) -> set[int]:
        """Their numbers."""
        return {hit[0] for hit in self._search.find_matches_as_indexes(text, overlapping=True)}


class Spots:
    """Where in a block of lines any of the words stands."""

    def __init__(self, words: Sequence[str]) -> None:
        self._search = ahocorasick_rs.BytesAhoCorasick(
            [word.encode() for word in words],
            matchkind=ahocorasick_rs.MatchKind.LeftmostFirst,
            implementation=ahocorasick_rs.Implementation.DFA,
        )

    def __call__(self, block: bytes) -> list[int]:
        """Offsets, ascending: at least one in each line that holds a word. A word that begins inside another may go
        untold, which is no loss, as both stand in one line."""
        return [hit[1] for hit in self._search.find_matches_as_indexes(block)]
