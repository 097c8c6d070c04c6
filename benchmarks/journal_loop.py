"""The least that reading costs in Python: message and pid of each entry of a folder, by systemd-python alone."""

from __future__ import annotations

import sys

from systemd import _reader


def main(folder: str) -> None:
    reader = _reader._Reader(flags=0, path=folder)
    step, get, count = reader._next, reader._get, 0
    while step():
        for name in ("MESSAGE", "_PID"):
            try:
                get(name)
            except KeyError:  # the kernel has no pid
                continue
        count += 1
    print(count, "entries")


if __name__ == "__main__":
    main(*sys.argv[1:])
