"""Write flags.json: every flag and variable of SGLang, by release; checks.json: which of them its own checks read;
messages.json: in which file it says what, and defines which class; switches.json: which variable decides whether a
function runs; and pins.json: which versions of other packages a release asks for. `make catalogue` runs it; it takes
some minutes.

In: SGLang's wheels, fetched by pip into --work and unpacked there (nothing of them is kept in the repository). Out:
five JSON files beside this one, read by `rulebase.catalogue`, `.checks`, `.said`, `.switches` and `.pins` and shipped
in the wheel.
Each release's declaring modules run in a child process (`declare.py`) with stubs for all else, and are read as source
too; where the two ways disagree the build stops. It needs msgspec in its own interpreter (releases from 0.5.20 on). A
build step: never on a user's host.

    flags      spelling -> [[first, last, shape], ...]   positions in `releases` and `shapes`
    variables  name -> [[first, last], ...]
    pins       package -> [[first, last, specifier], ...]
    said       file -> function -> [words of a message, ...]
    classes    file -> [class, ...]   of a part that has a switch, see `rulebase.checks`
    reached    function -> [[variable, value], ...]
    worded     two words -> [[variable, value], ...]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import classes
import conditions
import messages
import switches

from triage.rulebase.checks import switch_of

HERE = Path(__file__).resolve().parent
TARGET = HERE / "flags.json"
CHECKS = HERE / "checks.json"
PINS = HERE / "pins.json"
MESSAGES = HERE / "messages.json"
SWITCHES = HERE / "switches.json"
# Some are enough for CHECKS and MESSAGES: what a condition reads seldom changes while its message stays.
READ = (
    "0.4.0",
    "0.4.6.post5",
    "0.5.1.post3",
    "0.5.5.post3",
    "0.5.10",
    "0.5.16",
    "0.5.23",
)
_WITH_SWITCHES = 4  # of READ: before, SGLang had few such variables
RELEASES = (
    *("0.4.0", "0.4.1.post7", "0.4.2.post4", "0.4.3.post4", "0.4.4.post4", "0.4.5.post3", "0.4.6", "0.4.6.post5"),
    *("0.4.7", "0.4.7.post1", "0.4.8.post1", "0.4.9", "0.4.9.post6", "0.4.10", "0.4.10.post2", "0.5.1", "0.5.1.post3"),
    *("0.5.2", "0.5.3", "0.5.3.post3", "0.5.4", "0.5.4.post2", "0.5.4.post3", "0.5.5", "0.5.5.post3", "0.5.6"),
    *("0.5.6.post2", "0.5.7", "0.5.8", "0.5.8.post1", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12"),
    *("0.5.12.post1", "0.5.13", "0.5.13.post1", "0.5.14", "0.5.15", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.18"),
    *("0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"),
)
# Fields that look like flags in the source and that the release keeps off the command line by code.
NO_FLAGS = {"--custom-sigquit-handler", "--stat-loggers"}
# What `pip install sglang[all]` brings on NVIDIA's GPUs; until 0.5.4 most of it stood in extras.
EXTRAS = ("", "all", "srt", "runtime-common")
REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")


def pinned(folder: Path) -> dict[str, str]:
    """Package -> specifier, of the packages for which the release's wheel gives one."""
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        head = wheel.read(name).decode().split("\n\n", 1)[0]
    found: dict[str, str] = {}
    for line in head.splitlines():
        kind, _, text = line.partition(": ")
        if kind != "Requires-Dist" or (asked := REQUIREMENT.fullmatch(text.strip())) is None:
            continue
        extra = re.search(r"extra == [\"']([\w.-]+)", asked[3] or "")
        package, specifier = (
            re.sub(r"[-_.]+", "-", asked[1]).lower(),
            ",".join(sorted(asked[2].replace(" ", "").split(","))),
        )
        if specifier and package != "sglang" and (extra[1].replace("_", "-") if extra else "") in EXTRAS:
            found.setdefault(package, specifier)  # of several by platform the first is the usual one
    return found


def declared(release: str, work: Path) -> dict[str, Any]:
    """What one release declares: fetch its wheel, unpack it, ask a child."""
    folder = work / release
    if not (folder / "sglang").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        fetch = ("download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder), f"sglang=={release}")
        if not list(folder.glob("*.whl")):
            subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            wheel.extractall(folder, [n for n in wheel.namelist() if n.startswith("sglang/") and n.endswith(".py")])
    asked = subprocess.run([sys.executable, HERE / "declare.py", folder], capture_output=True, text=True, check=False)
    if asked.returncode:
        sys.exit(f"{release} could not be asked:\n{asked.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(asked.stdout)
    unseen = set(found["read"]) - set(found["flags"]) - NO_FLAGS
    if unseen:
        sys.exit(f"{release}: in the source, but not on the command line: {', '.join(sorted(unseen))}")
    return found


def spans(known: list[Any]) -> list[tuple[int, int, Any]]:
    """Runs of equal neighbours; None is a release that lacks it."""
    out: list[tuple[int, int, Any]] = []
    for at, value in enumerate(known):
        if value is None:
            continue
        if out and out[-1][1] == at - 1 and out[-1][2] == value:
            out[-1] = (out[-1][0], at, value)
        else:
            out.append((at, at, value))
    return out


def merged(found: list[dict[str, Any]]) -> dict[str, Any]:
    shapes: dict[str, int] = {}
    flags = {}
    for name in sorted({name for one in found for name in one["flags"]}):
        known = [one["flags"].get(name) for one in found]
        texts = [None if shape is None else json.dumps(shape, sort_keys=True) for shape in known]
        flags[name] = [[first, last, shapes.setdefault(text, len(shapes))] for first, last, text in spans(texts)]
    variables = {
        name: [[first, last] for first, last, _ in spans([True if name in one["variables"] else None for one in found])]
        for name in sorted({name for one in found for name in one["variables"]})
    }
    parts = {"releases": list(RELEASES), "shapes": [json.loads(text) for text in shapes]}
    return {"schema": 1, **parts, "flags": flags, "variables": variables}


def write_messages(said: dict[str, Any], defined: dict[str, list[str]]) -> None:
    parts = (
        ",\n".join(f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in part.items())
        for part in (said, defined)
    )
    MESSAGES.write_text('{{"schema":1,\n"said":{{\n{}\n}},\n"classes":{{\n{}\n}}}}\n'.format(*parts), encoding="utf-8")
    count = f"{len(said)} files, {sum(map(len, defined.values()))} classes"
    print(f"{MESSAGES.name}: {count}, {MESSAGES.stat().st_size} bytes")


def write_switches(folders: list[Path]) -> None:
    found = switches.document(folders)
    parts = (
        f"{json.dumps(name)}:{{\n"
        + ",\n".join(f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in part.items())
        + "\n}"
        for name, part in found.items()
    )
    SWITCHES.write_text('{"schema":1,\n' + ",\n".join(parts) + "}\n", encoding="utf-8")
    print(f"{SWITCHES.name}: {sum(map(len, found.values()))} names, {SWITCHES.stat().st_size} bytes")


def main() -> None:
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "triage-catalogue",
        help="where wheels are kept between runs",
    )
    work = ask.parse_args().work
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda release: declared(release, work), RELEASES))
    document = merged(found)
    lines = (f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in document.items())
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    count = f"{len(document['flags'])} flags, {len(document['variables'])} variables, {len(RELEASES)} releases"
    print(f"{TARGET.name}: {count}, {TARGET.stat().st_size} bytes")
    fields = frozenset(shape["dest"] for shape in document["shapes"])
    checks = conditions.document([work / release for release in READ], fields)
    lines = (f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in checks.items())
    CHECKS.write_text('{"schema":1,\n"checks":{\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    asked = [pinned(work / release) for release in RELEASES]
    pins = {
        name: [list(span) for span in spans([one.get(name) for one in asked])]
        for name in sorted({name for one in asked for name in one})
    }
    lines = (f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in pins.items())
    PINS.write_text('{"schema":1,\n"pins":{\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    print(f"{PINS.name}: {len(pins)} packages, {PINS.stat().st_size} bytes")
    read = [work / release for release in READ]
    write_messages(messages.document(read), classes.document(read, switch_of))
    write_switches(read[-_WITH_SWITCHES:])
    print(f"{CHECKS.name}: {sum(map(len, checks.values()))} checks, {CHECKS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
