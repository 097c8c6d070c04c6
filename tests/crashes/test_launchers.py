"""A launcher's number before each line tells ranks apart, and names them where their own lines do not."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of

FORMS = {
    "mpirun": "[1,{}]<stderr>:",
    "OpenMPI 5": "[prterun-gpu-ash-4100@1,{}]<stderr>: ",
    "MPICH": "[{}@gpu-ash] ",
    "srun -l": "{:2}: ",
    "torchrun": "[rank{}]:",
    "torchrun's default": "[default{}]:",
}


def untagged(ranks, last="ValueError: odd probabilities of {}"):
    """Ranks that die at once, line by line in turn, none of whose lines names its rank."""
    lanes = [story.rank_crash(12_000, rank, last.format(rank)) for rank in ranks]
    return [
        (said.pid - story.RANKS[0], said.text.replace(f" TP{said.pid - story.RANKS[0]}]", "]"))
        for said in story.interleaved(lanes)
    ]


def log(form, lines, front="0"):
    """The front end's own lines under `front`."""
    number = int(front)
    before = [(number, said.text) for said in story.starting(4)[1:]]
    after = [(number, said.text) for said in story.parent_gives_up(12_300)]
    return "".join(f"{form.format(n)}{text}\n" for n, text in [*before, *lines, *after]).encode()


@pytest.mark.parametrize("form", FORMS)
def test_ranks_whose_lines_take_turns_are_told_apart_and_named_by_their_launchers_number(form):
    (crash,) = crashes_of(log(FORMS[form], untagged((3, 1, 2))))
    assert crash.ranks[:3] == ("TP3", "TP1", "TP2")
    told = {failure.rank: failure.cause for failure in crash.failures if failure.cause.frames}
    assert {rank: cause.message for rank, cause in told.items()} == {
        f"TP{rank}": f"odd probabilities of {rank}" for rank in (1, 2, 3)
    }
    assert {len(cause.frames) for cause in told.values()} == {len(story.FRAMES)}
    assert (crash.outcome.value, crash.grade.value) == ("fatal", "complete")


@pytest.mark.parametrize("form", FORMS)
def test_a_fault_that_names_no_rank_is_that_of_the_launchers(form):
    dump = ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007f22bbbbb740 (most recent call first):"]
    frame = f'  File "{story.SITE}/sglang/srt/layers/attention/kernels.py", line 501 in forward_decode'
    (crash,) = crashes_of(log(FORMS[form], [(2, text) for text in [*dump, frame, ""]]))
    assert (crash.root.cause.exception, crash.root.rank) == ("SIGSEGV", "TP2")


@pytest.mark.parametrize("form", ["mpirun", "MPICH", "srun -l"])
def test_a_launcher_that_starts_one_process_a_node_numbers_no_ranks(form):
    """The process 1 writes for the ranks TP2 and TP3: what its front end says is not TP1's."""
    lines = [(n // 2, said.text) for n in range(4) for said in story.starting(4) if said.pid == story.RANKS[n]]
    failed = [(1, text) for _, text in untagged((3,))]
    (crash,) = crashes_of(log(FORMS[form], [*lines, *failed]))
    assert (crash.root.cause.exception, crash.root.rank) == ("ValueError", None)
    flags = (0, f"[{story.stamp(800)}] server_args=ServerArgs(tp_size=4, nnodes=2, node_rank=0)")
    text = "".join(f"{FORMS[form].format(n)}{line}\n" for n, line in [flags, *untagged((1,))]).encode()
    (crash,) = crashes_of(text + log(FORMS[form], [])[-200:])
    assert crash.root.rank is None


@pytest.mark.parametrize("number", ["{}: ", "{:6}\t", "{}:"])
def test_the_numbers_of_lines_tell_no_processes_apart(number):
    lines = [*story.starting(1)[1:], *story.rank_crash(12_000, 0), *story.parent_gives_up(12_300)]
    (plain,) = crashes_of(story.as_text(lines))
    (crash,) = crashes_of("".join(f"{number.format(n)}{said.text}\n" for n, said in enumerate(lines, 1)).encode())
    assert (crash.root.rank, crash.root.chain, crash.grade) == ("TP0", plain.root.chain, plain.grade)


def test_a_loggers_name_before_the_servers_own_head_is_no_text_of_it():
    lines = [*story.starting(2)[1:], *story.rank_crash(12_000, 1), *story.parent_gives_up(12_300)]
    text = "".join(f"2026-11-29 12:00:12,123 INFO run.wrapper: {said.text}\n" for said in lines)
    (crash,) = crashes_of(text.encode())
    assert (crash.root.rank, crash.ranks, crash.outcome.value) == ("TP1", ("TP1",), "fatal")
