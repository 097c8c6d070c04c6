"""Templates to HTML: the jinja2 environment and the filters the templates use.

Values go in as rows, documents and plans; text comes out. Called by `pages` and, for errors, by `app`. Autoescape is on
for every template and an unknown name is an error, never an empty string. Nothing here reads the store.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import SequenceMatcher
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from triage.actionmodel import Plan
from triage.dashboard.logtext import flat, shown
from triage.model import Edit
from triage.rulebase.rule import EditText, slots
from triage.shipped import shipped

MICRO = 1_000_000
_RANK = re.compile(r"TP(\d+)|(\d+)")


def _utc(time_: int) -> datetime:
    return datetime.fromtimestamp(time_ / MICRO, UTC)


def iso(time_: int) -> str:
    """For the datetime attribute and the API: 2026-11-29T02:14:07Z."""
    return _utc(time_).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(time_: int) -> str:
    return _utc(time_).strftime("%Y-%m-%d %H:%M:%S UTC")


def clocktime(time_: int) -> str:
    return _utc(time_).strftime("%H:%M:%S")


def seconds(value: float) -> str:
    """A duration in words as short as they get: 0.4 s, 12 s, 3 min, 5 h, 2 d."""
    if value < 10:
        return f"{max(0.0, value):.1f} s"
    for size, word in ((86400 * 2, "d"), (3600 * 2, "h"), (120, "min")):
        if value >= size:
            return f"{value / {'d': 86400, 'h': 3600, 'min': 60}[word]:.0f} {word}"
    return f"{value:.0f} s"


def rankclass(rank: str | None) -> str:
    """One of eight colours for a rank; the rank's name always stands beside it."""
    hit = _RANK.search(rank or "")
    return f"r{int(hit[1] or hit[2]) % 8}" if hit else ""


def difflines(diff: str) -> Iterator[tuple[str, str]]:
    """The lines of a unified diff with what each is: file, hunk, add, del or same."""
    for line in diff.splitlines():
        if line.startswith(("+++", "---")):
            yield "file", line
        elif line.startswith("@@"):
            yield "hunk", line
        else:
            yield {"+": "add", "-": "del"}.get(line[:1], "same"), line


def edit_words(edit: Edit | EditText | Mapping[str, Any]) -> str:
    """One edit as a person would say it. Takes the model's value, the document's or the rule's."""
    get = edit.get if isinstance(edit, Mapping) else lambda name: getattr(edit, name, None)
    op, value = str(get("op")), get("value")
    name = str(get("name") or " / ".join(get("names") or ()))
    floor, ceiling = get("floor"), get("ceiling")
    match op:
        case "set-flag":
            text = f"{name} {value}" if value is not None else name
        case "remove-flag" | "unset-env":
            text = f"without {name}"
        case "cap-flag":
            text = f"{name} at most {value}"
        case "scale-flag":
            text = f"{name} × {value}"
        case "step-flag":
            text = f"{name} {value:+g}" if isinstance(value, int | float) else f"{name} by {value}"
        case "search-flag":
            text = f"{name} halfway to what worked"
        case _:
            text = f"{name}={value if value is not None else ''}"
    text = slots(text)
    limits = [
        f"{word} {number:g}" for word, number in (("not below", floor), ("not above", ceiling)) if number is not None
    ]
    return text + (f" ({', '.join(limits)})" if limits else "")


def command_words(plan: Plan) -> Iterator[tuple[str, str]]:
    """The effective command word by word: same, del or add; each quoted as a shell would need it."""
    before, after = plan.argv_before, plan.argv_after
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (("same", shlex.quote(word)) for word in before[a:b])
        else:
            yield from (("del", shlex.quote(word)) for word in before[a:b])
            yield from (("add", shlex.quote(word)) for word in after[c:d])


def text_lines(text: str) -> Markup:
    """A file's text: line ends stay line ends, all else hidden is shown."""
    return Markup("\n").join(shown(line) for line in text.split("\n"))


def unbroken(html: Markup) -> Markup:
    """A title as `shown` gives it, in which no line ends inside the name of a flag."""
    return Markup(re.sub(r"(?<![\w-])--[a-z][a-z0-9-]{1,40}(?![\w-])", r'<span class="flag">\g<0></span>', str(html)))  # noqa: S704


def weblink(text: str) -> bool:
    """Safe and sensible as a link: http or https, no blanks."""
    return re.fullmatch(r"https?://[^\s<>\"']+", text) is not None


class Templates:
    """The compiled templates. `clock` gives seconds since 1970: 'three minutes ago' needs a now."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._env = Environment(
            loader=FileSystemLoader(shipped("web") / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.filters.update(
            flat=flat,
            shown=shown,
            iso=iso,
            stamp=stamp,
            clocktime=clocktime,
            short=self._short,
            ago=self._ago,
            seconds=seconds,
            rankclass=rankclass,
            difflines=difflines,
            edit=edit_words,
            words=command_words,
            lines=text_lines,
            slots=slots,
            unbroken=unbroken,
        )
        self._env.tests["weblink"] = weblink

    def page(self, name: str, values: Mapping[str, Any]) -> str:
        """Renders one template. Raises jinja2's errors: a page that cannot be made is a fault of ours."""
        return self._env.get_template(name).render(values)

    def _ago(self, time_: int) -> str:
        passed = self.clock() - time_ / MICRO
        return "just now" if passed < 2 else f"{seconds(round(passed))} ago" if passed >= 10 else f"{passed:.0f} s ago"

    def _short(self, time_: int) -> str:
        """The time of day today, else the day."""
        now, then = _utc(int(self.clock() * MICRO)), _utc(time_)
        return then.strftime("%H:%M") if then.date() == now.date() else then.strftime("%d %b %H:%M")
