"""What a viewer of logs put before each line, in brackets, braces or as name=value: taken off but for whose line it is.

In come the bytes of a text, out go the same with compose's 'name | ' (or a syslog head that holds no data) in place of
'{app="sglang", pod="llm-0"} ', 'app=sglang ', '(sglang) ', 'llm-0 (sglang) '. Called by `sources.stream`. A form is
taken off only where nearly each of the text's first lines has it: in a single line such words are its own. A number
that is another in nearly each of them (a place, a time, an id) is nobody's name. It must not know what stands before a
line without these signs: that is the work of `engine.lines` and `engine.margin`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from triage.engine.lines import parse
from triage.engine.tracelines import HEADER
from triage.sources.bytes import Bytes

SOME = 60  # first lines that are looked at
_VALUE = rb'(?:"[^"\n]{0,200}"|[\w./:@-]{1,200})'
_PAIRS = rb"(?:[\w.-]{1,80}=" + _VALUE + rb" ){1,20}"
_REST = rb'(?:msg|message|log|line|text|body)=(?!")'  # the rest of the line is its value, without quotes
_FORMS = tuple(
    re.compile(rb"^(?P<front>" + form + rb")", re.MULTILINE)
    for form in (
        rb"\{[\w.-]{1,80}=" + _VALUE + rb"(?:, ?[\w.-]{1,80}=" + _VALUE + rb"){0,40}\} ",  # Loki's labels
        rb"(?:" + _PAIRS + rb"(?:" + _REST + rb")?|" + _REST + rb")",
        rb"(?:[\w./-]{1,200} )?\([\w./@-]{1,200}\) ",  # a container's name, or a pod's and its
    )
)
_ELEMENT = rb'\[[^\]\n"]{1,200}(?:"(?:[^"\\\n]|\\.){0,200}"[^\]\n"]{0,200}){0,20}\]'
_DATA = re.compile(  # RFC 5424's data, between its head and the message
    rb'^(?P<front><\d{1,3}>1 (?:[^\s\["]{1,200} ){5})(?:' + _ELEMENT + rb"){1,9} ", re.MULTILINE
)
_PAIR = re.compile(rb"(?P<name>[\w.-]+)=(?P<value>" + _VALUE + rb")")
_ASIDE = frozenset({b"level", b"detected_level", b"severity", b"stream", b"filename", b"logstream", b"time", b"ts"})
_TELLING = frozenset({b"pid", b"tid", b"rank", b"local_rank", b"process", b"thread", b"worker"})  # numbers all the same
_COUNTED = re.compile(rb'"?(?:\d+(?:\.\d+)?|\d{4}-\d\d-\d\d[\dT :.+Z-]*|[0-9a-f]{4}[0-9a-f-]{8,})"?')
_ENOUGH = 8  # lines, to say that something differs in nearly each
_HEAD = re.compile(r".{1,200}?\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d")


class Front(NamedTuple):
    """What stands before each line."""

    form: re.Pattern[bytes]
    aside: frozenset[bytes]  # pairs that name nobody; b"": what stands in brackets does not

    def off(self, data: bytes) -> bytes:
        """Lines with whose they are, as compose says it, in its place."""
        return self.form.sub(lambda match: _known(match, self.aside), data)


class Fronted:
    """The text's bytes by line or block, as `Bytes` gives them, in a form that the engine knows."""

    def __init__(self, data: Bytes, form: Front) -> None:
        self._data = data
        self._form = form

    def line(self) -> bytes | None:
        """The next line without its end."""
        line = self._data.line()
        return None if line is None else self._form.off(line)

    def block(self) -> bytes | None:
        """Whole lines, each with its end."""
        block = self._data.block()
        return None if block is None else self._form.off(block)


def front(head: bytes) -> Front | None:
    """The form of what stands before each line of a text that begins so; None: none of these does."""
    lines = _first(head)
    for form in (*_FORMS, _DATA):
        found = [match for line in lines if (match := form.match(line)) is not None]
        if found and len(found) >= 0.9 * len(lines) and any(_is_log(match) for match in found):
            return Front(_as_many(form, found), _ASIDE | _counted(found))
    return None


def _counted(found: list[re.Match[bytes]]) -> frozenset[bytes]:
    """The names whose value is another number in nearly each line."""
    values: dict[bytes, set[bytes]] = {}
    for match in found:
        for name, value in _said(match["front"]):
            values.setdefault(name, set()).add(value if _COUNTED.fullmatch(value) else b"")
    most = max(_ENOUGH, 0.9 * len(found))
    return frozenset(name for name, told in values.items() if len(told - {b""}) >= most) - _TELLING


def _said(written: bytes) -> list[tuple[bytes, bytes]]:
    """Names and values; what stands in brackets has no name."""
    pairs = [(pair["name"], pair["value"]) for pair in _PAIR.finditer(written)] if b"=" in written else []
    return pairs or [(b"", written.strip(b"( )"))]


def _as_many(form: re.Pattern[bytes], found: list[re.Match[bytes]]) -> re.Pattern[bytes]:
    """The form with no more pairs than each line has: what a message itself begins with is its own."""
    count = b"{%d}" % min(len(_PAIR.findall(match[0])) for match in found) if _PAIRS in form.pattern else b"{1,20}"
    return re.compile(form.pattern.replace(b"{1,20}", count), form.flags)


def strange_front(head: bytes) -> bool:
    """Whether SGLang's own heads stand behind something that is not known."""
    texts = [line.decode("utf-8", "replace") for line in _first(head)]
    behind = [text for text in texts if _HEAD.match(text) is not None]
    return 4 * len(behind) > len(texts) and not any(parse(text).headed for text in texts)


def _first(head: bytes) -> list[bytes]:
    lines = [line for line in head.split(b"\n", SOME + 1)[: SOME + 1] if line.strip()]
    return lines[:-1][:SOME] or lines  # the last one may be cut


def _is_log(match: re.Match[bytes]) -> bool:
    text = match.string[match.end() :].decode("utf-8", "replace")
    return parse(text).headed or HEADER in text


def _known(match: re.Match[bytes], aside: frozenset[bytes]) -> bytes:
    written = match["front"]
    return written + b"- " if match.re is _DATA else _named(written, aside)


@lru_cache(1024)
def _named(written: bytes, aside: frozenset[bytes]) -> bytes:
    """Whose line it is, as compose says it."""
    words = b"-".join(value for name, value in _said(written) if name not in aside)
    name = re.sub(rb"[^\w.-]+", b"-", words).strip(b"-_.")
    return name + b" | " if name else b"log | "
