"""Seeds for each target, and how a log is changed: by line more than by byte, with lines that mean something."""

from __future__ import annotations

import random

from tests.crashes import story
from tests.fuzz.words import HEADS, LINES, MARKS

HEAD_BYTES = {"traceback": 1, "entries": 4}  # that stand before each line's text and say who wrote it


def seeds(target: str) -> list[bytes]:
    """Logs that hold each form, in the target's own writing."""
    told = story.interleaved(
        [story.rank_crash(12_000, rank)[:7] + story.rank_crash(12_000, rank)[-1:] for rank in range(3)]
    )
    crash = [said.text for said in [*story.starting(1)[:4], *told, *story.parent_gives_up(12_200)]]
    plain = [crash, list(LINES), [head + LINES[n % 9] for n, head in enumerate(HEADS)]]
    plain += [list(LINES[n : n + 9]) for n in range(0, len(LINES), 6)]
    if target in ("line", "log"):
        found = ["\n".join(lines).encode() for lines in plain]
        if target == "log":
            said = [*story.starting(1)[:3], *told, *story.unit_failed(12_400)]
            found += [
                story.as_json(said),
                story.as_export(said),
                story.as_export(said, binary=True),
                story.as_short(said),
            ]
        return found
    size = HEAD_BYTES[target]
    return [b"\n".join(bytes([n % 7 + 3]) * size + text.encode() for n, text in enumerate(lines)) for lines in plain]


def mutated(data: bytes, pick: random.Random, target: str) -> bytes:
    """The log after one to four changes."""
    rows = data.split(b"\n")
    size = HEAD_BYTES.get(target, 0)
    for _ in range(pick.randint(1, 4)):
        at = pick.randrange(len(rows))
        row = rows[at]
        what = pick.randrange(9)
        if what == 0:
            rows.insert(at, _fresh(pick, size))
        elif what == 1:
            rows[at] = row[:size] + pick.choice(HEADS).encode() + row[size:]
        elif what == 2:
            rows.insert(pick.randrange(len(rows) + 1), row)
        elif what == 3 and len(rows) > 1:
            del rows[at]
        elif what == 4:
            other = pick.randrange(len(rows))
            rows[at], rows[other] = rows[other], row
        elif what == 5:  # two writers on one line
            rows[at] = row[: pick.randint(0, len(row))] + pick.choice(LINES).encode()
        elif what == 6:
            rows[at] = row[: pick.randint(0, len(row))]
        elif what == 7:
            cut = pick.randint(0, len(row))
            rows[at] = row[:cut] + pick.choice(MARKS) * pick.choice((1, 1, 1, 3, 40)) + row[cut:]
        elif size:
            rows[at] = bytes(pick.randrange(256) for _ in range(size)).replace(b"\n", b"\0") + row[size:]
        else:
            rows[at:at] = rows[: pick.randint(1, 8)]
    return b"\n".join(rows)


def _fresh(pick: random.Random, size: int) -> bytes:
    who = bytes(pick.randrange(256) for _ in range(size)).replace(b"\n", b"\0")
    return who + (pick.choice(HEADS) if pick.random() < 0.4 else "").encode() + pick.choice(LINES).encode()
