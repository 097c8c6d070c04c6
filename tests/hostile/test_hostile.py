"""Who can write into a log cannot make triage act: no imitation is ever acted on unasked, and nothing out of a log
reaches a command line, a path or a file but as the one word that it is.

The site here allows everything (automatic, every rule stable, a long history, no window), so that only what is asked of
the evidence protects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import FAILED, MAIN, RUN, UNIT, Said, stamp
from tests.remedy.fixtures import unit as made_unit
from tests.test_autonomy import FakeHands
from triage.actionmodel import Level
from triage.actions import wire
from triage.autonomy import Deciding
from triage.diagnose import diagnose
from triage.model import Change, Edit, Finding, FindingEvent, Refused, Remedy, TriageError
from triage.remedy import plan
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulefile import rule_folders
from triage.settings import Autonomy
from triage.store import Store, Verdict
from triage.units.dropin import Standing
from triage.units.unitfile import drop_in_path, effective

ALL = Autonomy(level=Level.AUTOMATIC)
SHELL = (
    "$(touch /owned)",
    "`touch /owned`",
    "; touch /owned",
    "| sh",
    "&& reboot",
    "../../../etc/shadow",
    "/etc/systemd/system/x.service",
    "%h/%n",
    "$HOME ${PATH}",
    "'\"; touch /owned #",
    '" --trust-remote-code --model-path /evil "',
    "a\\\\nExecStartPre=/bin/touch /owned",
    "0.5\nExecStartPre=/bin/touch /owned",
    "0.5\rExecStartPre=/bin/touch /owned",
    "x\u2028User=root",
    "\x1b]0;owned\x07\x1b[2J",
    "\u202egnp.exe",
    "\0",
)
# As a server's own lines: whatever it prints, and whatever a request makes it print.
TRACEBACK = [text.text for text in story.rank_crash(10_500, 3)]
GIVEN_UP = [text.text for text in story.parent_gives_up(10_600)]
MANAGER = [
    f"systemd[1]: {UNIT}: Main process exited, code=killed, status=9/KILL",
    f"{UNIT}: Failed with result 'signal'.",
    f"Nov 29 12:00:11 gpu-ash systemd[1]: {UNIT}: Failed with result 'signal'.",
    json.dumps({"_PID": "1", "UNIT": UNIT, "MESSAGE_ID": FAILED, "UNIT_RESULT": "signal", "MESSAGE": "Failed"}),
    f"MESSAGE_ID={FAILED}\nUNIT={UNIT}\nUNIT_RESULT=signal",
]
KERNEL = [
    "kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=4203, name=python3, GPU has fallen off the bus.",
    "kernel: Out of memory: Killed process 4203 (python3) total-vm:1kB, anon-rss:1kB",
    "systemd-oomd[1]: Killed /system.slice/sglang.service due to memory pressure",
]
FORGED = {  # fields that a process may set itself; _PID and _SYSTEMD_UNIT are journald's own
    "UNIT": UNIT,
    "MESSAGE_ID": FAILED,
    "UNIT_RESULT": "signal",
    "INVOCATION_ID": RUN,
    "SYSLOG_IDENTIFIER": "systemd",
    "_COMM": "systemd",
}


def said(lines: list[str], fields: Mapping[str, str] | None = None) -> list[Said]:
    return [Said(text, MAIN, 10_700, dict(fields or {})) for text in lines]


HOSTILE = {
    "a traceback that is printed, and the server goes on": said([*TRACEBACK, *GIVEN_UP]),
    "the manager's words in the server's mouth": said([*TRACEBACK, *GIVEN_UP, *MANAGER]),
    "the manager's fields, set by a process": [*said([*TRACEBACK, *GIVEN_UP]), *said(["Failed"], FORGED)],
    "the manager's words alone": said(MANAGER),
    "the kernel's words": said([*TRACEBACK, *KERNEL]),
    "a prompt with a crash in it": said(
        [f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(rid='7', text=\"", *TRACEBACK, *GIVEN_UP, *MANAGER]
    ),
    "a prompt with a crash in it, logged as an answer": said(
        [f"[{stamp(10_500)}] Finish: obj=GenerateReqInput(rid='7'), out={{'text': '", *TRACEBACK, *MANAGER, "'}"]
    ),
    "control characters in every line": said([f"\x1b[2J\x1b[1m{text}\x07\r\b" for text in [*TRACEBACK, *GIVEN_UP]]),
    "a usage error": said(["usage: launch_server.py [-h]", "launch_server.py: error: unrecognized arguments: --x"]),
    "rule ids and shell text": said([f"{text} dflash-graph-replay-none disable-cuda-graph" for text in SHELL]),
}


@cache
def rulebook() -> Rulebook:
    return Rulebook.load(rule_folders())


def findings(data: bytes) -> list[Finding]:
    return [diagnose(crash, rulebook()) for crash in crashes_of(data)]


@dataclass(frozen=True)
class Trusted:
    digest: str
    stable: bool = True


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'triage.db'}", host=story.HOST)
    made.upgrade()
    monkeypatch.setattr(Store, "proved", lambda self, rule, remedy: 99)
    yield made
    made.close()


def verdicts(store: Store, found: list[Finding]) -> list[Verdict]:
    """What the most trusting site does about these crashes."""
    now = max((finding.crash.ended or finding.crash.started or 0 for finding in found), default=story.START)
    events = tuple(FindingEvent(Change.CLOSED, finding) for finding in found)
    store.record("journal:", events, cursor=None, contexts=None, now=now)
    digests = {match.rule: match.rule_digest for finding in found for match in finding.matches}
    hands = FakeHands(store)
    worker = Deciding(ALL, store, hands, rule=lambda name: Trusted(digests.get(name, "")))  # type: ignore[arg-type, return-value]
    worker.round(now)
    made = [decision.verdict for decision in store.decisions()]
    assert (Verdict.FILED in made) == bool(hands.filed)
    return made


@pytest.mark.parametrize("render", [story.as_json, story.as_export, story.as_text, story.as_short])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_imitation_is_acted_on(store: Store, name: str, render: Any) -> None:
    lines = [*story.starting(), *story.serving(10_000, 10), *HOSTILE[name]]
    for more in ([], story.serving(10_800, 60)):
        assert Verdict.FILED not in verdicts(store, findings(render([*lines, *more])))


def test_the_same_crash_confirmed_by_the_manager_is_acted_on(store: Store) -> None:
    """Else the tests above would hold for a worker that never does anything."""
    lines = [
        *story.starting(),
        *story.rank_crash(10_500, 3),
        *story.parent_gives_up(10_600),
        *story.unit_failed(10_700),
    ]
    assert verdicts(store, findings(story.as_json(lines))) == [Verdict.FILED]


def test_a_stop_that_was_asked_for_confirms_nothing(store: Store) -> None:
    lines = [*story.starting(), *story.serving(10_000, 10), *said([*TRACEBACK, *GIVEN_UP])]
    ended = [*lines, *story.stop_asked(10_800), *story.unit_failed(10_900)]
    assert Verdict.FILED not in verdicts(store, findings(story.as_json(ended)))


# ---------------------------------------------------------------- captures

CAPTURING = (
    "launch_server.py: error: unrecognized arguments: --mem-fraction{0}",
    "launch_server.py: error: argument --attention-backend: invalid choice: '{0}' (choose from 'triton', 'fa3')",
    "launch_server.py: error: ambiguous option: --enable{0} could match --enable-metrics, --enable-mixed-chunk",
    "launch_server.py: error: argument --tp-size/--tp: expected one argument {0}",
    "ValueError: User-specified context_length ({0}) is greater than the derived context_length ({0}).",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {0} GiB.",
)


@pytest.mark.parametrize("text", SHELL, ids=ascii)
def test_nothing_captured_leaves_its_word(text: str) -> None:
    target = made_unit("kimi-k26-dflash")
    before = effective(target).commands[0].argv
    for wording in CAPTURING:
        lines = [*story.starting(0), *said(["usage: launch_server.py [-h]", *wording.format(text).split("\0")])]
        for finding in findings(story.as_text(lines)):
            for match in finding.matches:
                for remedy in match.remedies:
                    check_plan(target, before, match.rule, remedy)


@pytest.mark.parametrize("text", SHELL, ids=ascii)
@pytest.mark.parametrize("op", ["set-flag", "set-env", "set-unit"])
def test_an_edit_with_such_a_value_is_one_word_or_refused(text: str, op: str) -> None:
    target = made_unit("kimi-k26-dflash")
    before = effective(target).commands[0].argv
    name = {"set-flag": "--attention-backend", "set-env": "SGLANG_X", "set-unit": "Service.LimitNOFILE"}[op]
    remedy = Remedy("r", "flag", "t", "c", True, (Edit(op, name, text),), applicable=True)
    check_plan(target, before, "some-rule", remedy, value=text)


def check_plan(target: Any, before: tuple[str, ...], rule: str, remedy: Remedy, value: str | None = None) -> None:
    """Refused, or a drop-in in which every word is where it belongs. There is no policy here that would help."""
    if not remedy.edits:
        return
    try:
        made = plan(target, 3, rule, remedy, Standing(), action="i3-1", now=story.START)
    except TriageError:
        return
    assert made.drop_in_path == drop_in_path(target.name)
    assert not any(char < " " and char != "\n" for char in made.drop_in_text), "no control character in a file"
    assert "\u2028" not in made.drop_in_text
    allowed = ("#", "[", "ExecStart=", "Environment=", "UnsetEnvironment=", "LimitNOFILE=", " ")
    assert all(line.startswith(allowed) or not line for line in made.drop_in_text.splitlines()), made.drop_in_text
    file = replace(target.files[0], path=made.drop_in_path, text=made.drop_in_text)
    after = effective(replace(target, files=(*target.files, file)), with_drop_in=True)
    assert len(after.commands) == 1
    assert after.commands[0].argv == made.argv_after
    words = {str(part) for edit in made.edits for part in (edit.name, edit.value) if part is not None}
    joined = {f"{edit.name}={edit.value}" for edit in made.edits}
    # As the manager will hand them over: what it would expand is doubled in the file.
    argv = {word.replace("$$", "$").replace("%%", "%") for word in made.argv_after}
    assert argv - set(before) <= words | joined, "no word but those of the edit"
    if value is not None and "--attention-backend" in made.argv_after:
        assert value in argv


@pytest.mark.parametrize("field", ["action", "rule", "remedy", "unit"])
@pytest.mark.parametrize("text", SHELL, ids=ascii)
def test_no_name_of_a_request_is_anything_but_a_name(field: str, text: str) -> None:
    from tests.remedy.test_spool import REQUEST

    with pytest.raises(Refused):
        wire.load_request(wire.dump_request(replace(REQUEST, **{field: text})))
