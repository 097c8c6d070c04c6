"""`triage report INCIDENT`: what an upstream bug report needs of a crash, with what is private taken out.

In: the newest crash of an incident, as the store keeps it (secrets were masked before they got there). Out: Markdown on
stdout, or JSON. Host names, addresses, people's folders and the folders above a model go too, since this is made to be
pasted in public; whoever pastes it should still read it, and the last line says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from triage.cli.options import JSON
from triage.cli.screen import clean, print_json

_ADDRESS = re.compile(r"(?<![\w.])(?!127\.0\.0\.1|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_HOME = re.compile(r"/(home|Users)/[^/\s'\"]+")
_UNSAID = {"None", "False", "", "[]", "{}"}  # flags that say nothing
_PRIVATE_FLAGS = re.compile(r"(path|dir|file|addr|url|host|name)s?$")
Mask = Callable[[str], str]


@click.command("report")
@click.argument("number", metavar="INCIDENT", type=click.IntRange(min=1))
@JSON
def report(number: int, as_json: bool) -> None:
    """A masked bundle for an upstream bug report, of the newest crash of an incident."""
    from triage.cli.identity import enter
    from triage.model import InputError
    from triage.store import open_store

    store = open_store(enter().settings)
    try:
        view = store.incident(number, crash_limit=1)
    finally:
        store.close()
    if not view.crashes:
        raise InputError(f"incident {number} has no crash any more: nothing to report")
    document = bundle(dict(view.crashes[0].document), view.incident.alarms)
    if as_json:
        print_json(document)
    else:
        click.echo(markdown(document))


def bundle(crash: dict[str, Any], times: int) -> dict[str, Any]:
    """The facts, masked. `times`: how often it was seen on that unit."""
    mask = masker(crash["host"])
    flags = crash["context"]["flags"]
    kept = {name: _flag(name, value, mask) for name, value in flags.items() if value not in _UNSAID}
    root = {name: crash["root"][name] for name in ("rank", "exception", "frame")}
    return {
        "schema": 1,
        "title": mask(crash["title"]),
        "sglang_version": crash["sglang_version"],
        "phase": crash["phase"],
        "outcome": crash["outcome"],
        "seen": times,
        "root": {**root, "message": mask(crash["root"]["message"])},
        "ranks": crash["ranks"],
        "cascades": crash["cascades"],
        "signature": crash["signature"]["key"],
        "rules": [match["rule"] for match in crash["matches"]],
        "flags": kept,
        "end": {name: crash["end"][name] for name in ("result", "code", "status")} if crash["end"] else None,
        "evidence": {
            "grade": crash["evidence"]["grade"],
            "lines": [mask(line["text"]) for line in crash["evidence"]["lines"]],
        },
    }


def masker(host: str | None) -> Mask:
    """Takes out this host's name, addresses, people's folders and mail addresses."""
    name = re.compile(rf"(?<![\w-]){re.escape(host)}(?![\w-])") if host else None

    def mask(text: str) -> str:
        text = _HOME.sub(r"/\1/USER", _ADDRESS.sub("ADDRESS", _MAIL.sub("PERSON@HOST", text)))
        return name.sub("HOST", text) if name else text

    return mask


def _flag(name: str, value: str, mask: Mask) -> str:
    """Of a path or a name only its last part: what a model is called, not where it lies."""
    return mask(value.rstrip("/").rsplit("/", 1)[-1] if _PRIVATE_FLAGS.search(name) else value)


def markdown(document: dict[str, Any]) -> str:
    """As issue trackers render it. Log text stands indented, so that nothing in it can end the block."""
    root, frame = document["root"], document["root"]["frame"]
    at = f" at `{frame['file']}:{frame['line']}` in `{frame['function']}`" if frame else ""
    flags = [f"--{name.replace('_', '-')} {value}" for name, value in document["flags"].items()]
    end = document["end"]
    lines = [
        f"## {clean(document['title'])}",
        "",
        f"- SGLang: {document['sglang_version'] or 'not told by the log'}",
        f"- Phase: {document['phase']}; outcome: {document['outcome']}; seen {document['seen']} time(s)",
        f"- First to fail: {root['rank'] or 'the process'}, `{clean(root['exception'])}`{at}",
        f"- Ranks that failed: {' '.join(document['ranks']) or '-'}; {document['cascades']} failures followed",
        f"- End of the unit: {end['result']}, {end['code']} {end['status']}"
        if end
        else "- End of the unit: not in the log",
        f"- Evidence: {document['evidence']['grade']}; signature {document['signature']}; "
        f"rules: {', '.join(document['rules']) or 'none'}",
        "",
        "Server arguments that were set:",
        "",
        *(f"    {clean(flag)}" for flag in flags or ["(not in the log)"]),
        "",
        "Log, the telling lines:",
        "",
        *(f"    {clean(line)}" for line in document["evidence"]["lines"]),
        "",
        "(Made by triage; host names, addresses and folders were taken out. Read it before you post it.)",
    ]
    return "\n".join(lines)
