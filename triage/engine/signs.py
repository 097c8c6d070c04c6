"""What one line of a server says by itself: fatal lines without an exception, cascades.

In comes the text of a line with its prefixes off, out goes a `Sign` or None. Called by the assembler. It must not
remember anything: what a sign means beside others is decided in `engine.roles`.

The exception words that are triage's own (docs/architecture.md lists them) are made here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from triage.engine import leads, starters
from triage.engine.kinds import Kind, Sign, signal_word
from triage.engine.starters import ASKED, COMMAND, FAULTS, killed, serves
from triage.model import Role

_DIED = "the parent saw a process of the server end"
CODE = "code"  # the sign that counts only behind another, "dead"


def _exited(match: re.Match[str], text: str) -> Sign:
    """'Subprocess scheduler_0 (pid=7) crashed with exit code -9', and torchrun's word for that: -3 is the SIGQUIT that
    SGLang sends itself."""
    code = int(match["code"])
    groups = match.groupdict()
    pid = int(groups["pid"]) if groups.get("pid") else None
    rank = _rank(match)
    if code in (-3, 0, 1):
        return Sign("exit", Kind.CASCADE, Role.CASCADE, f"ExitStatus {code}", text, _DIED, pid, True, rank=rank)
    word = signal_word(-code) if code < 0 else f"ExitStatus {code}"
    return Sign(f"exit{code}", Kind.EXIT, Role.ROOT, word, text, f"{_DIED}, by {word}", pid, True, rank=rank)


def _rank(match: re.Match[str]) -> str:
    number = match.groupdict().get("rank")
    return f"rank{number}" if number else ""


def _coded(match: re.Match[str], text: str) -> Sign:
    """'Exit code: -9', a record of its own in older releases: behind the one that names the dead rank, or nothing."""
    return replace(_exited(match, text), name=CODE)


def _dead(match: re.Match[str], text: str) -> Sign:
    return Sign("dead", Kind.CASCADE, Role.CASCADE, "ChildDied", text, _DIED, None, True, rank=_rank(match))


def _supervised(match: re.Match[str], text: str) -> Sign | None:
    """supervisord's 'exited: sglang (exit status 1; not expected)'. Of a program that is not SGLang by its name nobody
    knows whether it is the server. One that was told to end is no crash."""
    code, name = match["code"], match["program"]
    word = match["signal"] or f"ExitStatus {code}"
    if word in ASKED:
        return None
    if "sgl" not in name.lower():
        return Sign("supervised", Kind.CASCADE, Role.CASCADE, word, text, f"supervisord saw {name} end")
    return Sign("supervised", Kind.EXIT, Role.ROOT, word, text, "only supervisord saw the end", None, True)


def _native(word: str, why: str) -> Callable[[re.Match[str], str], Sign]:
    def make(_match: re.Match[str], text: str) -> Sign:
        return Sign("native", Kind.NATIVE, Role.ROOT, word, text, why)

    return make


def _fault(match: re.Match[str], text: str) -> Sign:
    what = match["what"].strip()
    word = FAULTS.get(what, "FatalPythonError")
    return Sign("native", Kind.NATIVE, Role.ROOT, word, text, "Python's fault handler wrote it")


def _shell(match: re.Match[str], text: str) -> Sign | None:
    return (
        None
        if not serves(match)
        else Sign("native", Kind.NATIVE, Role.ROOT, FAULTS[match["what"]], text, "the shell's word for its end")
    )


def _terminate(match: re.Match[str], text: str) -> Sign:
    return Sign("native", Kind.NATIVE, Role.ROOT, "SIGABRT", text, f"an uncaught C++ exception, {match['name']}")


def _cascade(name: str, why: str, *, ends: bool = False, word: str = "") -> Callable[[re.Match[str], str], Sign]:
    def make(_match: re.Match[str], text: str) -> Sign:
        return Sign(name, Kind.CASCADE, Role.CASCADE, word or name, text, why, None, ends)

    return make


def _signalled(match: re.Match[str], text: str) -> Sign:
    return Sign("native", Kind.NATIVE, Role.ROOT, match["what"], text, "a debugger or handler wrote it")


def _library(word: str, why: str) -> Callable[[re.Match[str], str], Sign]:
    """A line that a library prints where it fails: a root only where nothing better follows."""

    def make(match: re.Match[str], text: str) -> Sign:
        name = word or match["word"]
        return Sign(name, Kind.HINT, Role.ROOT, name, text, why)

    return make


def _usage(match: re.Match[str], _text: str) -> Sign:
    return Sign(
        "usage", Kind.FATAL, Role.ROOT, "UsageError", match["message"].strip(), "the arguments were refused", None, True
    )


def _watchdog(_match: re.Match[str], text: str) -> Sign:
    return Sign("watchdog", Kind.COLLECTIVE, Role.ROOT, "WatchdogTimeout", text, "the scheduler made no step in time")


def _collective(_match: re.Match[str], text: str) -> Sign:
    return Sign("collective", Kind.COLLECTIVE, Role.ROOT, "CollectiveTimeout", text, "a collective did not end in time")


def _told(match: re.Match[str], text: str) -> Sign:
    name, why = f"told {match['rank']}", "others told this rank of the time-out"
    return Sign(name, Kind.CASCADE, Role.CASCADE, "CollectiveTimeout", text, why)


def _bind(_match: re.Match[str], text: str) -> Sign:
    return Sign("bind", Kind.PLAIN, Role.ROOT, "OSError", text, "the server's port was taken")


def _check(_match: re.Match[str], text: str) -> Sign:
    return Sign("check", Kind.NATIVE, Role.ROOT, "SIGABRT", text, "a check of a native library failed")


def _container(_match: re.Match[str], text: str) -> Sign:
    return Sign("container", Kind.PLAIN, Role.ROOT, "ContainerError", text, "the container was not started")


def _assert(_match: re.Match[str], text: str) -> Sign:
    return Sign("assert", Kind.HINT, Role.CONFIRMATION, "DeviceAssert", text, "a device-side assert came first")


# What may stand before such words: another logger's head. A request that quotes one has something else before it.
_BEFORE = r"[^'\"={}]{0,200}"
_JOB = r"(?:[\w./-]{1,80}: line \d+: +\d+|\[\d+\] *[-+]? *(?:\d+)?) +"
# anchor (a plain substring, tested first), expression, what to make of it
_Maker = Callable[[re.Match[str], str], Sign | None]
_LINES: tuple[tuple[str, str, _Maker], ...] = (
    (
        "SIGQUIT received",
        r"SIGQUIT received\. signum=",
        _cascade("sigquit", "a child told the parent", ends=True, word="SIGQUIT"),
    ),
    (
        "sigquit from a child",
        r"Received sigquit from a child proc",
        _cascade("sigquit", "a child told the parent", ends=True, word="SIGQUIT"),
    ),
    (
        "crashed with exit code",
        r"Subprocess (?:scheduler_(?P<rank>\d{1,4})|\S+)(?: \(pid=(?P<pid>\d+)\))? "
        r"crashed with exit code (?P<code>-?\d+)",
        _exited,
    ),
    (
        "exit code: ",
        r"Rank (?P<rank>\d{1,4}) scheduler died during initialization \(exit code: (?P<code>-?\d+)\)",
        _exited,
    ),
    ("Exit code: ", r"Exit code: (?P<code>-?\d{1,3})$", _coded),
    (
        "; not expected)",
        r"exited: (?P<program>[\w.:-]{1,80}) \((?:exit status (?P<code>\d+)|"
        r"terminated by (?P<signal>SIG[A-Z]+)[^;]{0,40}); not",
        _supervised,
    ),
    (
        "is dead",
        r"(?:Rank |(?=scheduler_\d))(?:scheduler_)?(?P<rank>\d{1,4}) (?:scheduler )?is dead",
        _dead,
    ),
    (
        "terminated with",
        r"Scheduler or DataParallelController \d+ terminated with",
        _cascade("dead", _DIED, ends=True, word="ChildDied"),
    ),
    (
        "kill_process_tree",
        r"kill_process_tree called",
        _cascade("killtree", "the parent ends all its children", ends=True),
    ),
    ("CUDA coredumps", r"Waiting [\d.]+ seconds for CUDA coredumps", _cascade("coredumps", "waiting before the end")),
    (
        "application shutdown",
        r"Waiting for application shutdown",
        _cascade("shutdown", "the HTTP server went down", ends=True),
    ),
    (
        "startup failed",
        r"Application startup failed\. Exiting\.",
        _cascade("startup", "the HTTP server did not come up", ends=True),
    ),
    (
        "failed (exitcode: ",
        r"(?:E\d{4} [\d:.]+ \d+ |ERROR:)?torch[./]distributed[./]elastic[./]multiprocessing[./]api(?:\.py:\d+\]|:)"
        r"(?: \[\S{1,80}\]){0,2} ?failed \(exitcode: (?P<code>-?\d+)\) local_rank: \d+ \(pid: (?P<pid>\d+)\) of ",
        _exited,
    ),
    # bash of a script, of a job; zsh
    ("Killed  ", _JOB + r"Killed {2,}(?:\(core dumped\) )?" + COMMAND, killed),
    ("killed  ", r"(?:\[\d+\] +[-+]? *\d+ |zsh: )killed {2,}" + COMMAND, killed),
    ("Segmentation fault  ", _JOB + r"(?P<what>Segmentation fault) {2,}" + COMMAND, _shell),
    (
        "TCPStore",
        _BEFORE + r"(?:sendBytes failed|recvValue failed|\"should dump\" flag|Broken pipe)",
        _cascade("store", "a peer's store is gone"),
    ),
    (
        "ast enqueued NCCL work",
        _BEFORE + r"\bRank (?P<rank>\d+)\].*(?:dump signal|global timeout)[^.]* from (?:another rank| *rank \d+)",
        _told,
    ),
    ("HeartbeatMonitor", _BEFORE + r"HeartbeatMonitor", _cascade("heartbeat", "a peer is gone")),
    (
        "watchdog thread terminated",
        _BEFORE + r"watchdog thread terminated with exception: CUDA error",
        _library("CudaError", "NCCL's watchdog met it"),
    ),
    (
        "watchdog thread terminated",
        _BEFORE + r"watchdog thread terminated with exception",
        _cascade("ncclwatch", "NCCL's watchdog followed"),
    ),
    ("Fatal Python error", r"Fatal Python error: (?P<what>[^(\n]*)", _fault),
    (
        "terminate called",
        r"terminate called (?:after throwing an instance of '(?P<name>[^']*)'|without|recursively)",
        _terminate,
    ),
    ("Segfault encountered", r"!+ Segfault encountered !+", _native("SIGSEGV", "a native handler wrote it")),
    (
        "Segmentation fault",
        r"(?:\*+ )?(?:Process received signal )?Segmentation fault(?! (?:count|handler))",
        _native("SIGSEGV", "the shell's or a handler's word"),
    ),
    (
        "(core dumped)",
        r"(?:[\w./-]{1,80}: line \d+: +\d+ )?(?P<what>Aborted|Bus error|Illegal instruction|Segmentation fault|"
        r"Floating[ -]point exception) +\(core dumped\)",
        _shell,
    ),
    ("Caught signal", _BEFORE + r"Caught signal 11 \(Segmentation fault", _native("SIGSEGV", "UCX wrote it")),
    ("Caught signal", _BEFORE + r"Caught signal 7 \(Bus error", _native("SIGBUS", "UCX wrote it")),
    *(
        (anchor, expression, _native("SIGABRT", "the C library aborted"))
        for anchor, expression in (
            ("corrupt", r"(?:double free or corruption|corrupted (?:size vs|double-linked))"),
            ("lloc(): ", r"(?:m|c|re)alloc\(\): [a-z]"),
            ("free(): ", r"free\(\): [a-z]"),
            ("(): invalid ", r"(?:munmap_chunk|mremap_chunk)\(\): invalid "),
            ("consolidate(): ", r"malloc_consolidate\(\): [a-z]"),
            ("pure virtual", r"(?:pure virtual method called|pure virtual function call)"),
            ("shutdown(): ", r"tcache_thread_shutdown\(\): unaligned "),
            ("*** Error in `", r"\*\*\* Error in `[^']{1,200}': "),
            (" detected ***", r"\*\*\* [^*]{1,80} detected \*\*\*"),
            ("***: terminated", r"\*\*\* [^*]{1,80} \*\*\*: terminated"),
            ("Fatal glibc error: ", r"Fatal glibc error: "),
            ("futex facility", r"The futex facility returned an unexpected error code"),
        )
    ),
    ("Check failed: ", r"Check failed: ", _check),
    ("HSA_STATUS_ERROR", _BEFORE + r"HSA_STATUS_ERROR_", _native("SIGABRT", "the ROCm runtime aborted")),
    ("atchdog timeout", r"(?:\w+ )?[Ww]atchdog timeout(?:$| \((?!.*self\.soft=True))", _watchdog),
    (
        "received signal SIG",
        rf"(?:Thread [\d.]+ \"[^\"]{{0,60}}\" |{_BEFORE})received signal (?P<what>SIG[A-Z]+)",
        _signalled,
    ),
    (
        "with exception ",
        r"(?:Prefill|Decode) \w+ failed for request .*with exception (?P<word>[A-Z]\w+Error)\(",
        _library("", "a transfer failed"),
    ),
    ("collective operation timeout", _BEFORE + r"Watchdog caught collective operation timeout", _collective),
    (
        "Docker daemon",
        r"(?:docker: )?(?:Cannot connect|permission denied while trying to connect) to the Docker daemon",
        _container,
    ),
    ("Error response from daemon: ", r"(?:docker: )?Error response from daemon: ", _container),
    ("nvidia-container-cli: ", r"nvidia-container-cli: \w+ error: ", _container),
    ("address already in use", r"\[Errno 98\] .*address already in use", _bind),
    (
        ": error: ",
        r"[\w./ -]{1,80}: error: (?P<message>(?:unrecognized arguments|argument |ambiguous option|"
        r"the following arguments are required|one of the arguments|invalid |expected ).*)",
        _usage,
    ),
    (
        "error: ",
        r"error: (?P<message>(?:unrecognized arguments: |argument -|ambiguous option: |"
        r"the following arguments are required).*)",
        _usage,
    ),
    (
        "Assertion `",
        r"(?:[\w.-]{1,60}: )?(?:\S{1,300}\.(?:c|cc|cpp|cxx|h|hpp|cuh?):\d+: .*|[a-z_]\w{0,60}: )"
        r"Assertion `.*' failed\.",
        _native("SIGABRT", "an assertion of a native library failed"),
    ),
    ("Assertion ", r"(?:[^'\"={}\s]{1,300}\.cuh?:\d+: .*)?Assertion `.*(?:failed|`)", _assert),
)
# What SGLang's other processes, or whoever started them, write when one of theirs ends, at the beginning of a line: no
# more of its message.
PARENTS = re.compile(
    r"SIGQUIT received\. signum=|Received sigquit from a child proc|kill_process_tree called|"
    r"Subprocess \S{1,100}(?: \(pid=\d+\))? crashed with exit code|Waiting for application shutdown|" + starters.BELOW
)
# What libraries print where they fail, in a log that may hold nothing else.
_LIBRARIES: tuple[tuple[str, str, str], ...] = (
    ("llegal memory access", _BEFORE + r"[Ii]llegal memory access", "CudaError"),
    ("llegal memory", r"[Ii]llegal memory$", "CudaError"),
    ("CUDA error: ", _BEFORE + r"CUDA error: ", "CudaError"),
    ("CUresult error", _BEFORE + r"CUresult error\b", "CudaError"),
    ("CUDA_ERROR_", _BEFORE + r"CUDA_ERROR_[A-Z_]+", "CudaError"),
    ("cudaError", r"cudaError[A-Z]\w+", "CudaError"),
    ("Cuda error ", _BEFORE + r"Cuda error \S+\.cuh?:\d+", "CudaError"),
    ("CUBLAS_STATUS_", _BEFORE + r"CUBLAS_STATUS_(?!SUCCESS)", "CublasError"),
    ("HIP error: ", _BEFORE + r"HIP error: ", "HipError"),
    ("access fault by GPU", r"Memory access fault by GPU", "HipError"),
    ("Memory Fault Error", r"Memory Fault Error \[", "HipError"),
    ("unsatisfied condition: ", _BEFORE + r"unsatisfied condition: ", "CudaError"),
    ("NCCL WARN", _BEFORE + r"NCCL WARN .*(?:[Ee]rror|[Ff]ail)", "NcclError"),
    ("NVLink SHARP", _BEFORE + r"Failed to bind NVLink SHARP", "NcclError"),
    (
        "nvshmem",
        _BEFORE + r"(?:nvshmem\w* initialization failed|nvshmem detect topo failed|neither nv_peer_mem)",
        "NvshmemError",
    ),
    (
        "non-zero status: ",
        _BEFORE + r"non-zero status: \d+ (?:ibv_modify_qp|ep_connect|(?:transport create )?connect(?: EPS)?|"
        r"nvshmem setup connections|nvshmem_internal_\w{1,40}) failed",
        "NvshmemError",
    ),
    (
        "non-zero status: ",
        _BEFORE + r"(?:\binit\.cu|\bhost/(?:init/init|mem/mem_|bootstrap/bootstrap)\w*\.cpp):(?:\w+:)?\d+: "
        r"non-zero status: ",
        "NvshmemError",
    ),
    ("Bootstrap ", _BEFORE + r"Bootstrap (?:plugin init failed|unable to load|failed to get symbol)", "NvshmemError"),
    ("NVSHMEM device library", _BEFORE + r"NVSHMEM device library version does not match", "NvshmemError"),
    ("ibgda.cpp", _BEFORE + r"ibgda\.cpp:\d+: NULL", "NvshmemError"),
    ("DeepEP", r"DeepEP (?:error|dispatch|combine|timeout)\b.*timeout", "DeepEPError"),
    ("client socket has timed out", r"\[c10d\] The client socket has timed out ", "DistNetworkError"),
    ("panicked at ", r"thread '[^']*' (?:\(\d+\) )?panicked at ", "RustPanic"),
    ("undefined symbol: ", _BEFORE + r"undefined symbol: ", "ImportError"),
    ("cannot import name ", r"cannot import name ", "ImportError"),
    ("UserWarning: CUDA init", r"\S+:\d+: UserWarning: CUDA initialization: ", "UserWarning"),
    ("Could not load any", r"\[\w+\] CRITICAL: Could not load any ", "ImportError"),
    ("Capture cuda graph failed: ", r"Capture cuda graph failed: ", "Exception"),
)

_ALL = (
    *_LINES,
    *starters.LINES,
    *((anchor, expression, _library(word, "a library's line")) for anchor, expression, word in _LIBRARIES),
)
WORDS = (*(anchor for anchor, _, _ in _ALL), *leads.WORDS)  # for the gate: no other line is a sign or a lead-in


def read(text: str) -> Sign | None:
    """The sign of one line, or None. An expression is compiled for the first line with its anchor: most never are."""
    for anchor, expression, make in _ALL:
        if anchor in text:
            match = re.match(expression, text)
            sign = make(match, text) if match is not None else None
            if sign is not None:
                return sign
    return None
