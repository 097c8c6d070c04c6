"""Lines that came in pieces: journald breaks a line at 48K and at each NUL, a container engine at 16K.

In comes each line, out goes whether it is but the rest of one that began before: then it begins nothing, whatever
stands at its head (a prompt can be made so long that the next piece looks like a traceback, a rank tag, a kernel's
line). Called by `engine.runs`, one `Pieces` per invocation. It must not keep the text: of a line that long the engine
reads the beginning only. The server's flags are the exception, and are kept until their last piece.
"""

from __future__ import annotations

from triage.engine.lines import Parsed
from triage.engine.milestones import FLAGS
from triage.model import AT_NUL, BROKEN_OFF, Line

LINE_MAX = 48 * 1024  # journald's limit where nobody set another; a text export shows the pieces and does not tell them
WAIT = 5_000_000  # log time; the pieces of a line are written at once
HEAD = 400
MAX_FLAGS = 1 << 20
MAX_OPEN = 64
WORDS = ("stdout P ", "stderr P ")  # for the gate: containerd's mark of a piece that is not the last

Key = tuple[int | None, str | None]


class Pieces:
    """The lines whose last piece was not read yet."""

    __slots__ = ("_open", "_since")

    def __init__(self) -> None:
        self._open: dict[Key, str] = {}
        self._since: int | None = None  # when the last piece came

    @property
    def waiting(self) -> bool:
        return bool(self._open)

    @property
    def due(self) -> int | None:
        """When it is given up."""
        return self._since + WAIT if self._open and self._since is not None else None

    def head(self, line: Line, parsed: Parsed, time: int | None) -> str | None:
        """How the record began that this line is but the rest of (of flags: all so far; of no record: nothing); None:
        it is a line of its own."""
        more = goes_on(line, parsed)
        if not more and not self._open:
            return None
        key = (line.pid, line.stream)
        head = self._open.pop(key, None)
        if more and len(self._open) < MAX_OPEN:
            text = parsed.text if head is None else head + parsed.text
            flags = text.startswith(FLAGS)
            record = parsed.headed or head or flags
            self._open[key] = text[: MAX_FLAGS if flags else HEAD] if record else ""
            self._since = time
        return head

    def expire(self, time: int) -> None:
        """Nothing more came: the line ended just where it would have been broken."""
        if self.due is not None and time >= self.due:
            self._open.clear()

    def set_back(self, time: int) -> None:
        """The clock was."""
        self._since = min(self._since, time) if self._since is not None else None


def goes_on(line: Line, parsed: Parsed) -> bool:
    """Whether another piece follows."""
    if parsed.partial or line.fields.get("_LINE_BREAK") in (BROKEN_OFF, AT_NUL):
        return True
    text = parsed.text
    return parsed.host is not None and len(text) > LINE_MAX // 4 and len(text.encode("utf-8", "replace")) == LINE_MAX
