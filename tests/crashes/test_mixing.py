"""Many ranks, one stream: recovered where it can be told, graded mixed where it cannot."""

import random

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import Said
from triage.engine import alike
from triage.model import Grade

OTHER = (
    ("sglang/srt/managers/scheduler.py", 3011, "run_scheduler_process", "scheduler.event_loop_normal()"),
    ("sglang/srt/managers/scheduler.py", 1144, "event_loop_normal", "result = self.run_batch(batch)"),
    ("sglang/srt/distributed/communicator.py", 61, "all_reduce", "self.comm.all_reduce(tensor)"),
)
PEER = "RuntimeError: NCCL error: unhandled system error"


def ranked(rank, last=story.NONE_TYPE, frames=story.FRAMES, pid=None):
    head = f"[{story.stamp(12_000)} TP{rank}] Scheduler hit an exception: Traceback (most recent call last):"
    return [Said(text, pid or 5000 + rank, 12_000) for text in [head, *story.traceback_lines(frames, last)]]


def told(crashes):
    return sorted(
        (f.rank, f.cause.exception, f.cause.message, tuple(frame.line for frame in f.cause.frames))
        for crash in crashes
        for f in crash.failures
        if f.rank
    )


def wanted(rank, last, frames):
    name, message = last.split(": ", 1)
    return (f"TP{rank}", name, message, tuple(line for _, line, _, _ in frames))


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("road", ["text", "one-pid", "pids"])
def test_ranks_that_print_the_same_are_recovered_exactly(ranks, road):
    for seed in range(3):
        pid = 4100 if road == "one-pid" else None
        lines = story.shuffled([ranked(rank, pid=pid) for rank in range(ranks)], seed)
        crashes = crashes_of(story.as_text(lines) if road == "text" else story.as_json(lines))
        assert told(crashes) == sorted(wanted(rank, story.NONE_TYPE, story.FRAMES) for rank in range(ranks))
        assert [crash.grade for crash in crashes] == [Grade.COMPLETE]


def test_ranks_that_differ_are_recovered_exactly_by_their_pids():
    for seed in range(5):
        lanes = [ranked(0), *[ranked(rank, PEER, OTHER) for rank in range(1, 8)]]
        crashes = crashes_of(story.as_json(story.shuffled(lanes, seed)))
        want = [wanted(0, story.NONE_TYPE, story.FRAMES), *[wanted(rank, PEER, OTHER) for rank in range(1, 8)]]
        assert told(crashes) == sorted(want)
        assert [crash.grade for crash in crashes] == [Grade.COMPLETE]


def test_ranks_that_differ_and_take_turns_without_names_are_never_wrong_with_a_good_grade():
    want = sorted([wanted(0, story.NONE_TYPE, story.FRAMES), *[wanted(rank, PEER, OTHER) for rank in range(1, 8)]])
    for seed in range(30):
        lanes = [ranked(0), *[ranked(rank, PEER, OTHER) for rank in range(1, 8)]]
        crashes = crashes_of(story.as_text(story.shuffled(lanes, seed)))
        assert told(crashes) == want or [crash.grade for crash in crashes] == [Grade.MIXED]


def test_ranks_that_differ_but_wrote_one_after_the_other_are_not_mixed():
    lines = [*ranked(0), *ranked(1, PEER, OTHER), *ranked(2)]
    (crash,) = crashes_of(story.as_text(lines))
    assert crash.grade is Grade.COMPLETE
    assert crash.root.rank == "TP0"


def test_a_pid_that_several_ranks_share_names_none_of_them():
    lines = [*ranked(3, pid=4100), *ranked(5, pid=4100), *story.parent_gives_up(12_500)]
    (crash,) = crashes_of(story.as_json(lines))
    assert crash.ranks == ("TP3", "TP5")
    assert [f.rank for f in crash.failures if f.cause.exception == "SIGQUIT"] == [None]


def layered(layers):
    """A model's forward pass: the same two frames of torch between each two of its own."""
    torch = (
        ("torch/nn/modules/module.py", 1779, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)"),
        ("torch/nn/modules/module.py", 1790, "_call_impl", "return forward_call(*args, **kwargs)"),
    )
    frames = [("sglang/srt/model_executor/runner.py", 61, "run_once", "return self.model(")]
    for n in range(layers):
        frames += [*torch, (f"sglang/srt/models/part{n}.py", 30 + n, "forward", f"hidden = self.part{n}(hidden)")]
    return tuple(frames)


def test_frames_that_come_again_and_again_are_put_in_their_order():
    frames = layered(5)
    want = sorted(wanted(rank, story.NONE_TYPE, frames) for rank in range(8))
    for seed in range(6):
        lines = story.shuffled([ranked(rank, frames=frames) for rank in range(8)], seed)
        crashes = crashes_of(story.as_text([*lines, *story.parent_gives_up(12_500)]))
        assert (told(crashes), [crash.grade for crash in crashes]) == (want, [Grade.COMPLETE])


@pytest.mark.parametrize("cut", [1.0, 0.8])
def test_the_short_way_finds_what_the_search_finds(cut, monkeypatch):
    """Where no frame comes twice no search is needed: what is told is the same."""
    ways = []
    for straight in (alike._straight, lambda *_: None):
        monkeypatch.setattr(alike, "_straight", straight)
        for seed, frames in enumerate((story.FRAMES, story.FRAMES, layered(3), layered(2))):
            mixed = story.shuffled([ranked(rank, frames=frames) for rank in range(8)], seed)
            crashes = crashes_of(story.as_text(mixed[: int(len(mixed) * cut)]))
            ways.append([told(crashes), [crash.grade for crash in crashes]])
    assert ways[:4] == ways[4:]


def torn(lanes, seed, often):
    """The writers' bytes; they take turns at line ends, now and then within a line."""
    pick = random.Random(seed)
    rest = ["".join(said.text + "\n" for said in lane) for lane in lanes]
    out = ""
    while any(rest):
        n = pick.choice([n for n, text in enumerate(rest) if text])
        end = rest[n].find("\n") + 1
        if pick.random() < often:
            end = pick.randint(1, end)
        out, rest[n] = out + rest[n][:end], rest[n][end:]
    return out.encode()


@pytest.mark.parametrize("often", [0.01, 0.1, 0.5])
def test_writers_that_break_into_each_others_lines_are_never_wrong_with_a_good_grade(often):
    frames = layered(2)
    name, message = story.NONE_TYPE.split(": ", 1)
    want = (name, message, [line for _, line, _, _ in frames])
    for seed in range(25):
        for crash in crashes_of(torn([ranked(rank, frames=frames) for rank in range(4)], seed, often)):
            cause = crash.root.cause
            told = (cause.exception, cause.message, [frame.line for frame in cause.frames])
            assert told == want or crash.grade in (Grade.MIXED, Grade.CUT)


def test_a_header_that_another_writer_broke_into_is_seen_though_it_looks_like_a_record():
    (head, *one), (other, *two) = [[said.text for said in ranked(rank, frames=layered(2))] for rank in range(2)]
    rest = [text for pair in zip(one[4:], two, strict=False) for text in pair] + two[len(one[4:]) :]
    for within in ('  File "/opt/x', "Traceback (most rec"):
        torn = other[: other.index("Traceback")] + within
        data = "\n".join([head, *one[:3], torn + one[3], *rest, ""]).encode()
        assert {crash.grade for crash in crashes_of(data)} == {Grade.MIXED}


def test_one_that_broke_off_leaves_those_it_took_turns_with_in_doubt():
    """Its end may have been written into another's line."""
    one, two = ranked(0), ranked(1)
    mixed = [said for pair in zip(one, two[: len(two) // 2], strict=False) for said in pair]
    (crash,) = crashes_of(story.as_text([*mixed, *one[len(two) // 2 :], *story.parent_gives_up(12_500)]))
    assert crash.grade is Grade.MIXED


WRAPPED = (
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    "kernel errors might be reported at some other call\n"
    "For debugging consider a flag"
)


def chained(rank):
    """A failure of capture as SGLang wraps it: two tracebacks, messages of several lines, advice below."""
    lines = ranked(rank, WRAPPED, layered(3))
    more = [
        "During handling of the above exception, another exception occurred:",
        "Traceback (most recent call last):",
        *story.traceback_lines(
            story.FRAMES[:3], WRAPPED.replace("torch.AcceleratorError", "Exception: Capture failed")
        ),
        "Possible solutions:",
        "1. set a flag to a smaller value",
    ]
    return [*lines, *[Said(text, 5000 + rank, 12_000) for text in more]]


@pytest.mark.parametrize("ranks", [8, 64])
def test_chains_and_messages_of_many_lines_are_recovered_exactly(ranks):
    (alone,) = crashes_of(story.as_text(chained(0)))
    for seed in range(5 if ranks == 8 else 1):
        (crash,) = crashes_of(story.as_text(story.shuffled([chained(rank) for rank in range(ranks)], seed)))
        assert {failure.chain for failure in crash.failures} == {alone.root.chain}
        assert (len(crash.failures), crash.grade, len(alone.root.chain)) == (ranks, Grade.COMPLETE, 2)


NAMED = (
    "[rank{}]: ",
    "[default{}]:",
    "(Scheduler pid=420{}, ip=10.0.0.7) ",
    "[1,{}]<stderr>:",
    "engine-{}  | ",
    "[pod/engine-{}/server] ",
    "engine-1  | [rank{}]: ",
)


@pytest.mark.parametrize("name", NAMED)
def test_ranks_that_differ_are_recovered_exactly_where_a_supervisor_names_them_on_each_line(name):
    lanes = [ranked(0), *[ranked(rank, PEER, OTHER) for rank in range(1, 8)]]
    lanes = [[Said(name.format(n) + said.text, 4100, 12_000) for said in lane] for n, lane in enumerate(lanes)]
    want = [wanted(0, story.NONE_TYPE, story.FRAMES), *[wanted(rank, PEER, OTHER) for rank in range(1, 8)]]
    for seed in range(3):
        crashes = crashes_of(story.as_text(story.shuffled(lanes, seed)))
        assert told(crashes) == sorted(want)
        assert [crash.grade for crash in crashes] == [Grade.COMPLETE]
