"""A shell's script and the words of its simple commands, each with its place, so that one word can be changed alone.

In: the text of the word after `bash -c`, as the unit has it (`%` and `$` still doubled, see `unitfile.Word`). Out: the
commands as `ShellWord`s, or `Refused` where the script is more than words can tell (a here-document, an open quote).
Called by `launch`. Pure; nothing is ever run. What the shell would put in is not worked out: such a word `expands`.
"""

from __future__ import annotations

import re
import shlex

from triage.frozen import frozen
from triage.model import Refused
from triage.units.unitfile import Word

_BLANKS = " \t"
_ENDS = ";&|()\n"
_MANAGER = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")  # the manager fills these in before the shell sees them


@frozen
class ShellWord(Word):
    """One word: `text` without the shell's quotes; script[begin:end] is its source."""

    begin: int = 0
    end: int = 0
    expands: bool = False  # shell or manager put something in
    splits: bool = False  # and it may become any number of words

    @property
    def splitting(self) -> bool:
        return self.splits

    @property
    def opaque(self) -> bool:
        return self.expands or "%" in self.text.replace("%%", "")


def shell_word(value: str) -> str:
    """The source of a new word that comes out as `value`, in a script that the manager reads first."""
    return shlex.quote(value).replace("%", "%%").replace("$", "$$")


def simple_commands(script: str) -> tuple[tuple[ShellWord, ...], ...]:
    """Words by simple command; redirections and comments are left out. Raises Refused on what is not understood."""
    found: list[tuple[ShellWord, ...]] = []
    words: list[ShellWord] = []
    at, redirected = 0, False
    while at < len(script):
        char = script[at]
        if char in _BLANKS or script.startswith("\\\n", at):
            at += 1 if char in _BLANKS else 2
        elif char == "#":
            end = script.find("\n", at)
            at = len(script) if end < 0 else end
        elif char in "<>" or script.startswith(("&>", ">&"), at):
            if script.startswith("<<", at) and not script.startswith("<<<", at):
                raise Refused("the script has a here-document")
            at += len(re.match(r"[<>&|]+", script[at:])[0])  # type: ignore[index]
            redirected = True
        elif char in _ENDS:
            found.append(tuple(words))
            words, redirected = [], False
            at += 1
        else:
            item = _Reader(script, at).word()
            at = item.end
            descriptor = item.raw.isdecimal() and script[at : at + 1] in ("<", ">") and at < len(script)
            if not redirected and not descriptor:
                words.append(item)
            redirected = False
    found.append(tuple(words))
    return tuple(command for command in found if command)


class _Reader:
    """Reads one word from `begin` on."""

    def __init__(self, script: str, begin: int) -> None:
        self.script, self.begin, self.at = script, begin, begin
        self.out: list[str] = []
        self.expands = self.splits = False

    def word(self) -> ShellWord:
        script = self.script
        while self.at < len(script) and script[self.at] not in _BLANKS + _ENDS + "<>":
            char = script[self.at]
            if char == "'":
                self._single()
            elif char == '"':
                self._double()
            elif char == "\\":
                self._take(script[self.at + 1 : self.at + 2].replace("\n", ""), 2)
            elif char in "$`":
                self._expansion(quoted=False)
            else:
                self._take(char, 1)
        raw = script[self.begin : self.at]
        return ShellWord(raw, "".join(self.out), self.begin, self.at, self.expands, self.splits)

    def _take(self, text: str, length: int) -> None:
        self.out.append(text)
        self.at += length

    def _single(self) -> None:
        end = self._closing("'", self.at + 1)
        inner = self.script[self.at + 1 : end]
        self.expands = self.expands or bool(_MANAGER.search(inner.replace("$$", "")))
        self._take(inner, end + 1 - self.at)

    def _double(self) -> None:
        self.at += 1
        while (char := self.script[self.at : self.at + 1]) != '"':
            if not char:
                raise Refused('the script has an unclosed "')
            if char == "\\" and self.script[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                self._take(self.script[self.at + 1].replace("\n", ""), 2)
            elif char in "$`":
                self._expansion(quoted=True)
            else:
                self._take(char, 1)
        self.at += 1

    def _expansion(self, *, quoted: bool) -> None:
        """A variable or a command's output: kept as it stands, its value is known to nobody here."""
        script, start = self.script, self.at
        self.expands, self.splits = True, self.splits or not quoted
        if script[start] == "`":
            end = self._closing("`", start + 1) + 1
        else:
            dollars = re.match(r"\$+", script[start:])[0]  # type: ignore[index]
            begin = start + len(dollars)
            opening = script[begin : begin + 1]
            if opening in ("(", "{"):
                end = self._balanced(begin)
            elif opening == "'" and not quoted:
                end = self._closing("'", begin + 1) + 1
            else:
                name = re.match(r"[A-Za-z_][A-Za-z0-9_]*|[@*#?!0-9-]?", script[begin:])
                end = begin + len(name[0] if name else "")
        self._take(script[start:end], end - start)

    def _balanced(self, begin: int) -> int:
        """The place behind the bracket that closes the one at `begin`."""
        pairs, open_brackets, at = {"(": ")", "{": "}"}, [], begin
        while at < len(self.script):
            char = self.script[at]
            if char == "\\":
                at += 1
            elif char in "'\"":
                at = self._closing(char, at + 1)
            elif char in pairs:
                open_brackets.append(pairs[char])
            elif open_brackets and char == open_brackets[-1]:
                open_brackets.pop()
                if not open_brackets:
                    return at + 1
            at += 1
        raise Refused("the script has a bracket that is not closed")

    def _closing(self, quote: str, at: int) -> int:
        while at < len(self.script) and self.script[at] != quote:
            at += 2 if quote != "'" and self.script[at] == "\\" else 1
        if at >= len(self.script):
            raise Refused(f"the script has an unclosed {quote}")
        return at
