"""Text out of logs, made safe to look at: in goes any string, out comes markup or a flat string that hides nothing.

Log text is written by strangers (prompts and model outputs end up in it). Escaping alone stops markup; what is left are
characters that change how *other* text looks: control and bidi characters, terminal colours, invisible spaces. They are
shown as signs with their name, never sent as they are. Called by the templates (filters) and the pages; does no I/O and
knows nothing of crashes.
"""

from __future__ import annotations

import re
import unicodedata

from markupsafe import Markup, escape

from triage.frozen import frozen

HEAD = 320  # characters of a line that stand in the page at once
MOST = 20_000  # characters of a line that are sent at all: a 200 kB server_args line would drown the page

# C0 without tab, DEL, C1, soft hyphen, Arabic letter mark, zero width and bidi characters, line and paragraph
# separators, word joiner and friends, byte order mark, interlinear marks, surrogates, the invisible tag letters.
_HIDDEN = (
    "\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_SPECIAL = re.compile(f"\x1b\\[[0-9;:?]*[@-~]|[{_HIDDEN}]")


@frozen
class Folded:
    """A long line in parts: `head` is shown, `rest` opens on demand, `lost` characters are not sent."""

    head: str
    rest: str = ""
    lost: int = 0


def fold(text: str, head: int = HEAD, most: int = MOST) -> Folded:
    """Cut a line so that a page stays readable; says how much is missing."""
    if len(text) <= head + 80:  # no fold for a few characters more
        return Folded(text)
    return Folded(text[:head], text[head:most], max(0, len(text) - most))


# The pictures for control characters (U+2400 on) are missing in many fonts: their names are not.
_C0 = dict(
    enumerate(
        re.findall(
            r"\S+",
            "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI "
            "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US",
        )
    )
)


def _sign(special: str) -> str:
    """What stands in the page for one hidden character or one terminal sequence."""
    if special.startswith("\x1b["):
        return "ESC" + special[1:]
    code = ord(special)
    return "DEL" if code == 0x7F else _C0.get(code, f"U+{code:04X}")


def _name(special: str) -> str:
    if len(special) > 1:
        return "terminal control sequence"
    code = ord(special)
    return f"U+{code:04X} {unicodedata.name(special, 'control character').lower()}"


def flat(text: object) -> str:
    """The text with hidden characters as signs, for titles, attributes and messages; still to be escaped."""
    return _SPECIAL.sub(lambda hit: _sign(hit[0]), str(text))


def shown(text: object, most: int = MOST) -> Markup:
    """The text as markup: escaped, hidden characters in a marked span with their name, tabs kept."""
    given = str(text)
    lost = len(given) - most
    given = given[:most]
    out: list[Markup] = []
    at = 0
    for hit in _SPECIAL.finditer(given):
        out.append(escape(given[at : hit.start()]))
        out.append(Markup('<span class="ctl" title="{}">{}</span>').format(_name(hit[0]), _sign(hit[0])))
        at = hit.end()
    out.append(escape(given[at:]))
    if lost > 0:
        out.append(Markup('<span class="muted"> … {} more characters not shown</span>').format(f"{lost:,}"))
    return Markup("").join(out)
