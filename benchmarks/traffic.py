"""Days of an invented server, as a text log and as a journal: healthy traffic, now and then a crash and a restart.

The same seed gives the same bytes. Called by `benchmarks.__main__`.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tests.crashes import story
from tests.crashes.story import Said

CRASH_EVERY = 50_000
PATHS = ("/v1/chat/completions", "/generate", "/v1/completions")
REMOTE = "/lib/systemd/systemd-journal-remote"


def traffic(seed: int, crash_every: int = CRASH_EVERY) -> Iterator[Said]:
    """Without end."""
    pick = random.Random(seed)
    ms, run = 0, 0
    while True:
        run += 1
        for said in story.starting():
            yield moved(said, ms, run)
        ms += 10_000
        for _ in range(crash_every):
            ms += pick.randrange(4, 20)
            yield moved(Said(healthy(pick, ms), story.MAIN if pick.random() < 0.2 else story.RANKS[0], ms), 0, run)
        crash = story.interleaved([story.rank_crash(ms, rank) for rank in range(8)])
        for said in (*crash, *story.parent_gives_up(ms + 200), *story.unit_failed(ms + 400)):
            yield moved(said, 0, run)
        ms += 30_000


def moved(said: Said, ms: int, run: int) -> Said:
    """The same later, by the processes of another run."""
    text = said.text.replace(story.stamp(said.ms), story.stamp(said.ms + ms))
    own = {**said.fields, "_STREAM_ID": f"{run:032x}"} if said.pid > 1 else said.fields
    pid = said.pid + 1_000 * run if said.pid > 1 else said.pid
    return Said(text, pid, said.ms + ms, own, f"{run:032x}", said.unit)


def healthy(pick: random.Random, ms: int) -> str:
    kind = pick.random()
    if kind < 0.70:
        running, token = pick.randrange(1, 48), pick.randrange(20_000, 110_000)
        return (
            f"[{story.stamp(ms)} TP0] Decode batch, #running-req: {running}, #token: {token}, token usage: "
            f"{token / 118_400:.2f}, accept len: {pick.uniform(2, 6):.2f}, cuda graph: True, "
            f"gen throughput (token/s): {pick.uniform(800, 2400):.2f}, #queue-req: {pick.randrange(9)}"
        )
    if kind < 0.80:
        return (
            f"[{story.stamp(ms)} TP0] Prefill batch, #new-seq: {pick.randrange(1, 9)}, #new-token: "
            f"{pick.randrange(100, 8192)}, #cached-token: {pick.randrange(9000)}, token usage: 0.31"
        )
    client = f"INFO:     10.1.{pick.randrange(99)}.{pick.randrange(250)}:{pick.randrange(32_000, 61_000)}"
    if kind < 0.975:
        return f'{client} - "POST {pick.choice(PATHS)} HTTP/1.1" 200 OK'
    if kind < 0.995:
        return f'{client} - "GET /health HTTP/1.1" 200 OK'
    if kind < 0.998:
        return f'{client} - "POST {pick.choice(PATHS)} HTTP/1.1" 400 Bad Request'
    return f"[{story.stamp(ms)} TP0] KV cache pool is full. Retract requests. #retracted_reqs: {pick.randrange(1, 9)}"


def write_text(path: Path, count: int, seed: int = 1) -> Path:
    with path.open("wb") as file:
        for said in islice((said for said in traffic(seed) if said.pid > 1), count):
            file.write(said.text.encode() + b"\n")
    return path


def write_journal(folder: Path, count: int, seed: int = 1) -> Path | None:
    """A folder of real journal files; None where systemd-journal-remote is not installed."""
    if shutil.which(REMOTE) is None:
        return None
    folder.mkdir()
    export = folder.with_suffix(".export")
    with export.open("wb") as file:
        for said in islice(traffic(seed), count):
            file.write(story.as_export([said]))
    subprocess.run([REMOTE, f"--output={folder}/x.journal", str(export)], check=True, capture_output=True)
    export.unlink()
    return folder
