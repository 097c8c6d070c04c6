"""`make fuzz`: one target, driven by coverage for some seconds. python -m tests.fuzz.drive TARGET SECONDS [FOLDER]

Needs atheris (`pip install atheris`). What it finds lies in FOLDER (var/fuzz by default) as crash-* or timeout-*: mend
it, put the file into tests/fuzz/found/TARGET/ under a telling name, and the tests keep it mended.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["triage"]):
    from tests.fuzz.targets import TARGETS

from tests.fuzz.mutation import mutated, seeds


def main() -> None:
    name, seconds = sys.argv[1], sys.argv[2]
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else "var/fuzz") / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for n, seed in enumerate(seeds(name)):
        (corpus / f"seed-{n}").write_bytes(seed)

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        pick = random.Random(seed)
        if pick.random() < 0.4:
            return bytes(atheris.Mutate(data, size))[:size]
        return mutated(data, pick, name)[:size]

    options = [
        f"-max_total_time={seconds}",
        "-max_len=6000",
        "-timeout=10",
        "-rss_limit_mb=3000",
        "-print_final_stats=1",
    ]
    atheris.Setup(["fuzz", *options, f"-artifact_prefix={folder}/", str(corpus)], TARGETS[name], custom_mutator=mutate)
    atheris.Fuzz()


main()
