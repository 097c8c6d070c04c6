"""Planning asks the installed server: three servers with flags of their own, one rule, each in its own words."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triage.actionmodel import Unit, UnitFile
from triage.actions import asking
from triage.actions.asking import ANSWERS, ASKS, answer_all, asked, filed, load, take_asks, transient
from triage.actions.spool import Spool
from triage.inquiry import Inquiry
from triage.model import Edit, Pending, Refused, Remedy
from triage.remedy import plan
from triage.rulebase.parser import Parser
from triage.rulebase.spelling import respelled
from triage.units.dropin import Standing
from triage.units.unitfile import effective

SERVER = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--model-path", "--model", help="Where the weights lie.")
parser.add_argument("--tensor-parallel-size", "--tp-size", type=int)
parser.add_argument("--lora-paths", nargs="*")
{more}
parser.parse_args()
"""
OLD = 'parser.add_argument("--cuda-graph-max-bs", type=int, help="Largest batch, %(default)s.")'
NEW = 'parser.add_argument("--cuda-graph-max-bs-decode", type=int)'
CHOOSY = 'parser.add_argument("--attention-backend", choices=["triton", "fa3"], help="Which kernels.")'
NAME = "sglang-larch.service"
CAP = Remedy(
    "smaller-graphs",
    "flag",
    "Capture less",
    "some speed",
    True,
    (Edit("set-flag", "--cuda-graph-max-bs", 8),),
    None,
    True,
)


def unit(python: str, more: str = "User=llm") -> Unit:
    text = f"[Service]\n{more}\nExecStart={python} -m sglang.launch_server --model-path /models/k\n"
    return Unit(NAME, (UnitFile(f"/etc/systemd/system/{NAME}", text),))


def help_of(folder: Path, more: str) -> str:
    """What such a server prints, by argparse itself."""
    script = folder / "server.py"
    script.write_text(SERVER.format(more=more))
    return subprocess.run(
        [sys.executable, str(script), "--help"], env={"COLUMNS": "2000"}, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (OLD, "--cuda-graph-max-bs 8"),
        (NEW, "--cuda-graph-max-bs-decode 8"),
        (CHOOSY, "sglang 9.9.9.dev1 has no --cuda-graph-max-bs"),
    ],
)
def test_three_servers_and_one_rule(tmp_path: Path, more: str, expected: str) -> None:
    """A nightly build that no catalogue knows: its own parser decides."""
    parser = Parser(help_of(tmp_path, more), "9.9.9.dev1")
    remedy = respelled(CAP, parser.release, parser)
    if more is CHOOSY:
        with pytest.raises(Refused, match=expected):
            plan(unit("/opt/llm/bin/python"), 3, "a-rule", remedy, Standing(), action="i3-1", now=0)
        return
    made = plan(unit("/opt/llm/bin/python"), 3, "a-rule", remedy, Standing(), action="i3-1", now=0)
    assert " ".join(made.argv_after[-2:]) == expected
    assert f"{expected}\n" in made.drop_in_text


def test_the_help_text_is_read_as_argparse_means_it(tmp_path: Path) -> None:
    parser = Parser(help_of(tmp_path, CHOOSY), "1")
    backend = parser.flag("--attention-backend", "")
    assert backend is not None
    assert (backend.takes, backend.choices) == ("value", ("triton", "fa3"))
    assert parser.flags["--tp-size"].dest == "tensor_parallel_size"
    assert (parser.flags["--lora-paths"].takes, parser.flags["--help"].takes) == ("list", "nothing")
    assert parser.flag("--tensor-par", "") is None  # argparse would take it, and a remedy must not mean another flag


def test_a_value_that_the_server_does_not_take_is_refused(tmp_path: Path) -> None:
    parser = Parser(help_of(tmp_path, CHOOSY), "9.9")
    edits = (Edit("set-flag", "--attention-backend", "flashinfer"),)
    remedy = respelled(Remedy("other", "flag", "Other", "none", True, edits, None, True), "9.9", parser)
    assert remedy.blocked_by == "--attention-backend takes no flashinfer in sglang 9.9"


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("User=llm", "--uid=llm"),
        ("User=root", "--uid=nobody"),
        ("User=0", "--uid=nobody"),
        ("", "--uid=nobody"),
        ("DynamicUser=yes", "--property=DynamicUser=yes"),
    ],
)
def test_it_is_asked_as_the_unit_s_user_and_never_as_root(settings: str, wanted: str) -> None:
    found = unit("/opt/llm/bin/python", settings + "\nEnvironment=HF_HOME=/srv/hf HF_TOKEN=hf_abcdefghijklmnop")
    argv, program = asked(found)
    run = transient(effective(found), (*argv, "--help"))
    assert wanted in run
    assert not {"--uid=root", "--uid=0", "--uid="} & set(run)
    assert run[run.index("--") + 1 :] == ["/opt/llm/bin/python", "-m", "sglang.launch_server", "--help"]
    assert "--setenv=HF_HOME=/srv/hf" in run
    assert not any("hf_abc" in word for word in run)  # everybody may read a command line
    assert program == "/opt/llm/bin/python"


class Root:
    """Root's side with a server in place of systemd."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spool, self.folder = folder / "state" / "spool", folder / "apply"
        for made in (self.spool / ASKS, self.folder):
            made.mkdir(parents=True)
        (folder / "bin").mkdir()
        self.python = folder / "bin" / "python"
        self.python.write_text("")
        self.unit = unit(str(self.python))
        self.started: list[tuple[str, ...]] = []
        self.text = "  --model-path X\n  --cuda-graph-max-bs X\n"
        monkeypatch.setattr(asking, "_started", self._started)

    def _started(self, unit: object, argv: tuple[str, ...]) -> str:
        self.started.append(argv)
        return "0.5.12\n" if "-c" in argv else self.text

    def allowed(self, name: str) -> None:
        if name != NAME:
            raise Refused("not in the policy")

    def run(self) -> None:
        answer_all(take_asks(self.spool), self.folder, lambda name: self.unit, self.allowed)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    return Root(tmp_path, monkeypatch)


def test_root_answers_what_is_asked_once(root: Root) -> None:
    assert not filed(root.spool, NAME)
    assert filed(root.spool, NAME)
    root.run()
    answer = load(root.folder, NAME)
    assert answer is not None
    assert (answer.release, answer.help, answer.error) == ("0.5.12", root.text, "")
    assert os.listdir(root.spool / ASKS) == []
    filed(root.spool, NAME)
    root.run()
    assert len(root.started) == 2  # a flood of questions starts nothing more
    os.utime(root.python, ns=(1, 1))  # another one was installed
    filed(root.spool, NAME)
    root.run()
    assert len(root.started) == 4


@pytest.mark.parametrize("name", ["sshd.service", ".hidden", "no unit", "a..b.service"])
def test_what_the_policy_does_not_name_is_thrown_out_unasked(root: Root, name: str) -> None:
    (root.spool / ASKS / name).write_text("x")
    root.run()
    assert os.listdir(root.spool / ASKS) == []
    assert root.started == []
    assert not (root.folder / ANSWERS).exists()


def test_a_server_that_prints_no_flags_is_an_answer_too(root: Root) -> None:
    root.text = "ImportError"
    filed(root.spool, NAME)
    root.run()
    parser, why = Inquiry(Spool(root.spool), root.folder).parser(root.unit, lambda: True, lambda: None)
    assert parser is None
    assert "printed no flags" in why


def test_planning_waits_for_the_answer(root: Root) -> None:
    inquiry = Inquiry(Spool(root.spool), root.folder)

    def rouse() -> None:
        root.run()

    parser, why = inquiry.parser(root.unit, lambda: True, rouse)  # type: ignore[arg-type]
    assert why == ""
    assert parser is not None
    assert parser.flag("--cuda-graph-max-bs", "") is not None


def test_the_web_process_does_not_wait(root: Root) -> None:
    inquiry = Inquiry(Spool(root.spool), root.folder, patience=0)
    with pytest.raises(Refused, match="is being asked for its flags"):
        inquiry.parser(root.unit, lambda: True, lambda: None)
    root.run()
    assert inquiry.parser(root.unit, lambda: True, lambda: None)[0] is not None


def test_who_looks_again_and_again_starts_one_process(root: Root) -> None:
    inquiry = Inquiry(Spool(root.spool), root.folder, patience=0)
    started = []

    class Child:
        ended: int | None = None

        def poll(self) -> int | None:
            return self.ended

    def rouse() -> Child:
        started.append(Child())
        return started[-1]

    for _ in range(3):
        with pytest.raises(Pending):
            inquiry.parser(root.unit, lambda: True, rouse)  # type: ignore[arg-type]
    assert len(started) == 1
    started[0].ended = 1  # without an answer
    parser, why = inquiry.parser(root.unit, lambda: True, rouse)  # type: ignore[arg-type]
    assert (parser, len(started)) == (None, 1)
    assert "it gave no answer" in why


def test_where_nobody_listens_the_catalogue_has_to_do(root: Root) -> None:
    parser, why = Inquiry(Spool(root.spool), root.folder).parser(root.unit, lambda: False, lambda: None)
    assert parser is None
    assert "nobody is there to ask it" in why
    assert os.listdir(root.spool / ASKS) == []


def test_an_old_answer_is_asked_again(root: Root) -> None:
    filed(root.spool, NAME)
    root.run()
    answer = load(root.folder, NAME)
    assert answer is not None
    argv, program = asked(root.unit)
    assert answer.fresh(argv, program, time.time())
    assert not answer.fresh(argv, program, time.time() + asking.OLDEST)
    assert not answer.fresh((*argv, "x"), program, time.time())


def test_a_secret_before_the_flags_is_kept_in_no_answer(tmp_path: Path) -> None:
    text = (
        "[Service]\nExecStart=/usr/bin/env DB_PASSWD=hush PROXY=http://u:hush@x:1 /bin/false -m sglang.launch_server\n"
    )
    unit = Unit("sglang-a.service", (UnitFile("/etc/systemd/system/sglang-a.service", text),))
    argv, _ = asked(unit)
    answer_all(("sglang-a.service",), tmp_path, lambda name: unit, lambda name: None)
    answer = load(tmp_path, unit.name)
    assert answer is not None
    assert answer.of(argv)
    assert not answer.of((*argv, "x"))
    assert "hush" in " ".join(argv)
    assert "hush" not in (tmp_path / ANSWERS / unit.name).read_text()
