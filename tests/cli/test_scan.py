"""`triage scan` as people and scripts run it: documents, exit codes, what it must not import."""

import gzip
import json
import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crashes import story

ROOT = Path(__file__).parents[2]


def scan(*arguments, data=b"", env=None):
    command = [sys.executable, "-m", "triage", "scan", *arguments]
    return subprocess.run(command, input=data, capture_output=True, cwd=ROOT, env=env, timeout=60)


@pytest.fixture
def crashed(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(story.as_text(story.story()))
    return path


def test_a_crash_gives_one_document_and_exit_code_1(crashed):
    done = scan("--json", "--tz", "UTC", str(crashed))
    assert (done.returncode, done.stderr) == (1, b"")
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["lines"] == len(crashed.read_bytes().splitlines())
    (crash,) = document["crashes"]
    root = crash["root"]
    assert (root["exception"], root["frame"]["file"], root["frame"]["line"]) == (
        "AttributeError",
        "dflash_worker.py",
        715,
    )
    assert crash["root"]["chain"][0]["exception"] == root["exception"]
    assert len(crash["ranks"]) == 8
    line = crash["evidence"]["lines"][0]
    assert crashed.read_text().splitlines()[line["n"] - 1] == line["text"]


def test_what_a_log_holds_reaches_the_terminal_in_ascii_only(tmp_path):
    log = tmp_path / "hostile.log"
    log.write_text("Traceback (most recent call last):\n  File 'x.py'\nValueError: \u202egnp.\u009b31m \x1b[2J end\n")
    done = scan("--json", str(log))
    assert all(byte == 10 or 32 <= byte < 127 for byte in done.stdout)
    assert "gnp." in json.loads(done.stdout)["crashes"][0]["root"]["message"]


def test_stdin_is_read_and_a_healthy_log_gives_0():
    done = scan("--json", data=story.as_text([*story.starting(), *story.serving(10_000, 50)]))
    assert done.returncode == 0
    assert json.loads(done.stdout)["crashes"] == []


def test_journal_text_has_the_same_id_as_the_plain_file(crashed):
    plain = json.loads(scan("--json", str(crashed)).stdout)["crashes"][0]
    for data in (
        story.as_json(story.story()),
        story.as_export(story.story()),
        gzip.compress(story.as_export(story.story())),
    ):
        other = json.loads(scan("--json", "-", data=data).stdout)["crashes"][0]
        assert (other["id"], other["signature"]) == (plain["id"], plain["signature"])
        assert other["unit"] == story.UNIT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("/no/such/file.log",), b"cannot be read"),
        (("/tmp",), b"is a folder"),
        (("--tz", "Mars/Olympus", "-"), b"time zone"),
        (("--since", "yesterday-ish", "-"), b"--since"),
        (("--rules", "/no/such/folder", "-"), b"folder of rules"),
        (("journal:",), b"never ends"),
        (("--no-such-option",), b"No such option"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2_and_one_sentence(arguments, words):
    done = scan(*arguments, data=b"x\n")
    assert done.returncode == 2
    assert done.stdout == b""
    assert words in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_healthy_archive_without_its_end_is_not_called_healthy(tmp_path, pack):
    packed = pack(story.as_text([*story.starting(), *story.serving(10_000, 9_000)]))
    (tmp_path / "cut").write_bytes(packed[: len(packed) * 2 // 3])
    done = scan("--json", str(tmp_path / "cut"))
    assert done.returncode == 2
    assert b"cut breaks off: no crash in what could be read" in done.stderr
    document = json.loads(done.stdout)
    assert document["crashes"] == []
    assert any("reading ended early" in text for text in document["notices"])


def test_an_archive_without_its_end_that_holds_a_crash_is_exit_code_1(tmp_path):
    packed = gzip.compress(story.as_text(story.story()))
    (tmp_path / "cut").write_bytes(packed[:-30])
    assert scan("--json", str(tmp_path / "cut")).returncode == 1


def test_it_imports_neither_the_store_nor_the_dashboard_nor_settings(crashed):
    program = (
        "import sys\nfrom triage.cli import triage\n"
        "try:\n    triage.main(['scan', '--json', sys.argv[1]], standalone_mode=False)\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'sqlalchemy', 'fastapi', 'pydantic_settings', 'uvicorn', 'alembic', 'systemd'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(crashed)], capture_output=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_people_get_a_short_report_without_colour_in_a_pipe(crashed):
    done = scan(str(crashed))
    assert done.returncode == 1
    text = done.stdout.decode()
    assert "FATAL" in text
    assert "dflash_worker.py:715" in text
    assert "\x1b" not in text
    assert "sk-not-to-be-seen" not in text


def test_a_unit_can_be_picked_from_a_journal_of_many():
    other = [story.Said(s.text, s.pid, s.ms, s.fields, s.run, "llm.service") for s in story.story()]
    data = story.as_json([*story.starting(), *other])
    assert json.loads(scan("--json", "-", data=data).stdout)["crashes"] == []
    (crash,) = json.loads(scan("--json", "--unit", "llm.service", "-", data=data).stdout)["crashes"]
    assert crash["unit"] == "llm.service"


def test_a_folder_without_a_journal_is_no_healthy_journal(tmp_path):
    done = scan(f"journal:{tmp_path}")
    assert done.returncode == 2
    assert b"holds no journal" in done.stderr


def test_people_are_told_which_rank_never_came():
    wait = "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE)"
    waits = [
        story.Said(f"[rank{rank}]:[E1129 12:10:12.3 ProcessGroupNCCL.cpp:685] {wait.format(rank)}", pid, 12_000)
        for rank, pid in enumerate(story.RANKS)
        if rank != 5
    ]
    done = scan("-", data=story.as_text([*story.starting(), *waits, *story.parent_gives_up(12_100)]))
    assert "suspect   TP5" in done.stdout.decode()


def node(rank, ms, last, flags):
    """One node's log of a server on two, without journald: it comes up, and a rank fails."""
    lines = [*story.starting(1), *story.rank_crash(ms, 0, last), *story.parent_gives_up(ms + 100)]
    flags = f"tp_size=16, {flags}, node_rank={rank}"
    shown = [
        said.text.replace("tp_size=8", flags).replace(" TP0]", f" TP{8 * rank}]") for said in lines if said.pid > 1
    ]
    return "\n".join(shown) + "\n"


TWO_NODES = "tp_size=16, nnodes=2, dist_init_addr='10.0.0.1:5000'"
GONE = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4242"


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("one_file", [False, True])
def test_a_node_that_saw_the_others_gone_follows_their_crash_however_the_logs_are_given(tmp_path, one_file, turned):
    texts = []
    for name, ms, last in (("ash", 12_000, story.NONE_TYPE), ("oak", 15_000, GONE)):
        ended = [*story.parent_gives_up(ms + 100), *story.unit_failed(ms + 300)]
        entries = [
            {**story.entry_fields(replace(said, run=name * 8)), "_HOSTNAME": f"gpu-{name}"}
            for said in [*story.starting(1), *story.rank_crash(ms, 0, last), *ended]
        ]
        texts.append("".join(json.dumps(entry) + "\n" for entry in entries).replace("tp_size=8", TWO_NODES))
    texts = texts[::-1] if turned else texts
    paths = [tmp_path / f"{n}.json" for n in range(2)]
    for path, text in zip(paths, ["".join(texts)] if one_file else texts, strict=False):
        path.write_text(text)
    done = scan("--json", *[str(path) for path in paths if path.exists()])
    crashes = {crash["host"]: crash for crash in json.loads(done.stdout)["crashes"]}
    if one_file and turned:  # the other's was open yet: one crash, seen from both
        assert [crash["root"]["exception"] for crash in crashes.values()] == ["AttributeError"]
        return
    assert (crashes["gpu-ash"]["follows"], crashes["gpu-oak"]["follows"]) == (None, crashes["gpu-ash"]["id"])
    assert crashes["gpu-oak"]["matches"][0]["remedies"][0]["id"] == "mend-the-one-before"


@pytest.mark.parametrize(
    ("flags", "ms", "follows"),
    [
        ("nnodes=2, dist_init_addr='10.0.0.1:5000'", 15_000, True),
        ("nnodes=2, dist_init_addr='10.0.0.9:5000'", 15_000, False),
        ("nnodes=1, dist_init_addr=None", 15_000, False),
        ("nnodes=2, dist_init_addr='10.0.0.1:5000'", 95_000, False),
    ],
)
def test_plain_logs_of_two_nodes_belong_together_by_what_their_servers_were_given(tmp_path, flags, ms, follows):
    for n, (when, last, given) in enumerate(
        ((12_000, story.NONE_TYPE, "nnodes=2, dist_init_addr='10.0.0.1:5000'"), (ms, GONE, flags))
    ):
        (tmp_path / f"{n}.log").write_text(node(n, when, last, given))
    done = scan("--json", "--tz", "UTC", *[str(tmp_path / f"{n}.log") for n in range(2)])
    first, second = json.loads(done.stdout)["crashes"]
    assert (first["follows"], second["follows"] == first["id"]) == (None, follows)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"".join(repr(said.text).encode() + b"\n" for said in story.story()), True),
        (b"some words\nthat say nothing\n", True),
        (b"", False),
        (b"\n\n", False),
        (story.as_text(story.starting()), False),
        (b'INFO:     10.1.0.9:52114 - "POST /generate HTTP/1.1" 200 OK\n', False),
        (b"Nov 29 12:00:12 gpu-ash sshd[7]: Server listening on 0.0.0.0 port 22.\n", False),
        (b"The server is fired up and ready to roll!\nwords\n", False),
        (b"Loading safetensors checkpoint shards:  20% Completed | 2/10 [00:02<00:10,  1.1s/it]\n", False),
    ],
)
def test_a_text_of_which_no_line_has_a_known_form_gets_a_notice(data, told):
    done = scan("-", data=data)
    assert done.returncode == 0
    assert (b"not one line has a form that is known" in done.stderr) is told
