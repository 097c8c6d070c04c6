"""Lines that a logger, a cloud or syslog wrote something around."""

import io
import json

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.model import Outcome
from triage.sources.stream import StreamSource

SAID = [*story.starting(), *story.rank_crash(12_000, 2), *story.parent_gives_up(13_000)]
PLAIN = story.as_text(SAID)
TEXTS = PLAIN.decode().splitlines()
STAMP = "2026-11-29T12:00:20Z"


def each(form):
    return "".join(form(text) + "\n" for text in TEXTS)


def elastic(indent=None):
    hits = [{"_index": "i", "_source": {"@timestamp": STAMP, "message": text}} for text in TEXTS]
    return json.dumps({"took": 3, "hits": {"total": 9, "hits": hits}}, indent=indent)


FORMS = {
    "logfmt": each(lambda text: f"ts={STAMP} level=error msg={json.dumps(text)}"),
    "logfmt without time": each(lambda text: f"level=error caller=a.go:7 msg={json.dumps(text)} pod=llm-0"),
    "logfmt whose quotes are left as they are": each(lambda text: f'app=sglang log="{text}"'),
    "pairs, and the rest of the line": each(lambda text: f"app=sglang msg={text}"),
    "no more than a name": each(lambda text: f"message={text}"),
    "a cloud's": each(lambda text: json.dumps({"jsonPayload": {"message": text}, "timestamp": STAMP})),
    "a cloud's array": json.dumps([{"jsonPayload": {"message": text}, "timestamp": STAMP} for text in TEXTS], indent=2),
    "a hit a line": each(lambda text: json.dumps({"_index": "i", "_source": {"message": text}})),
    "hits": elastic(),
    "hits over lines": elastic(1),
    "events": json.dumps({"events": [{"timestamp": 1795953600000, "message": text} for text in TEXTS]}, indent=4),
    "Loki's answer": json.dumps(
        {"status": "success", "data": {"result": [{"stream": {}, "values": [["17", text] for text in TEXTS]}]}}
    ),
    "a string a line": each(json.dumps),
    "one string": json.dumps(PLAIN.decode()) + "\n",
    "an array of strings": json.dumps(TEXTS) + "\n",
    "Airflow": each(lambda text: f"[2026-11-29, 12:00:20 UTC] {{subprocess.py:93}} INFO - {text}"),
    "newer Airflow": each(lambda text: f"[2026-11-29T12:00:20.003+0000] {{subprocess.py:93}} INFO - {text}"),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_around_each_line_is_taken_off(form):
    (plain,), (crash,) = crashes_of(PLAIN), crashes_of(FORMS[form].encode())
    assert (crash.root.cause, crash.root.rank, crash.outcome) == (plain.root.cause, "TP2", Outcome.FATAL)
    assert (crash.phase, crash.context.flags) == (plain.phase, plain.context.flags)


def test_syslogs_word_for_the_end_of_a_line():
    head, crash = story.starting(), "#012".join(said.text for said in story.rank_crash(12_000, 2))
    lines = [said.text for said in head] + [crash] + [said.text for said in story.parent_gives_up(13_000)]
    data = "".join(f"Nov 29 12:00:20 gpu-ash python3[881]: {text}\n" for text in lines)
    (found,) = crashes_of(data.encode())
    assert (found.root.cause.exception, found.root.rank) == ("AttributeError", "TP2")
    assert found.root.cause.frame is not None


def test_an_object_that_holds_no_text_is_told():
    data = each(lambda text: json.dumps({"message": text})) + '{"took": 3}\n'
    batches = list(StreamSource("f", io.BytesIO(data.encode())).batches())
    assert batches[-1].notices == ("f: 1 entries could not be read and were left out",)


@pytest.mark.parametrize("form", ["{}", '{{"message": {}}}'])
def test_lines_that_are_lost_to_their_own_quotes_leave_the_crash_cut(form):
    """A traceback's frames hold quotes, the other lines do not."""
    data = each(lambda text: form.format(f'"{text}"'))
    (crash,) = crashes_of(data.encode())
    assert (crash.root.cause.exception, crash.root.rank, crash.grade.value) == ("AttributeError", "TP2", "cut")
    (crash,) = crashes_of(
        (form.format('"so "he" said"') + "\n" + each(lambda text: form.format(json.dumps(text)))).encode()
    )
    assert crash.grade.value == "complete"


def test_an_object_without_text_cuts_nothing():
    data = "".join(f'{json.dumps({"message": text})}\n{{"took": 3}}\n' for text in TEXTS)
    (crash,) = crashes_of(data.encode())
    assert crash.grade.value == "complete"


def test_a_record_of_a_request_stays_one():
    """What a record quotes is taken for no line, whatever wraps it."""
    text = f"[{story.stamp(12_000)}] Receive: obj=GenerateReqInput(text='msg=\"Traceback (most recent call last):\"')"
    data = "".join(f"level=info msg={json.dumps(line)}\n" for line in [*TEXTS[:20], text])
    assert crashes_of(data.encode()) == []


def test_a_request_that_writes_syslogs_word_opens_no_crash():
    forged = "#012".join(said.text for said in story.rank_crash(12_000, 2))
    text = f"[{story.stamp(12_000)}] Receive: obj=GenerateReqInput(rid='7', text='why? #012{forged}', n=1)"
    lines = [said.text for said in story.starting()]
    data = "".join(f"Nov 29 12:00:20 gpu-ash python3[881]: {line}\n" for line in [*lines, text])
    assert crashes_of(data.encode()) == []


LEAD = f"[{story.stamp(12_000)} TP2] Scheduler hit an exception"
BELOW = "\n".join(["Traceback (most recent call last):", *story.traceback_lines(story.FRAMES, "KeyError: 7")])
FRAMES = "\n".join(story.traceback_lines(story.FRAMES, "")[:-1])
PARTS = [
    {
        "exc_type": kind,
        "exc_value": "7",
        "is_cause": True,
        "frames": [{"filename": path, "lineno": line, "name": name} for path, line, name, _ in frames],
    }
    for kind, frames in (("RuntimeError", story.FRAMES[:1]), ("KeyError", story.FRAMES))
]
RECORDS = {
    "python-json-logger": {"msg": LEAD, "exc_info": BELOW},
    "with a time": {"message": LEAD, "exc_info": BELOW, "time": STAMP},
    "structlog": {"event": LEAD, "exception": BELOW, "level": "error"},
    "structlog in parts": {"event": LEAD, "exception": PARTS, "level": "error"},
    "a list of lines": {"message": LEAD, "exc_info": BELOW.split("\n")},
    "as Python formats it": {"message": LEAD, "exc_info": BELOW.splitlines(keepends=True), "time": STAMP},
    "ECS": {"message": LEAD, "error": {"type": "KeyError", "message": "7", "stack_trace": FRAMES}},
    "twice": {"message": f"{LEAD}: {BELOW}", "exc_info": BELOW},
}
END = f"[{story.stamp(12_100)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed."


@pytest.mark.parametrize("kind", [*RECORDS, "logfmt"])
def test_a_traceback_in_a_member_of_its_own_is_read_below_the_text(kind):
    texts = [said.text for said in story.starting()]
    if kind == "logfmt":
        lines = [f"level=info msg={json.dumps(text)}" for text in (*texts, END)]
        lines.insert(-1, f"level=error msg={json.dumps(LEAD)} exc_info={json.dumps(BELOW)}")
    else:
        lines = [*(json.dumps({"msg": text}) for text in texts), json.dumps(RECORDS[kind]), json.dumps({"msg": END})]
    (crash,) = crashes_of(("\n".join(lines) + "\n").encode())
    cause = crash.root.cause
    assert (cause.exception, cause.message, cause.frame.line) == ("KeyError", "7", story.FRAMES[-1][1])
    assert (crash.root.rank, len(crash.root.chain)) == ("TP2", 2 if "parts" in kind else 1)


@pytest.mark.parametrize("stamped", [{}, {"time": STAMP}])
@pytest.mark.parametrize("name", ["msg", "exc_info"])
def test_the_end_of_a_record_ends_the_message_of_its_exception(name, stamped):
    """A logger that writes no head before each text: what others say next would go on with the message."""
    below = BELOW.replace("KeyError: 7", "ValueError: of\nthree\nlines")
    text = "Scheduler hit an exception: "
    record = {"msg": text + below} if name == "msg" else {"msg": text, name: below}
    others = [{"msg": text} for text in ("cache is warm", "Prefetch of 3 blocks", "and so on")]
    said = [*({"msg": said.text} for said in story.starting()), record, *others, {"msg": END}]
    (crash,) = crashes_of("".join(json.dumps({**each, **stamped}) + "\n" for each in said).encode())
    assert (crash.root.cause.exception, crash.root.cause.message) == ("ValueError", "of\nthree\nlines")
    assert crash.outcome is Outcome.FATAL


@pytest.mark.parametrize(
    ("joint", "chain"),
    [
        ("During handling of the above exception, another exception occurred:", ["RuntimeError"]),
        ("The above exception was the direct cause of the following exception:", ["KeyError", "RuntimeError"]),
    ],
)
def test_a_chain_goes_on_in_the_next_record(joint, chain):
    """Collectors that put a traceback's lines together end a record where its exception is told."""
    after = f"\n{joint}\n\n{BELOW.replace('KeyError: 7', 'RuntimeError: the scheduler gives up')}"
    records = [*(said.text for said in story.starting()), f"{LEAD}\n{BELOW}", after, END]
    (crash,) = crashes_of("".join(json.dumps({"msg": text}) + "\n" for text in records).encode())
    assert [link.exception for link in crash.root.chain] == chain
    assert len(chain) == 2 or "while KeyError was being handled" in crash.root.why


@pytest.mark.parametrize("records", [[f"{LEAD}: {BELOW}"], [LEAD, BELOW]])
def test_what_a_collector_put_together_goes_on_in_the_next_record(records):
    """It ends a record where an exception is told: the rest of the message comes as records of its own."""
    said = [*(said.text for said in story.starting()), *records, "of two lines", END]
    (crash,) = crashes_of("".join(json.dumps({"log": f"{text}\n"}) + "\n" for text in said).encode())
    assert (crash.root.cause.exception, crash.root.cause.message) == ("KeyError", "7\nof two lines")


def test_a_traceback_of_which_each_line_is_a_record_goes_on():
    lines = [*(said.text for said in story.starting()), LEAD, *BELOW.split("\n"), "of two lines", END]
    (crash,) = crashes_of("".join(json.dumps({"log": f"{text}\n"}) + "\n" for text in lines).encode())
    assert (crash.root.cause.exception, crash.root.cause.message) == ("KeyError", "7\nof two lines")


def test_what_a_request_says_is_no_traceback_of_its_records():
    record = {"msg": f"[{story.stamp(12_000)}] refused", "error": BELOW}
    lines = [json.dumps({"msg": said.text}) for said in story.starting()]
    assert crashes_of("\n".join([*lines, json.dumps(record), ""]).encode()) == []


@pytest.mark.parametrize(
    "before",
    ['"a quotation"', '"a quotation" and more', '{\n  "text": "what the server was given"\n}', '{\n "event": 1\n}\n'],
)
def test_a_log_that_begins_with_something_like_json_is_text(before):
    (crash,) = crashes_of(before.encode() + b"\n" + PLAIN)
    assert (crash.root.rank, crash.outcome) == ("TP2", Outcome.FATAL)


def test_one_long_string_is_read_whole():
    text = story.as_text([*story.starting(), *story.serving(10_000, 2_000)]).decode() + PLAIN.decode()
    assert len(text) > 1 << 17
    (crash,) = crashes_of(json.dumps(text).encode())
    assert (crash.root.rank, crash.outcome) == ("TP2", Outcome.FATAL)
