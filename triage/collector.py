"""Python's collector of cycles, set for programs that keep much. Called first by whoever starts, before it imports the
rest."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Python looks for cycles after 700 new objects, which is made for programs that keep few: rules, a crash's lines
    and the libraries' own classes are many and stay. Its searches were one instruction in twenty of a replay."""
    gc.set_threshold(50_000, 20, 50)
