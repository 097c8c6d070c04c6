"""Which of the server's settings a failing check names: in its message, or in the source line that raised.

A crash comes in; flags and variables as one writes them go out, at most three, those in plain sight first. Called by
`offer` where a ladder asks for it. A log is anybody's text: nothing is named but what the catalogue knows, and nothing
that triage never changes. Pure, but for the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from triage.model import Crash, Link
from triage.never import NEVER_FLAGS, NEVER_VARIABLES
from triage.rulebase.catalogue import catalogue

_MOST = 3
_HEAD = 600  # of a message: behind that it quotes other things
_SOURCE = 4  # lines of a statement, as Pythons from 3.13 on print it whole
# What these say names attributes of the code, not what is asked of the server.
_NO_CHECK = frozenset({"AttributeError", "NameError", "UnboundLocalError", "OutOfMemoryError", "CutTraceback"})
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]{1,30}(?:-[a-z0-9]{1,30}){0,8}")
_FIELD = re.compile(r"(?<![A-Za-z0-9_-])[a-z][a-z0-9]{0,30}(?:_[a-z0-9]{1,30}){1,8}(?!\w|\()")
_VARIABLE = re.compile(r"\bSGL(?:ANG)?_[A-Z0-9_]{3,60}")
_WORD = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z0-9]*(?!\w|\()")
_CHECK = re.compile(r"(?:assert|raise|if|elif)\b|server_args\.")
_FRAME = re.compile(r'\s*File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_SWITCHES = ("", "enable_", "disable_")
_NO_SETTING = frozenset({"host", "device", "dist_init_addr", "nccl_port", "node_rank", "base_gpu_id", "random_seed"})


def named(crash: Crash) -> tuple[str, ...]:
    """Flags as the release spells them, and variables, that the root's own check names."""
    release = crash.context.sglang_version
    found: dict[str, str] = {}  # by field: one may be written in several ways
    for link in crash.root.chain:
        if link.exception.rsplit(".", 1)[-1] in _NO_CHECK:
            continue
        message, line = link.message[:_HEAD], _source(crash, link)
        for field, name in (*_plain(message, release), *_plain(line, release), *_spoken(message, release)):
            found.setdefault(field, name)
    return tuple(found.values())[:_MOST]


def _plain(text: str, release: str | None) -> Iterator[tuple[str, str]]:
    """What is written as the command line, the code or the environment writes it."""
    book = catalogue()
    for flag in _FLAG.findall(text):
        declared = book.newest(flag)
        if declared and _may(f"--{declared.dest.replace('_', '-')}", declared.dest) and flag not in NEVER_FLAGS:
            yield declared.dest, flag
    for field in _FIELD.findall(text):
        if field in book.fields() and (name := _written(field, release)):
            yield field, name
    for variable in _VARIABLE.findall(text):
        if book.knows_variable(variable) and not any(fnmatchcase(variable, glob) for glob in NEVER_VARIABLES):
            yield variable, variable


def _spoken(text: str, release: str | None) -> Iterator[tuple[str, str]]:
    """What is said in words: 'page size', 'DP attention', 'chunked prefill'."""
    known, words = catalogue().fields(), [word.lower() for word in _WORD.findall(text)]
    at = 0
    while at < len(words):
        for many in (4, 3, 2):
            said = "_".join(words[at : at + many])
            field = next((one + said for one in _SWITCHES if one + said in known), None)
            if many <= len(words) - at and field and (name := _written(field, release)):
                yield field, name
                at += many - 1
                break
        at += 1


def _written(field: str, release: str | None) -> str | None:
    name = catalogue().setting(field, "True", release)
    return name if name and _may(name, field) else None


def _may(name: str, field: str) -> bool:
    return name not in NEVER_FLAGS and field not in _NO_SETTING


def _source(crash: Crash, link: Link) -> str:
    """The source line that raised, where it is a check; '' else."""
    if link.frame is None:
        return ""
    texts = [line.text for line in crash.root.lines]
    for at in range(len(texts) - 1, -1, -1):
        place = _FRAME.match(texts[at])
        if place and place["path"] == link.frame.path and place["line"] == str(link.frame.line):
            body = []
            for text in texts[at + 1 : at + 1 + _SOURCE]:
                if not text.startswith("    ") or not text.strip(" ~^"):
                    break
                body.append(text.strip())
            whole = " ".join(body)
            return whole if link.exception == "AssertionError" or _CHECK.match(whole) else ""
    return ""
