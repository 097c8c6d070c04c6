"""A first draft of a rule out of one crash that was kept: YAML that loads, with a sample of the crash itself.

Called by `triage rules draft`. Patterns come from the signature's parts (what varies is taken out already), the sample
from the evidence, masked. What only a person can know is a TODO. The caller proves it like any other rule. Pure.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from triage.engine.lines import visible
from triage.engine.signature import template
from triage.masking import MASK

_HOLES = {  # what a signature puts in the place of what varies -> what a rule writes there
    "<n>": "-?[0-9.]+",
    "<path>": r"[^\s'\"]{1,200}",
    "<url>": r"[^\s'\"]{1,200}",
    "<address>": r"[\w.:-]{1,100}",  # the sample has a word in its place
    "<size>": "[0-9.]+ ?[A-Za-z]+",
    "<time>": "[^\\n]{5,30}",
    "<id>": "[0-9a-fA-F-]+",
}
_HIDDEN = r"\S{1,200}"
_HOLE = re.compile("(<(?:n|path|url|address|size|time|id)>)")
_BEFORE = {  # the line that says how far the server had come
    "load": "Load weight begin. avail mem=78.00 GB",
    "memory": "Load weight end. elapsed=40.12 s, type=LlamaForCausalLM, avail mem=20.00 GB, mem usage=58.00 GB.",
    "capture": "Capture cuda graph begin. This can take up to several minutes. avail mem=9.80 GB",
    "warmup": "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    "serving": "The server is fired up and ready to roll!",
}
_END = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # YAML takes none
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
SAMPLE_LINES = 60


def name(document: Mapping[str, Any]) -> str:
    """A rule's id for the crash: its exception and the function it failed in."""
    frame = document["root"]["frame"]
    words = f"{document['root']['exception'].rsplit('.', 1)[-1]} {frame['function'] if frame else document['phase']}"
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", words)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60] or "new-rule"


def pattern(message: str, mask: Callable[[str], str] = str) -> str:
    """The first line of a message as a regular expression: its words as they are, bounded holes where it varies or
    where `mask` would hide something."""
    parts = _HOLE.split(template(message)[:160])
    return "".join(_HOLES.get(part) or _literal(part, mask) for part in parts)


def _literal(text: str, mask: Callable[[str], str]) -> str:
    shown = {word for word in mask(text).split() if MASK not in word}
    words = re.split(r"(\s+)", text)
    return "".join(_escaped(word) if word in shown or not word.strip() else _HIDDEN for word in words)


def _escaped(text: str) -> str:
    return re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", text)


def draft(document: Mapping[str, Any], mask: Callable[[str], str], log: str) -> str:
    """The rule file. `log` is the sample, one of `samples`."""
    root, frame = document["root"], document["root"]["frame"]
    match = [f"exception: {_quoted(root['exception'])}"]
    if text := pattern(root["message"], mask):
        match.append(f"message: {_quoted(text)}")
    if frame:
        match.append(f"at: {_quoted(frame['file'] + ':' + frame['function'])}")
    if document["phase"] != "unknown":
        match.append(f"phase: [{document['phase']}]")
    title = textwrap.shorten(mask(document["signature"]["title"]), 110, placeholder=" ...")
    title = title.replace("{", "(").replace("}", ")")  # in a title they name what a pattern captures
    nearest = [f"# near: {near['rule']}: {why}" for near in document.get("nearest") or () for why in near["why"]]
    indented = "\n".join(f"      {line}".rstrip() for line in log.splitlines())
    return "\n".join(
        [
            "# TODO: go through every line; drop what is only this machine's, keep what the mechanism always prints.",
            *(line[:160] for line in nearest),
            f"title: {_quoted(title)}  # TODO: what happened, in words of an operator",
            "cause: >",
            "  TODO: what happened and why, for somebody who is woken by it.",
            f"severity: {document['severity']}",
            "confidence: 0.8",
            "match:",
            *(f"  {line}" for line in match),
            "remedies:",
            "  - id: todo",
            "    kind: advice  # TODO: flag, env or unit with edits, where triage can carry it out",
            '    title: "TODO: the cheapest way out first"',
            '    cost: "TODO."',
            "    confirmed: false",
            "---",
            "samples:",
            "  - name: as it was seen  # TODO: hosts, paths, prompts and names that are left have to go",
            "    log: |",
            indented,
            "# near_misses: TODO, `why:` and `log:` of what looks most like it and is something else",
            "",
        ]
    )


def samples(document: Mapping[str, Any], mask: Callable[[str], str]) -> Iterator[str]:
    """Little logs of the crash, the shortest first: what the first rank wrote, then all that was kept."""
    lines = document["evidence"]["lines"]
    rank = document["root"]["rank"]
    own = [line for line in lines if line["origin"] == "process" and line["rank"] in (rank, None)]
    for chosen in (own[:SAMPLE_LINES], own, lines[: 4 * SAMPLE_LINES]):
        yield from (mask(text) for text in _logs(document, chosen))


def _logs(document: Mapping[str, Any], lines: list[Mapping[str, Any]]) -> Iterator[str]:
    texts = [_CONTROL.sub("", visible(line["text"])) for line in lines]
    if any(line["origin"] in ("manager", "kernel") for line in lines):
        yield "\n".join(_syslog(document, line, text) for line, text in zip(lines, texts, strict=True)) + "\n"
        return
    stamp = next((found.group()[1:] for text in texts if (found := _STAMP.match(text))), "2026-06-01 12:00:00")
    before = _BEFORE.get(document["phase"])
    head = [f"[{stamp}] {before}"] if before and not any(before[:24] in text for text in texts) else []
    end = [f"[{stamp}] {_END}"] if document["outcome"] == "fatal" and not any("SIGQUIT" in t for t in texts) else []
    yield "\n".join([*head, *texts, *([""] if end else []), *end]) + "\n"


def _syslog(document: Mapping[str, Any], line: Mapping[str, Any], text: str) -> str:
    writer = {"manager": "systemd[1]", "kernel": "kernel"}.get(line["origin"], "python[4242]")
    return f"Jun 01 12:00:00 host {writer}: {text}"


def _quoted(text: str) -> str:
    """As YAML reads it back, whatever is in it: single quotes, where that is possible, leave patterns readable."""
    return "'" + text.replace("'", "''") + "'" if text.isascii() and text.isprintable() else json.dumps(text)
