"""A unit's text and what systemd makes of it: entries, words, the effective command and environment.

In: the files of a unit as they lie on disk (`actionmodel.Unit`). Out: `Effective`, whose words keep their source text,
so that what nobody edits is written again as it was (quotes, `%i`, `$ARGS`). Called by `edits`, `dropin` and above.
Pure: no file is opened here. The syntax is that of systemd.syntax(7) and systemd.service(5), tried on systemd 252: a
comment inside a continuation is skipped, quotes count in the middle of a word, both kinds of quotes take C escapes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from triage.actionmodel import Owner, Unit, UnitFile
from triage.frozen import frozen
from triage.model import Refused

DROP_IN = "zzz-triage.conf"  # sorts after override.conf; the one file triage writes
PREFIXES = "-@:+!|"
_BLANKS = " \t\n\r"
_LINE_END = re.compile(r"\r\n|\n\r|\n|\r|\0")
_BARE = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SPLITTING = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE_ESCAPES = dict(zip("abfnrtvs\"'\\", "\a\b\f\n\r\t\v \"'\\", strict=True))
_CODED_ESCAPE = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
UNIT_NAME = re.compile(r"(?!\.)[A-Za-z0-9:_.\\@-]{1,240}\.service")


@frozen
class Entry:
    """One assignment. `value` is the logical line: continuations joined by blanks, comments in between dropped."""

    section: str
    key: str
    value: str
    path: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


@frozen
class Word:
    """One word of a command line: `raw` as written, `text` without quotes and escapes, `%` and `$` untouched."""

    raw: str
    text: str

    @property
    def splitting(self) -> bool:
        """A bare `$ARGS`: systemd makes any number of words of it."""
        return _SPLITTING.fullmatch(self.text) is not None

    @property
    def opaque(self) -> bool:
        """Whether its value is known only to the manager: a variable or a specifier is in it."""
        if self.splitting or _VARIABLE.search(self.text):
            return True
        return "%" in self.text.replace("%%", "")

    @property
    def literal(self) -> str:
        """What the program sees, for a word that is not opaque."""
        return self.text.replace("%%", "%").replace("$$", "$")


@frozen
class Command:
    """One command of ExecStart=. The first word carries the prefixes."""

    words: tuple[Word, ...]

    @property
    def prefix(self) -> str:
        first = self.words[0].text
        return first[: len(first) - len(first.lstrip(PREFIXES))]

    @property
    def program(self) -> str:
        return self.words[0].text[len(self.prefix) :]

    @property
    def argv(self) -> tuple[str, ...]:
        """The words as the manager keeps them, `%` and `$` untouched; argv[0] first."""
        rest = tuple(word.text for word in self.words[1:])
        return rest if "@" in self.prefix else (self.program, *rest)


@frozen
class Effective:
    """What is in force when all files of a unit are merged. `environment` is that of Environment= alone."""

    unit: str
    commands: tuple[Command, ...]
    environment: Mapping[str, str]
    unset: tuple[str, ...]
    environment_files: tuple[str, ...]  # as written, a leading '-' included
    settings: Mapping[str, str] = field(default_factory=dict)  # 'Service.Type' -> last value given
    filed: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # from EnvironmentFile=: value, path of the file

    @property
    def variables(self) -> dict[str, str]:
        """What `$X` stands for, written as in Environment= (`%%` is a percent sign). Files beat Environment=."""
        found = {**self.environment, **{name: value.replace("%", "%%") for name, (value, _) in self.filed.items()}}
        return {name: value for name, value in found.items() if name not in self.unset}


# ---------------------------------------------------------------- reading


def entries(file: UnitFile) -> Iterator[Entry]:
    """The assignments of one file in order. Lines that systemd would warn about and ignore are left out."""
    section = ""
    for number, line in _logical_lines(file.text):
        text = line.strip(_BLANKS)
        if text.startswith("["):
            section = text[1:-1] if text.endswith("]") else ""
        elif section and "=" in text:
            key, _, value = text.partition("=")
            yield Entry(section, key.strip(_BLANKS), value.strip(_BLANKS), file.path, number)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    joined, start = "", 0
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), 1):
        if line.lstrip(_BLANKS)[:1] in ("#", ";"):
            continue
        start = start or number
        joined += line
        if _ends_escaped(joined):
            joined = joined[:-1] + " "
            continue
        yield start, joined
        joined, start = "", 0
    if joined:
        yield start, joined


def _ends_escaped(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def split(value: str) -> tuple[Word, ...]:
    """The words of a value, as systemd takes them apart. Raises Refused on quotes that do not close."""
    words: list[Word] = []
    at = 0
    while True:
        while at < len(value) and value[at] in _BLANKS:
            at += 1
        if at >= len(value):
            return tuple(words)
        start = at
        text, at = _one_word(value, at)
        words.append(Word(value[start:at], text))


def _one_word(value: str, at: int) -> tuple[str, int]:
    out: list[str] = []
    quote = ""
    while at < len(value):
        char = value[at]
        if char == "\\":
            piece, at = _escape(value, at + 1)
            out.append(piece)
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                out.append(char)
        elif char in "\"'":
            quote = char
        elif char in _BLANKS:
            break
        else:
            out.append(char)
        at += 1
    if quote:
        raise Refused(f"the unit has an unclosed {quote} in: {value[:80]}")
    text = "".join(out)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"), at


def _escape(value: str, at: int) -> tuple[str, int]:
    """What follows a backslash. Unknown escapes stay as they are: systemd warns and keeps them."""
    char = value[at : at + 1]
    if char in _SIMPLE_ESCAPES and char:
        return _SIMPLE_ESCAPES[char], at + 1
    coded = _CODED_ESCAPE.match(value, at)
    if coded:
        byte = int(coded[4], 8) if coded[4] else int(coded[1] or "0", 16)
        if 0 < byte < 256:
            return bytes([byte]).decode("utf-8", "surrogateescape"), coded.end()
        point = int(coded[2] or coded[3] or "0", 16)
        if 0 < point < 0x110000 and not 0xD800 <= point < 0xE000:
            return chr(point), coded.end()
    return "\\" + char, at + len(char)


def commands(value: str) -> tuple[Command, ...]:
    """The commands of one ExecStart= value; a lone `;` parts them, `\\;` is a word."""
    found: list[Command] = []
    words: list[Word] = []
    for word in (*split(value), Word(";", ";")):
        if word.raw != ";":
            words.append(Word(word.raw, ";") if word.raw == "\\;" else word)
        elif words:
            found.append(Command(tuple(words)))
            words = []
    return tuple(found)


def effective(unit: Unit, *, with_drop_in: bool = False) -> Effective:
    """All files merged in systemd's order; triage's own drop-in only when asked for."""
    execs: list[Command] = []
    environment: dict[str, str] = {}
    unset: list[str] = []
    files: list[str] = []
    settings: dict[str, str] = {}
    for file in unit.files:
        if own_drop_in(file.path) and not with_drop_in:
            continue
        for entry in entries(file):
            settings[entry.name] = entry.value
            if entry.section != "Service":
                continue
            if entry.key == "ExecStart":
                execs = [*execs, *commands(entry.value)] if entry.value else []
            elif entry.key == "Environment":
                environment = {**environment, **_assignments(entry.value)} if entry.value else {}
            elif entry.key == "UnsetEnvironment":
                unset = [*unset, *(word.text for word in split(entry.value))] if entry.value else []
            elif entry.key == "EnvironmentFile":
                files = [*files, entry.value] if entry.value else []
    filed = {
        name: (value, file.path)
        for file in unit.environment_files
        for name, value in environment_file(file.text).items()
    }
    return Effective(unit.name, tuple(execs), environment, tuple(unset), tuple(files), settings, filed)


def _assignments(value: str) -> dict[str, str]:
    found = {}
    for word in split(value):
        name, equals, text = word.text.partition("=")
        if equals:
            found[name] = text
    return found


def environment_file(text: str) -> dict[str, str]:
    """The assignments of an EnvironmentFile=: shell-like quotes and continuations, no variables."""
    found = {}
    for line in _LINE_END.split(text.replace("\\\n", "")):
        name, equals, value = line.strip(_BLANKS).partition("=")
        if equals and name.strip() and name[0] not in "#;":
            found[name.strip()] = _shell_value(value.strip(_BLANKS))
    return found


def _shell_value(value: str) -> str:
    out: list[str] = []
    quote, at = "", 0
    while at < len(value):
        char = value[at]
        if char == "\\" and quote != "'" and at + 1 < len(value):
            at += 1
            out.append(value[at] if not quote or value[at] in '"\\`$' else "\\" + value[at])
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        else:
            out.append(char)
        at += 1
    return "".join(out)


# ---------------------------------------------------------------- writing


def quote(value: str, *, variables: bool = True) -> str:
    """A new word of a command line that comes out as `value`. `variables`: off where `$` has no meaning."""
    if _BARE.fullmatch(value):
        return value
    text = value.replace("%", "%%")
    return quoted(text.replace("$", "$$") if variables else text)


def quoted(text: str) -> str:
    """The source of a word whose text, `%` and `$` as they are, is this."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + '"'


def word(value: str, *, variables: bool = True) -> Word:
    """A new word whose value is `value`, whatever is in it."""
    text = value.replace("%", "%%")
    return Word(quote(value, variables=variables), text.replace("$", "$$") if variables else text)


def expand(argv: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The words with variables replaced as the manager does at exec: `$X` alone splits, `${X}` does not."""
    out: list[str] = []
    for text in argv:
        if _SPLITTING.fullmatch(text):
            out += [piece for piece, _, _ in split_variable(environment.get(text[1:], ""))]
        else:
            replaced = _VARIABLE.sub(lambda found: environment.get(found[0][2:-1], ""), text.replace("$$", "\0"))
            out.append(replaced.replace("\0", "$"))
    return tuple(out)


def split_variable(value: str) -> list[tuple[str, int, int]]:
    """The words that `$X` alone becomes, each with its place in the value: quotes count, a backslash goes."""
    found: list[tuple[str, int, int]] = []
    at = 0
    while at < len(value):
        if value[at] in _BLANKS:
            at += 1
            continue
        start, out, quote = at, "", ""
        while at < len(value) and (quote or value[at] not in _BLANKS):
            char = value[at]
            if char == "\\" and at + 1 < len(value):
                at += 1
                out += value[at]
            elif char == quote:
                quote = ""
            elif not quote and char in "\"'":
                quote = char
            else:
                out += char
            at += 1
        found.append((out, start, at))
    return found


# ---------------------------------------------------------------- names and digests


def specifiers(text: str, unit: str, owner: Owner | None = None) -> str:
    """A path with what stands for the unit's name put in, and for the user whose it is; others stay as they are."""
    stem = unit.removesuffix(".service")
    prefix, _, instance = stem.partition("@")
    known = {"%n": unit, "%N": stem, "%p": prefix, "%i": instance, "%%": "%"}
    if owner is not None:
        known |= {"%h": owner.home, "%u": owner.name, "%U": str(owner.uid), "%t": owner.runtime}
        known |= {"%E": f"{owner.home}/.config", "%C": f"{owner.home}/.cache"}
    return re.sub(r"%.", lambda found: known.get(found[0], found[0]), text)


def own_drop_in(path: str) -> bool:
    return path.rsplit("/", 1)[-1] == DROP_IN


def drop_in_path(unit: str, owner: Owner | None = None) -> str:
    """Where triage's one file for this unit lies. Raises Refused on a name that is not a service's."""
    if not UNIT_NAME.fullmatch(unit) or ".." in unit:
        raise Refused(f"{unit[:80]!r} is not the name of a service unit")
    return f"{owner.folder if owner else '/etc/systemd/system'}/{unit}.d/{DROP_IN}"


def systemctl_of(owner: Owner | None) -> str:
    """What a person types as root before the verb."""
    return f"systemctl --user -M {owner.name}@" if owner else "systemctl"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def unit_digest(unit: Unit) -> str:
    """Of all files that make the unit, triage's own included: any change of any of them changes it."""
    whole = hashlib.sha256()
    for file in unit.files:
        data = file.text.encode("utf-8", "surrogateescape")
        whole.update(f"{file.path}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    return whole.hexdigest()
