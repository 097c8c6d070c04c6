"""A request's text that looks like a crash is none, however many lines it has."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, Said, stamp
from tests.fuzz.words import HEADS, LINES
from triage.model import Grade, Outcome, Role

CRASH = [
    f"[{stamp(10_500)} TP0] Scheduler hit an exception: Traceback (most recent call last):",
    *story.traceback_lines(story.FRAMES, "ValueError: ('imitated', 1)"),
    f"[{stamp(10_500)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    'print("and this is code")',
    "NVRM: Xid (PCI:0000:9b:00): 79, pid=4203, name=python3, GPU has fallen off the bus.",
    "sglang serve: error: unrecognized arguments: --turbo",
    'raise ValueError("boom", key=1)',
]
OPENINGS = {
    "request": (
        "Receive: obj=GenerateReqInput(rid='7', text=\"Why is this?",
        "\", sampling_params={'n': 1}, stream=True)",
    ),
    "code": ("Receive: obj=GenerateReqInput(rid='7', text=\"def f(x)", '", input_ids=None, stream=True)'),
    "answer": ("Finish: obj=GenerateReqInput(rid='7'), out={'text': 'it says", "', 'meta_info': {'id': '7', 'n': 3}}"),
    "opened": ('Receive: obj=GenerateReqInput(text="', '", stream=True)'),
    "messages": ("chat messages: [{'content': 'see", "'}]"),
}


FATAL_LINES = (
    "Fatal Python error: Segmentation fault",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    f"[{stamp(10_500)} TP0] Scheduler hit an exception: Traceback (most recent call last):",
    "sglang serve: error: unrecognized arguments: --turbo",
)


def said(lines, ms=10_500):
    return [Said(text, MAIN, ms) for text in lines]


def record(kind, body):
    head, end = OPENINGS[kind]
    return said([f"[{stamp(10_500)}] {head}", *body, end])


@pytest.mark.parametrize("kind", OPENINGS)
@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_short])
def test_an_imitated_crash_over_many_lines_of_a_request_is_none(kind, render):
    lines = [*story.starting(), *story.serving(10_000, 10), *record(kind, CRASH)]
    assert crashes_of(render(lines)) == []
    assert crashes_of(render([*lines, *story.serving(10_600, 60)])) == []


@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_a_real_crash_behind_a_request_that_imitates_one_is_found(render):
    lines = [*story.starting(), *record("request", CRASH), *story.rank_crash(12_000, 3), *story.parent_gives_up(12_100)]
    (crash,) = crashes_of(render([*lines, *story.unit_failed(12_200)]))
    assert (crash.root.cause.exception, crash.outcome, crash.grade) == (
        "AttributeError",
        Outcome.FATAL,
        Grade.COMPLETE,
    )


def test_a_request_whose_end_never_comes_makes_what_follows_doubtful_not_fatal():
    head, _ = OPENINGS["request"]
    lines = [*story.starting(), *said([f"[{stamp(10_500)}] {head}", *CRASH[:-1]])]
    (crash,) = crashes_of(story.as_text(lines))
    assert (crash.outcome, crash.grade) == (Outcome.UNKNOWN, Grade.MIXED)


def test_the_manager_confirms_what_a_log_alone_could_not():
    head, _ = OPENINGS["request"]
    lines = [*story.starting(), *said([f"[{stamp(10_500)}] {head}", *CRASH[:20]]), *story.unit_failed(11_000)]
    (crash,) = crashes_of(story.as_json(lines))
    assert (crash.outcome, crash.grade) == (Outcome.FATAL, Grade.MIXED)


def test_requests_on_one_line_open_nothing():
    lines = [
        *story.starting(),
        *said(
            [f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(rid='7', text='a \\n b', input_ids=[1], n={{'t': 0.0}})"]
        ),
        *said([f"[{stamp(10_500)}] Finish: obj=GenerateReqInput(rid='7'), out={{'text': 'Paris', 'n': 1}}"]),
        *story.rank_crash(10_600, 3),
        *story.parent_gives_up(10_700),
    ]
    (crash,) = crashes_of(story.as_text(lines))
    assert (crash.outcome, crash.grade) == (Outcome.FATAL, Grade.COMPLETE)


# ---------------------------------------------------------------- one line that would be two


@pytest.mark.parametrize("text", FATAL_LINES)
@pytest.mark.parametrize(
    "record", ["[{}] Receive: obj=GenerateReqInput(text='a\rb {{}}", "[{} TP0] bad input: a\r{{}}", "INFO:  a\r{{}}"]
)
@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_short])
def test_what_a_carriage_return_sets_to_the_head_of_a_record_is_still_its_text(text, record, render):
    line = record.format(stamp(10_500)).replace("b {}", "{}").format(text)
    lines = [*story.starting(), Said(line, MAIN, 10_500), *story.serving(10_600, 60)]
    assert crashes_of(render(lines)) == []


# ---------------------------------------------------------------- a text that nothing encloses


@pytest.mark.parametrize("text", FATAL_LINES[:3])
def test_a_process_that_works_on_did_not_die(text):
    """A message that quotes what a client sent, over many lines and without a quotation mark."""
    fake = [text, *(story.traceback_lines(story.FRAMES, "ValueError: imitated") if text.endswith("last):") else ())]
    lines = [*story.starting(), *said([f"[{stamp(10_500)}] cannot parse: a", *fake])]
    crashes = crashes_of(story.as_json([*lines, *story.serving(10_600, 1_000)]))
    assert {crash.outcome for crash in crashes} <= {Outcome.RECOVERED}


def test_a_ranks_tag_under_the_front_ends_pid_is_doubtful_whatever_follows():
    lines = [*story.starting(), *said([f"[{stamp(10_500)}] cannot parse: a", *CRASH[:20]])]
    (crash,) = crashes_of(story.as_json([*lines, *story.unit_failed(11_000)]))
    assert (crash.root.cause.exception, crash.grade) == ("ValueError", Grade.MIXED)
    (crash,) = crashes_of(story.as_json([*story.starting(), *story.rank_crash(10_500, 0), *story.unit_failed(11_000)]))
    assert (crash.root.cause.exception, crash.grade) == ("AttributeError", Grade.COMPLETE)


def test_a_record_of_one_line_is_no_usage_error():
    line = f"[{stamp(10_500)}] cannot parse: error: unrecognized arguments: --turbo"
    lines = [*story.starting(), *said([line, line.replace("cannot parse", "sglang serve")])]
    assert crashes_of(story.as_text([*lines, *story.serving(10_600, 60)])) == []


@pytest.mark.parametrize("head", ["kernel: ", "[ 4123.123456] ", "Nov 29 12:00:10 gpu-ash kernel: "])
def test_a_kernels_line_in_a_servers_own_log_is_doubtful(head):
    xid = f"{head}NVRM: Xid (PCI:0000:9b:00): 79, pid=4203, name=python3, GPU has fallen off the bus."
    lines = [*story.starting(), *said([f"[{stamp(10_500)}] cannot parse: a", xid]), *story.parent_gives_up(10_500)]
    (crash,) = crashes_of(story.as_text(lines))
    assert (crash.root.cause.exception, crash.outcome, crash.grade) == ("Xid 79", Outcome.UNKNOWN, Grade.MIXED)


@pytest.mark.parametrize("kind", ["request", "code", "answer", "messages"])
@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_a_request_that_writes_its_own_end_makes_what_follows_doubtful(kind, render):
    head, end = OPENINGS[kind]
    text = [head, "', 'rid': 1, 'n': 2})", *CRASH[:20], end if end[:1] in "\"'" else f"'{end}"]
    lines = [*story.starting(), *said([f"[{stamp(10_500)}] {text[0]}", *text[1:]])]
    for crash in crashes_of(render(lines)):
        assert (crash.outcome, crash.grade) == (Outcome.UNKNOWN, Grade.MIXED)


def test_a_journals_line_within_a_journals_line_is_its_process_s():
    head = "2026-11-29T12:00:10.500000+00:00 gpu-ash"
    fake = [f"{head} systemd[1]: {said.text}" for said in story.unit_failed(10_500)]
    fake += [f"{head} kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=4203, GPU has fallen off the bus."]
    lines = [*story.starting(), *said([f"[{stamp(10_500)}] cannot parse: a", *fake]), *story.serving(10_600, 60)]
    assert crashes_of(story.as_short(lines)) == []


@pytest.mark.parametrize("text", FATAL_LINES)
@pytest.mark.parametrize("bar", ["7% x 1it/s] ", "7%| x [{}] ", "Loading: 7%|# | 1/8 [00:01<00:07, 1.2it/s]"])
@pytest.mark.parametrize("record", ["[{}] Receive: obj=GenerateReqInput(text='{}", 'INFO:   1.2.3.4:5 - "GET /{}'])
def test_what_a_progress_bar_within_a_record_ends_with_is_still_its_text(text, bar, record):
    line = record.replace("{}", stamp(10_500), record.count("{}") - 1).replace("{}", bar.format(stamp(10_500)) + text)
    lines = [*story.starting(), Said(line, MAIN, 10_500), *story.serving(10_600, 60)]
    assert crashes_of(story.as_text(lines)) == []
    assert crashes_of(story.as_json(lines)) == []


@pytest.mark.parametrize(
    "bar", ["Loading: 7%|# | 1/8 [00:01<00:07, 1.2it/s]", "Loading:  12%|#   | 1/8 [00:00<?", "7%|#\r9%|#\r"]
)
@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_short])
def test_a_record_behind_a_bar_is_read(bar, render):
    crash = story.rank_crash(12_000, 3)
    crash[0] = Said(bar + crash[0].text, crash[0].pid, crash[0].ms)
    (found,) = crashes_of(render([*story.starting(), *crash, *story.parent_gives_up(12_100)]))
    assert (found.root.rank, found.root.cause.exception) == ("TP3", "AttributeError")
    assert len(found.root.cause.frames) == len(story.FRAMES)


@pytest.mark.parametrize("text", FATAL_LINES)
def test_requests_that_begin_alike_are_no_traceback_with_a_margin(text):
    head = f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(text='"
    texts = ["Traceback (most recent call last): x', n=1)", '  File "x", line 1, in f', text, f"{text}', n=1)"]
    lines = [*story.starting(), *said([head + each for each in texts]), *story.serving(10_600, 60)]
    assert crashes_of(story.as_text(lines)) == []


def test_a_terminals_sequence_without_an_end_hides_no_end_of_a_record():
    line = f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(text='a \x1b]b', input_ids=None, stream=True)"
    lines = [*story.starting(), *said([line]), *story.rank_crash(10_500, 3), *story.parent_gives_up(10_600)]
    (crash,) = crashes_of(story.as_text(lines))
    assert (crash.outcome, crash.grade) == (Outcome.FATAL, Grade.COMPLETE)


GLUE = (
    " ",
    "\\n",
    "\r",
    "\x1b[2K",
    "\0",
    "\x0b",
    "\x85",
    "%|",
    "it/s]",
    "7%",
    "'",
    '"',
    "', 'a': 1)",
    "[2026-11-29 12:00:10 TP0] ",
)
TEXT = st.lists(st.sampled_from((*GLUE, *HEADS, *LINES)), min_size=1, max_size=5).map("".join)
RECORDS = (
    "[{}] Receive: obj=GenerateReqInput(rid='7', text='{}', n={'n': 1}, stream=True)",
    "[{}] Finish: obj=GenerateReqInput(rid='7'), out={'text': '{}', 'meta_info': {'id': '7', 'n': 3}}",
    'INFO:     10.1.0.9:52114 - "GET /{1} HTTP/1.1" 404 Not Found',
)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.tuples(st.sampled_from(RECORDS), TEXT), min_size=1, max_size=4),
    render=st.sampled_from([story.as_text, story.as_json, story.as_short]),
)
def test_no_record_of_one_line_opens_a_crash_whatever_it_quotes(texts, render):
    lines = [record.replace("{}", stamp(10_500), 1).replace("{1}", "{}").replace("{}", text) for record, text in texts]
    assert crashes_of(render([*story.starting(1), *said(lines), *story.serving(10_600, 40)])) == []


def real_crash(ms=10_700):
    return [*story.rank_crash(ms, 3), *story.parent_gives_up(ms + 100)]


QUERIES = ("text='", "prompt='", 'content="', "input=[", "messages={", "text='a' b")


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
def test_no_request_hides_the_crash_behind_it(query, status):
    """What a client may send without a key stands in the HTTP server's log as it came."""
    asked = said([f'INFO:     10.1.0.9:52114 - "GET /x?{query} HTTP/1.1" {status}'])
    ended = said([f"[{stamp(10_900)}] Receive: obj=GenerateReqInput(rid='7', text='a', input_ids=None, n={{'t': 0}})"])
    for lines in (
        [*story.starting(), *asked, *real_crash()],
        [*story.starting(), *asked, *real_crash(), *ended],
        [*story.starting(), *asked, *asked, *real_crash(), *asked],
    ):
        (crash,) = crashes_of(story.as_text(lines))
        assert (crash.root.cause.exception, crash.outcome, crash.grade) == (
            "AttributeError",
            Outcome.FATAL,
            Grade.COMPLETE,
        )
        one_pid = [replace(each, pid=MAIN) for each in lines]
        (crash,) = crashes_of(story.as_json([*one_pid, *story.unit_failed(11_000)]))
        assert (crash.root.cause.exception, crash.outcome) == ("AttributeError", Outcome.FATAL)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.tuples(st.sampled_from(RECORDS), TEXT), min_size=1, max_size=4),
    render=st.sampled_from([story.as_text, story.as_json]),
)
def test_no_record_of_one_line_hides_a_crash_or_changes_what_is_known_of_the_server(texts, render):
    lines = [record.replace("{}", stamp(10_500), 1).replace("{1}", "{}").replace("{}", text) for record, text in texts]
    whole = [*story.starting(), *said(lines), *real_crash(), *story.unit_failed(11_000), *said(lines, 11_100)]
    crash = crashes_of(render(whole))[0]
    (clean,) = crashes_of(render([*story.starting(), *real_crash(), *story.unit_failed(11_000)]))
    assert crash.root.cause == clean.root.cause
    assert (crash.context.flags, crash.context.sglang_version) == (clean.context.flags, clean.context.sglang_version)
    assert (crash.phase, crash.outcome) == (clean.phase, clean.outcome) or crash.grade is Grade.MIXED


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     10.1.0.9:52114 - "GET /health?server_args=ServerArgs(tp_size=16) HTTP/1.1" 404 Not Found',
        f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(rid='server_args=ServerArgs(tp_size=16)', text='a')",
        f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(rid='Capture cuda graph begin', text='a')",
    ],
)
def test_no_request_says_what_the_server_was_started_with(line):
    (crash,) = crashes_of(story.as_text([*story.starting(), *said([line]), *real_crash()]))
    assert crash.context.flags["tp_size"] == "8"
    (clean,) = crashes_of(story.as_text([*story.starting(), *real_crash()]))
    assert crash.context == clean.context


@pytest.mark.parametrize("before", [["x"] * 505, ["', input_ids=None, sampling_params={}, stream=True)"]])
@pytest.mark.parametrize("last", ["bye", "[2026-11-29 12:00:10 TP0] bye", ""])
def test_a_text_that_is_long_or_writes_its_own_end_opens_nothing_fatal(before, last):
    head, end = OPENINGS["request"][0], "', input_ids=None, sampling_params={'n': 5})"
    lines = said([f"[{stamp(10_500)}] {head}", *before, *CRASH, *CRASH[:-4], last + end])
    crashes = crashes_of(story.as_text([*story.starting(), *lines]))
    assert {(crash.outcome, crash.grade) for crash in crashes} <= {(Outcome.UNKNOWN, Grade.MIXED)}


RESTART = f"[{stamp(10_500)}] server_args=ServerArgs(model_path='/srv/models/k26', tp_size=8)"


@pytest.mark.parametrize("after", [["the server answers"], ["it starts"], []])
def test_a_start_that_the_old_server_outlives_was_none(after):
    """A line with a server's flags, which a request can write, ends the one before only if a start follows."""
    crash = [*story.rank_crash(10_500, 0), *story.parent_gives_up(10_500)]
    begins = [Said(f"[{stamp(30_000)} TP0] Init torch distributed begin.", MAIN, 30_000)]
    then = [*story.serving(30_000, 9), *begins] if "the server answers" in after else begins if after else []
    crashes = crashes_of(story.as_text([*story.starting(), *crash, *said([RESTART]), *then]))
    lived = "the server answers" in after
    assert [found.outcome for found in crashes] == [Outcome.RECOVERED if lived else Outcome.FATAL]


def test_a_start_that_fails_at_once_was_one():
    crash = [*story.rank_crash(10_500, 0), *story.parent_gives_up(10_500)]
    again = story.rank_crash(30_000, 0, "ValueError: no such model")
    lines = [*story.starting(), *crash, *said([RESTART]), *again]
    found = {each.root.cause.exception: each.outcome for each in crashes_of(story.as_text(lines))}
    assert (len(found), found["AttributeError"]) == (2, Outcome.FATAL)
    crashes = crashes_of(story.as_text([*lines, *story.serving(30_600, 300)]))
    assert {each.outcome for each in crashes} == {Outcome.RECOVERED}


# What a server's own start writes before it says that it is ready: its warm-up is answered like any request.
WARM_UP = [
    'INFO:     127.0.0.1:41222 - "GET /get_model_info HTTP/1.1" 200 OK',
    f"[{stamp(39_000)} TP0] Prefill batch. #new-seq: 1, #new-token: 6, #cached-token: 0, #queue-req: 0, ",
    'INFO:     127.0.0.1:41230 - "POST /generate HTTP/1.1" 200 OK',
]


def next_start(ms=30_000):
    lines = [Said(said.text.replace("12:00:0", "12:00:3"), said.pid, ms + said.ms) for said in story.starting()[1:]]
    return [*lines[:-1], *said(WARM_UP, 39_000), lines[-1]]


@pytest.mark.parametrize("flags", ["printed", "left out"])
@pytest.mark.parametrize("first", ["whole", "its beginning is not in the log"])
def test_each_crash_of_a_loop_in_a_plain_log_is_fatal_whatever_the_next_start_answers(flags, first):
    again = [each for each in next_start() if flags == "printed" or "server_args" not in each.text]
    before = story.starting() if first == "whole" else story.starting()[-1:]
    lines = [*before, *story.serving(10_000, 9), *real_crash(), *again, *story.serving(40_000, 300)]
    (crash,) = crashes_of(story.as_text(lines))
    assert (crash.outcome, crash.root.cause.exception) == (Outcome.FATAL, "AttributeError")
    twice = crashes_of(story.as_text([*lines, *story.rank_crash(60_000, 2, "KeyError: 'k'"), *real_crash(60_100)[-3:]]))
    assert [(each.outcome, each.root.rank) for each in twice] == [(Outcome.FATAL, "TP3"), (Outcome.FATAL, "TP2")]


def test_a_rank_that_still_loads_while_the_server_ends_is_no_next_start():
    lines = story.starting()[:12]
    more = [Said(f"[{stamp(4_000)} TP5] Load weight begin. avail mem=138.20 GB", story.RANKS[5], 4_000)]
    (crash,) = crashes_of(story.as_text([*lines, *real_crash(3_000), *more, *story.rank_crash(4_100, 5)]))
    assert (crash.outcome, crash.root.rank, set(crash.ranks)) == (Outcome.FATAL, "TP3", {"TP3", "TP5"})


QUOTED = [
    f"[{stamp(10_500)} TP3] Scheduler hit an exception: Traceback (most recent call last):",
    *story.traceback_lines(story.FRAMES, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
    "",
    f"[{stamp(10_500)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
]
ASGI = [
    f"[{stamp(10_500)}] ERROR:    Exception in ASGI application",
    "Traceback (most recent call last):",
    f'  File "{story.SITE}/sglang/srt/entrypoints/openai/serving_chat.py", line 200, in _process',
    "    raise ValueError(f'cannot parse {text!s}')",
]
FAILED = f"[{stamp(10_500)} TP5] Scheduler hit an exception: Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("first", "last"),
    [("'x", "'"), ("'x' y", "z'"), ('"x', '  ".'), ("('x", "',)"), ("'x", "' as JSON"), ("'x\ny'", "'")],
)
@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_a_crash_within_what_an_exception_quotes_is_doubtful_and_not_fatal(first, last, render):
    quoting = said([*ASGI, *f"ValueError: cannot parse {first}".split("\n"), *QUOTED, last])
    request, *others = crashes_of(render([*story.starting(), *story.serving(10_000, 10), *quoting]))
    assert request.outcome is Outcome.REQUEST_ERROR
    assert [(crash.outcome, crash.grade) for crash in others] == [(Outcome.UNKNOWN, Grade.MIXED)]


@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_what_a_root_quotes_adds_no_rank_and_changes_no_outcome(render):
    raised = [FAILED, *story.traceback_lines(story.FRAMES, "ValueError: bad prompt 'hello"), *QUOTED, "'", ""]
    lines = [*story.starting(), *story.serving(10_000, 10), *(Said(text, story.RANKS[5], 10_500) for text in raised)]
    (crash,) = crashes_of(render([*lines, *said(QUOTED[-1:], 10_900)]))
    assert (crash.ranks, crash.root.cause.exception, crash.grade) == (("TP5",), "ValueError", Grade.COMPLETE)
    assert crash.outcome is (Outcome.FATAL if render is story.as_text else Outcome.UNKNOWN)  # the manager said nothing


@pytest.mark.parametrize("between", ["it isn't", "    raise ValueError('why,", "for 'a' and 'b'"])
def test_a_crash_behind_a_message_that_ends_what_it_quotes_is_proved(between):
    handled = said([*ASGI, "ValueError: unknown role 'x'", between])
    (_, crash) = crashes_of(story.as_text([*story.starting(), *story.serving(10_000, 10), *handled, *said(QUOTED)]))
    assert (crash.outcome, crash.grade, crash.ranks) == (Outcome.FATAL, Grade.COMPLETE, ("TP3",))


FENCED = [("```", "```"), ("```json", "```"), ("x ```", "``` is no JSON")]
FIELD = (
    "messages.0.content\n  Input should be text [type=string_type, input_value={'text': 'look",
    "'}, input_type=dict]",
)
SEEMS_WHOLE = ("content\n  Input should be text [input_value='a', input={'b': 'c'}]", "'")


@pytest.mark.parametrize(("first", "last"), [*FENCED, FIELD, SEEMS_WHOLE])
@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_a_quotation_may_open_on_any_line_of_a_message_and_with_a_fence(first, last, render):
    quoting = said([*ASGI, *f"ValueError: cannot parse {first}".split("\n"), *QUOTED, last, "    see the docs"])
    request, *others = crashes_of(render([*story.starting(), *story.serving(10_000, 10), *quoting]))
    assert request.outcome is Outcome.REQUEST_ERROR
    assert [(crash.outcome, crash.grade) for crash in others] == [(Outcome.UNKNOWN, Grade.MIXED)]


@pytest.mark.parametrize("mark", ['"""', "'x", "```"])
def test_what_eight_ranks_quote_alike_makes_none_of_them_doubtful(mark):
    """One rank's message is no end of what another's quotes."""
    last = f"ValueError: no such mode\n{mark}"
    lines = [*story.starting(), *story.serving(10_000, 10)]
    for rank in range(8):
        lines += story.rank_crash(12_000 + rank, rank, last)
    (crash,) = crashes_of(story.as_text([*lines, *story.parent_gives_up(12_200)]))
    assert (crash.outcome, crash.grade, len(crash.ranks)) == (Outcome.FATAL, Grade.COMPLETE, 8)


@pytest.mark.parametrize("ended", [False, True])
def test_a_ranks_failure_under_the_one_pid_of_all_is_doubtful_where_the_manager_does_not_confirm_it(ended):
    """Nobody can tell it from what a request wrote, as long as the unit has not ended."""
    lines = [*story.starting(), *story.serving(10_000, 10), *said(QUOTED)]
    lines = [replace(each, pid=MAIN) if each.pid > 1 else each for each in lines]
    (crash,) = crashes_of(story.as_json([*lines, *(story.unit_failed(10_700) if ended else [])]))
    expected = (Outcome.FATAL, Grade.COMPLETE) if ended else (Outcome.UNKNOWN, Grade.MIXED)
    assert (crash.outcome, crash.grade) == expected


def test_a_failure_that_a_request_may_have_written_is_no_root_beside_one_that_is_none():
    forged = said([*ASGI, "ValueError: cannot parse ```", *QUOTED, "```"])
    real = [*story.rank_crash(11_000, 5), *story.parent_gives_up(11_050), *story.unit_failed(11_100)]
    _, crash = crashes_of(story.as_json([*story.starting(), *story.serving(10_000, 10), *forged, *real]))
    assert (crash.root.rank, crash.root.cause.exception, crash.ranks) == ("TP5", "AttributeError", ("TP5",))
    assert (crash.outcome, crash.grade) == (Outcome.FATAL, Grade.MIXED)
    (noise,) = [failure for failure in crash.failures if failure.cause.exception == "torch.OutOfMemoryError"]
    assert noise.role is Role.NOISE
