"""What stands before each line of a log in which few or no lines are SGLang's records."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.model import Outcome

SITE = "/opt/llm/lib/python3.12/site-packages"
USAGE = [
    f"{SITE}/sglang/srt/environ.py:717: UserWarning: SGL_PATH is deprecated",
    "  warnings.warn(",
    "usage: sglang serve [-h] --model-path MODEL_PATH",
    "                    [--tokenizer-path TOKENIZER_PATH]",
    *(f"                    [--option-{n} OPTION_{n}]" for n in range(60)),
    "sglang serve: error: unrecognized arguments: --enable-turbo-mode",
]
DUMP = [
    "Fatal Python error: Segmentation fault",
    "",
    "Current thread 0x00007f11a2b3c740 (most recent call first):",
    f'  File "{SITE}/sglang/srt/managers/overlap_utils.py", line 61 in resolve',
    f'  File "{SITE}/sglang/srt/managers/scheduler.py", line 2207 in run_batch',
]
PREFIXES = {
    "srun -l": lambda n: "0: ",
    "a number": lambda n: f"{n + 1:6}\t",
    "CloudWatch": lambda n: f"2026-11-29T12:00:{n % 60:02}.123Z\t",
    "Nomad": lambda n: f"2026-11-29T12:00:{n % 60:02} [sglang] ",
    "s6": lambda n: f"2026-11-29 12:00:{n % 60:02}.123456789  ",
    "Azure": lambda n: f"2026-11-29T12:00:{n % 60:02}.1234567Z ##[error]",
    "a time": lambda n: f"[2026-11-29 12:00:{n % 60:02}] ",
    "a host": lambda n: "gpu-07 >> ",
}


def behind(prefix, lines):
    return "".join(f"{PREFIXES[prefix](n)}{line}\n" for n, line in enumerate(lines)).encode()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_usage_has_no_record_before_it(prefix):
    (crash,) = crashes_of(behind(prefix, USAGE))
    assert (crash.root.cause.exception, crash.outcome) == ("UsageError", Outcome.FATAL)
    assert crash.root.cause.message == "unrecognized arguments: --enable-turbo-mode"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_stacks_of_a_native_death_have_none(prefix):
    up = [said.text for said in [*story.starting(), *story.serving(10_000, 4)]]
    (plain,) = crashes_of("".join(f"{line}\n" for line in [*up, *DUMP]).encode())
    (crash,) = crashes_of(behind(prefix, [*up, *DUMP]))
    assert crash.root.cause == plain.root.cause
    assert crash.root.cause.frame.function == "resolve"


@pytest.mark.parametrize("prefix", [prefix for prefix in PREFIXES if prefix != "a time"])
def test_so_have_none_those_that_a_log_begins_with(prefix):
    (plain,) = crashes_of("".join(f"{line}\n" for line in DUMP).encode())
    (crash,) = crashes_of(behind(prefix, DUMP))
    assert (crash.root.cause, crash.root.cause.frame.function) == (plain.root.cause, "resolve")


def test_a_text_that_only_speaks_of_a_dump_is_none():
    for before in ("He wrote ", "error='", "at 7 he wrote: '"):
        crashes = crashes_of(f"{before}Fatal Python error: Aborted\n".encode())
        assert [crash for crash in crashes if crash.root.cause.exception == "SIGABRT"] == []


def test_a_time_before_each_line_makes_no_record_of_it():
    lines = [said.text for said in [*story.starting(), *story.rank_crash(12_000, 2), *story.parent_gives_up(13_000)]]
    (crash,) = crashes_of(behind("a time", lines))
    (plain,) = crashes_of("".join(f"{line}\n" for line in lines).encode())
    assert (crash.root.cause, crash.root.rank, crash.outcome) == (plain.root.cause, "TP2", Outcome.FATAL)


def test_lines_that_only_begin_with_the_same_words_keep_them():
    lines = [
        *(f"[{n}/9] Building CUDA object {n}" for n in range(1, 7)),
        "ModuleNotFoundError: No module named 'ninja'",
    ]
    (crash,) = crashes_of("\n".join(lines).encode())
    assert crash.root.cause.exception == "ModuleNotFoundError"
    lines = ["Warning: one", "Warning: two", "Warning: three", "Warning: four", "Warning: Fatal Python error: Aborted"]
    assert [crash.root.cause.exception for crash in crashes_of("\n".join(lines).encode())] != ["SIGABRT"]


@pytest.mark.parametrize("chunk", [1, 4, 1_000])
def test_supervisords_word_before_each_piece_of_output_is_nobodys_line(chunk):
    lines = [said.text for said in [*story.starting(), *story.rank_crash(12_000, 2), *story.parent_gives_up(13_000)]]
    data = ""
    for n, line in enumerate(lines):
        data += "2026-11-29 12:00:12,345 DEBG 'sglang' stderr output:\n" if n % chunk == 0 else ""
        data += f"{line}\n"
    (crash,), (plain,) = crashes_of(data.encode()), crashes_of("\n".join(lines).encode() + b"\n")
    assert (crash.root.cause, crash.id) == (plain.root.cause, plain.id)


def test_a_logger_may_put_the_level_before_its_name():
    lines = [said.text.partition("] ")[2] for said in [*story.starting(), *story.parent_gives_up(13_000)]]
    data = "".join(f"2026-11-29 12:00:12,345 - INFO - sglang - {line}\n" for line in lines if line)
    assert len(crashes_of(data.encode())) == 1


@pytest.mark.parametrize("before", ["[{t}] Error: no ", "INFO:     no ", "[{t} TP0] no "])
def test_words_of_a_record_are_no_margin(before):
    """A request can have them written, with a head behind them, and then what would be a line of its own."""
    up = [said.text for said in [*story.starting(), *story.serving(10_000, 4)]]
    head = before.format(t=story.stamp(12_000))
    learned = [f"{head}[{story.stamp(12_000)}] x", f"{head}[{story.stamp(12_000)}] x"]
    lines = [*up, *learned, f"{head}Fatal Python error: Aborted", f"{head}Killed"]
    assert crashes_of("\n".join(lines).encode()) == []
