"""The package that a crash came out of, and the version of it that the server's release asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.model import Frame, Link, Remedy
from triage.rulebase.catalogue import catalogue
from triage.rulebase.pins import BROUGHT_BY, asked, outside
from triage.shipped import shipped

SITE = "/opt/lake/lib/python3.12/site-packages/"
PINNED = """\
  - id: pins
    kind: install
    title: "Put {outside} back to the version that this sglang pins"
    cost: none
    confirmed: false
    versions: "{outside}"
  - id: newer
    kind: install
    title: Install a newer xgrammar
    cost: none
    confirmed: false
    versions: xgrammar
"""


def ends_in(*paths: str) -> Link:
    places = tuple(Frame(path, "wade", 4) for path in paths)
    return Link("LookupError", "no heron", places[-1], places)


@pytest.mark.parametrize(
    ("path", "package"),
    [
        (SITE + "transformers/models/auto/lake.py", "transformers"),
        ("/usr/local/lib/python3.12/dist-packages/flashinfer/decode.py", "flashinfer-python"),
        (SITE + "nvidia_cutlass_dsl/python_packages/cutlass/cute/core.py", "nvidia-cutlass-dsl"),
        ("C:\\lake\\site-packages\\PIL\\Image.py", "pillow"),
        (SITE + "heron_kernels/wade.py", ""),
        (SITE + "sglang/srt/transformers.py", ""),
        ("/opt/transformers/lake.py", ""),
        ("/opt/src/flashinfer/flashinfer/fused_moe/core.py", "flashinfer-python"),
        ("/opt/transformers/src/transformers/lake.py", "transformers"),
        ("/opt/heron/heron/core.py", ""),
        ("/opt/sglang/python/sglang/srt/lake.py", ""),
        ("", ""),
    ],
)
def test_the_innermost_known_package_is_named(path: str, package: str) -> None:
    assert outside(crash(ends_in(SITE + "sglang/srt/managers/lake.py", path))) == package


def test_torch_and_the_standard_library_are_passed_over() -> None:
    torch = (SITE + "torch/_ops.py", "/usr/lib/python3.12/contextlib.py")
    assert outside(crash(ends_in(SITE + "xgrammar/compiler.py", *torch))) == "xgrammar"
    assert outside(crash(ends_in(SITE + "xgrammar/compiler.py", SITE + "sglang/srt/lake.py", *torch))) == ""


def test_a_message_alone_names_no_package() -> None:
    assert outside(crash(link("LookupError", "no heron in site-packages/xgrammar/a.py"))) == ""


@pytest.mark.parametrize(
    ("versions", "release", "found"),
    [
        ("xgrammar", "0.5.9", ("xgrammar==0.1.27",)),
        ("transformers torch", "0.5.9", ("transformers==4.57.1", "torch==2.9.1")),
        ("sglang-kernel", "0.5.9", ("sgl-kernel==0.3.21",)),
        ("sglang-kernel", "0.5.12", ("sglang-kernel==0.4.2.post2",)),
        ("sgl_kernel", "0.5.12", ("sglang-kernel==0.4.2.post2",)),
        ("xgrammar>=0.1", "0.5.9", ()),
        ("herons", "0.5.9", ()),
        ("xgrammar", None, ()),
        ("xgrammar", "0.9.9", ()),
        ("outlines", "0.4.9.post2", ("outlines==0.1.11",)),  # between two that ask for the same
        ("transformers", "0.4.9.post2", ()),  # between two that differ
    ],
)
def test_what_a_release_asks_for(versions: str, release: str | None, found: tuple[str, ...]) -> None:
    assert asked(versions, release) == found


def offered(folder: Path, release: str | None) -> tuple[Remedy, ...]:
    write(folder, "lake", rule("{exception: LookupError, message: no heron}", "remedies:\n" + PINNED))
    return book(folder).match(crash(ends_in(SITE + "xgrammar/compiler.py"), release=release))[0].remedies


def test_a_rung_that_speaks_of_pins_names_the_version(tmp_path: Path) -> None:
    pins, newer = offered(tmp_path, "0.5.9")
    assert pins.versions == "xgrammar==0.1.27"
    assert pins.title.endswith("that this sglang pins (0.5.9 asks for xgrammar==0.1.27)")
    assert (newer.versions, newer.title) == ("xgrammar", "By hand: install a newer xgrammar")


def test_where_the_release_is_not_known_the_package_is_named_alone(tmp_path: Path) -> None:
    assert offered(tmp_path, None)[0].versions == "xgrammar"


def test_the_shipped_pins_hold_for_releases_of_the_catalogue() -> None:
    document = json.loads((shipped("catalogue") / "pins.json").read_text(encoding="utf-8"))
    last = len(catalogue().releases) - 1
    for package, spans in document["pins"].items():
        assert package == package.lower()
        assert all(0 <= first <= end <= last and text[0] in "<>=!~" for first, end, text in spans), package
    assert {"xgrammar", "torch", "transformers", "flashinfer-python"} <= set(document["pins"])


def test_a_package_that_is_renamed_is_known_by_its_new_name() -> None:
    assert not {"sgl-kernel", "decord", "deepep"} & set(BROUGHT_BY.values())
