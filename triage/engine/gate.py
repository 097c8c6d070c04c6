"""Which lines can be passed over unread, so that a day of healthy traffic costs one search and not a million readings.

In comes a block of raw lines, out go the places of the words in it. Called by the sources: while the assembler is quiet
they hand on only lines that hold a word, else every line. It must not judge a line: a word makes it worth reading.

Why nothing is lost. While the assembler is quiet (`Assembler.quiet`: no crash, failure, traceback, request's text or
end is open or announced, and the plain file was seen to be a log), a process's line changes something only if

- it begins a traceback, a frame or an exception (`tracelines.WORDS`), is a sign or announces a traceback
  (`signs.WORDS`), begins a dump (`aside.WORDS`), opens a request's text (`payload.WORDS`), is containerd's
  piece of a line (`pieces.WORDS`), is a milestone, a warning or names the release (`milestones.WORDS`), or is the
  kernel's in a plain file (`manager.KERNEL_WORDS`). Each of these
  readers tests a word of its list first, and reads a part of the raw line, so that the word stands there too. Only
  where colours are taken off may a word come together that was not there: hence the escape;
- or by standing just before a traceback that breaks off (`aside`): the source hands on the lines before each one that
  `begins` a traceback, but not those above another word;
- or by its time, which counts where the next line has none: the source hands on the last line that has one;
- or as work of a server that has just failed a check of its health: `Assembler.quiet` is false then (`engine.hang`);
- or as the first work of a server that has come up: until then `Assembler.quiet` is false. Later work counts only
  while a failure is open (`Burst.add`);
- or as the first line of an invocation or process: the journal's reader hands on the first line of each, but where it
  takes it for a known process's by its head (`sources.sieve`), which no start and no end begins with.

How many were passed over is told too (`Batch.passed`, `Assembler.pass_over`): distances are counted in lines.

A server's first answers are counted, so until then all is read too (`Progress.expecting`); its speed is taken from
whatever is read, and the journal's reader hands on one line in two thousand for it.

One thing may be learned later: the name of a rank that has never yet written a line with a word (its start has many).
The manager's, the kernel's and journald's own lines are never passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from triage.automaton import Spots
from triage.engine import aside, hang, manager, milestones, payload, pieces, signs, tracelines

_READERS = (
    tracelines.WORDS,
    signs.WORDS,
    payload.WORDS,
    pieces.WORDS,
    aside.WORDS,
    milestones.WORDS,
    manager.KERNEL_WORDS,
    hang.WORDS,
    ("\x1b",),
)
# What many words have in common and healthy lines have not: by these they are sought (`automaton.Spots`).
PIECES = (
    *("glang", "GLang", "text", "nput", "utput", "prompt", "content", "messages", " line ", "ready", "nit ", "(): "),
    *("rror", "rrupt", "ailed", "emory", "imeout", "ignal", "atchdog", "fault", "exit", "erminate", "nvalid ", "not "),
    *("CUDA", "NCCL ", "STATUS_", "received", "apture ", "Load weight", "rocess", " dump", "back"),
)
CONTEXT = aside.LINES  # lines before one that may begin a traceback are handed on with it
_BEGINS = tuple(word.encode() for word in tracelines.BEGINS)


def words() -> tuple[str, ...]:
    """The words of all readers, without those that hold another."""
    every = sorted({word for reader in _READERS for word in reader}, key=len)
    short: list[str] = []
    for word in every:
        if not any(map(word.__contains__, short)):
            short.append(word)
    return tuple(short)


class Resting(Protocol):
    """What the gate needs of `triage.engine.assemble.Assembler`."""

    @property
    def quiet(self) -> bool: ...


class Gate:
    """A `triage.model.Gate` for the lines that one assembler reads."""

    def __init__(self, assembler: Resting, search: Callable[[bytes], list[int]] | None = None) -> None:
        self._assembler = assembler
        self._search = search

    @property
    def quiet(self) -> bool:
        """Whether lines without a word may be passed over now; ask again after each line that was handed on."""
        return self._assembler.quiet

    def begins(self, raw: bytes) -> bool:
        """Whether a line may begin a traceback: then those before it are evidence."""
        return any(word in raw for word in _BEGINS)

    @cached_property
    def spots(self) -> Callable[[bytes], list[int]]:
        """Offsets of words in whole raw lines, ascending, at least one for each line that holds any."""
        return self._search or Spots(words(), PIECES)
