"""Many words sought in one pass over a text, whatever their number.

Called by `rulebase.rulebook` (which rules can match at all) and by `engine.gate` (which lines can matter at all). The
only room that knows the library; a plain loop over the words gives the same, and the tests hold it against this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ahocorasick_rs

FAST = 64  # words that the library seeks with vector instructions
CROWDED = 1024  # bytes to each piece: less, and the words are sought at once


class Automaton:
    """Which of the words stand in a text. Overlapping: no word may hide another. The texts are a crash's, a few kB: to
    build the fastest searcher (`Spots` has it) would cost more than it saves."""

    def __init__(self, words: Sequence[str]) -> None:
        kind = ahocorasick_rs.Implementation.ContiguousNFA
        self._search = ahocorasick_rs.AhoCorasick(list(words), implementation=kind, store_patterns=False)

    def which(self, text: str) -> set[int]:
        """Their numbers."""
        return {hit[0] for hit in self._search.find_matches_as_indexes(text, overlapping=True)}


class Spots:
    """Where in a block of lines any of the words stands.

    The library seeks `FAST` words with vector instructions, more of them four times as slowly. So it is `pieces` that
    are sought, parts of words that many of them share, and words that hold no piece; only lines in which one stands are
    searched for the words themselves. Where that is every other line (a storm of tracebacks) nothing is gained, and the
    block is searched for the words at once; so it is where a word of one letter stands (colours).
    """

    def __init__(self, words: Sequence[str], pieces: Sequence[str] = ()) -> None:
        self._letters = tuple(word.encode() for word in words if len(word) == 1)
        rest = (word for word in words if len(word) > 1 and not any(map(word.__contains__, pieces)))
        every = (*pieces, *rest)
        parts = -(-len(every) // FAST) or 1
        self._pieces = [_seek(every[n::parts]) for n in range(parts)]
        self._words = _seek(words)

    def __call__(self, block: bytes) -> list[int]:
        """Offsets, ascending: at least one in each line that holds a word. A word that begins inside another may go
        untold, which is no loss, as both stand in one line."""
        found = sorted(hit[1] for seek in self._pieces for hit in seek(block))
        if len(found) > len(block) // CROWDED or any(letter in block for letter in self._letters):
            return [hit[1] for hit in self._words(block)]
        spots: list[int] = []
        end = 0
        for at in found:
            if at >= end:
                start = block.rfind(b"\n", 0, at) + 1
                end = block.find(b"\n", at) + 1 or len(block)
                spots += [start + hit[1] for hit in self._words(block[start:end])]
        return spots


def _seek(words: Sequence[str]) -> Callable[[bytes], list[tuple[int, int, int]]]:
    search = ahocorasick_rs.BytesAhoCorasick(
        [word.encode() for word in words],
        matchkind=ahocorasick_rs.MatchKind.LeftmostFirst,
        implementation=ahocorasick_rs.Implementation.DFA,
    )
    find: Callable[[bytes], list[tuple[int, int, int]]] = search.find_matches_as_indexes
    return find
