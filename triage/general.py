"""General advice by phase, for a crash that no rule knows: what to look at first, and marked so wherever it is told.

In: a phase. Out: sentences. Called by `document`. Nothing here is a remedy: it is never offered to be carried out.
"""

from __future__ import annotations

from triage.model import Phase

_ASK = (
    "Search SGLang's issues for the exception and the function above; `triage report` makes a bundle to file a new one."
)

_ADVICE = {
    Phase.ARGUMENTS: (
        "Nothing was started yet: compare the unit's command with `--help` of the server that it starts.",
        "After an upgrade flags are renamed or gone; `triage units` shows the release and the command.",
    ),
    Phase.LOAD: (
        "Check that all files of the model are there and whole, and that the unit's user may read them.",
        "Compare the model's `transformers_version` and architecture with what is installed beside SGLang.",
        "A package that was upgraded by itself is the usual reason for a load that worked before.",
    ),
    Phase.MEMORY: (
        "See with `nvidia-smi` what else holds memory on these GPUs, a dying server too.",
        "Start once with a lower --mem-fraction-static and a shorter --context-length: does it come further then?",
    ),
    Phase.CAPTURE: (
        "Start once without graphs (--disable-cuda-graph): if it then serves, a captured kernel is at fault.",
        "The heading about graph capture follows any error: the innermost exception is the one that counts.",
    ),
    Phase.WARMUP: (
        "The server was up and its own first request failed: what differs is a kernel that runs for the first time.",
        "A first request may compile for minutes: see whether it was the crash or a time-out that ended it.",
    ),
    Phase.SERVING: (
        "See what was asked just before the first failure: a request that brings it down again shows the cause.",
        "An illegal access is reported late: CUDA_LAUNCH_BLOCKING=1, for one test, shows the kernel that did it.",
        "Look into the kernel's log (`journalctl -k`) for Xid lines and killed processes at that time.",
    ),
    Phase.SHUTDOWN: ("What fails while a server is stopped is seldom the cause: look at what asked it to stop.",),
    Phase.UNKNOWN: ("The log does not tell how far the server was: read it from its start, not from the first error.",),
}


def advice(phase: Phase) -> tuple[str, ...]:
    """What holds for any crash of that phase."""
    return (*_ADVICE[phase], _ASK)
