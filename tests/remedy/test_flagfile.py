"""SGLang's --config file: what is read of it is what a YAML reader and SGLang would make of it, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from triage.actionmodel import Unit, UnitFile
from triage.actions.address import Endpoint, Kind, endpoint
from triage.units.flagfile import config_path, load, of_unit, parse
from triage.units.flags import long_name

SERVER = ("/v/python", "-m", "sglang.launch_server")
SIGNS = ("-", "- ", ": ", ":", "#", " #", "'", '"', "[", "]", ", ", "{", "~", "|", "&a ", "\t", " ")
PIECES = (*"abz019", *SIGNS, "true", "no", "0.90")
LINES = st.lists(st.lists(st.sampled_from(PIECES), max_size=7).map("".join), max_size=4).map("\n".join)


def by_yaml(text: str) -> dict[str, str] | None:
    """As SGLang does: a switch that is on has no value, one that is off is left out, lists are several words."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    found: dict[str, str] = {}
    for key, value in (data or {}).items():
        words = value if isinstance(value, list) else [value]
        switch = words[0] if len(words) == 1 and isinstance(words[0], bool) else None  # 0 and 1 are no switches
        if switch is not False:
            found[long_name(f"--{key}") or ""] = "" if switch else " ".join(map(str, words))
    return found


def plain(values: dict[str, str] | None) -> dict[str, Any]:
    """Numbers by value: `0.90` is 0.9 for YAML."""
    return {name: _number(text) for name, text in (values or {}).items()}


def _number(text: str) -> Any:
    try:
        return tuple(float(word) for word in text.split()) or text
    except ValueError:
        return text


@example("a: 0\ntp-size: 1")
@example("true: a")
@example("no: a")
@given(st.one_of(LINES, st.tuples(st.sampled_from(["a: ", "tp-size: ", "a:\n", "a:\n- "]), LINES).map("".join)))
def test_what_is_understood_is_what_yaml_says(text: str) -> None:
    found = parse(text)
    if found is not None and "'" not in text and '"' not in text:
        assert plain(found) == plain(by_yaml(text)), text


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("---\n# why\n\ntp: 8\n", {"--tensor-parallel-size": "8"}),
        ("port: 8000  # behind the proxy\n", {"--port": "8000"}),
        ("disable-cuda-graph: True\nenable_metrics: off\n", {"--disable-cuda-graph": ""}),
        ("cuda-graph-bs: [1, 2]\n", {"--cuda-graph-bs": "1 2"}),
        ("cuda-graph-bs:\n  - 1\n  - 2\nport: 1\n", {"--cuda-graph-bs": "1 2", "--port": "1"}),
        ("api-key: 'it''s # one'\n", {"--api-key": "it's # one"}),
        ('model-path: "a/b: c"\n', {"--model-path": "a/b: c"}),
        ("port: 1\nport: 2\n", {"--port": "2"}),
    ],
)
def test_flat_files_are_read(text: str, values: dict[str, str]) -> None:
    assert parse(text) == values


@pytest.mark.parametrize(
    "text",
    [
        "server:\n  port: 1\n",
        "a: &x 1\nb: *x\n",
        "a: |\n  text\n",
        "a: {b: 1}\n",
        "a: b: c\n",
        "a: 010\n",
        "a: 1:30\n",
        "a:\n",
        "a: ~\n",
        "- a\n",
        "a\tb: 1\n",
        '{"port": 1}',
        "\0",
    ],
)
def test_what_says_more_is_not_half_read(text: str) -> None:
    assert parse(text) is None


def test_only_a_regular_file_of_sane_size_is_read(tmp_path: Path) -> None:
    pipe, big = tmp_path / "pipe.yaml", tmp_path / "big.yaml"
    os.mkfifo(pipe)
    big.write_text("# much\n" * 20_000)
    assert [load(str(path)) for path in (pipe, big, tmp_path, tmp_path / "none.yaml")] == [None] * 4


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("--config", "/etc/s.yaml"), "/etc/s.yaml"),
        (("--config", "$CONF"), "/srv/c.yaml"),
        (("--config=/etc/s.yaml",), ""),
        (("--config", "s.yaml"), ""),
        (("--port", "1"), ""),
    ],
)
def test_where_it_lies(words: tuple[str, ...], path: str) -> None:
    argv = ("/bin/bash", "-c", f"exec {' '.join((*SERVER, *words))}")
    assert config_path(argv, {"CONF": "/srv/c.yaml"}) == path
    inside = ("docker", "run", "image", *SERVER, *words)
    assert config_path(inside, {}) == ""


def test_an_instances_own_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("port: 7001\n")
    text = f"[Service]\nEnvironment=DIR={tmp_path}\nExecStart={' '.join(SERVER)} --config ${{DIR}}/%i.yaml\n"
    file = of_unit(Unit("sglang@a.service", (UnitFile("/etc/systemd/system/sglang@.service", text),)))
    assert file is not None
    assert (file.path, file.values) == (f"{tmp_path}/a.yaml", {"--port": "7001"})


def test_the_probe_goes_where_the_file_says_and_the_command_beats_it() -> None:
    filed = {"--port": "8000", "--host": "0.0.0.0", "--is-embedding": ""}
    assert endpoint((*SERVER, "--config", "/c"), {}, filed).url == "http://127.0.0.1:8000"
    assert endpoint((*SERVER, "--config", "/c"), {}, filed).kind is Kind.EMBEDDING
    assert endpoint((*SERVER, "--config", "/c", "--port", "9000"), {}, filed).url == "http://127.0.0.1:9000"
    assert "cannot be read" in endpoint((*SERVER, "--config", "/c")).note


def test_a_key_is_not_taken_from_the_file() -> None:
    locked = endpoint((*SERVER, "--config", "/c"), {}, {"--api-key": "s3cret"})
    assert (locked.kind, locked.key) == (Kind.LOCKED, "")
    own = endpoint((*SERVER, "--config", "/c", "--api-key", "k"), {}, {"--api-key": "s3cret"})
    assert own == Endpoint(Kind.GENERATION, key="k")
