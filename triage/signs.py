"""What one line says by itself: fatal lines without an exception, cascades, the kernel's and the manager's words.

In comes the text of a line with its prefixes off, out goes a `Sign` or None. Called by the assembler. It must not
remember anything: what a sign means beside others is decided in `triage.roles`.

The exception words that are triage's own (docs/architecture.md lists them) are made here and nowhere else.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from triage.model import Line, Role, UnitEnd


class Kind(IntEnum):
    """What a failure is, the likelier root first."""

    HARDWARE = 0  # kernel: OOM kill, Xid that takes the device away
    NATIVE = 1  # abort, segmentation fault
    FATAL = 2  # an exception that ends a process of the server, a usage error, 203/EXEC
    PLAIN = 3  # any other traceback, a fatal line
    EXIT = 4  # only the parent's or manager's word that a process ended
    COLLECTIVE = 5  # a collective timed out, a watchdog fired
    BARE = 6  # an exception line that nothing stands above
    HINT = 7  # device asserts, peers lost: a root only where there is no other
    CASCADE = 8
    REQUEST = 9  # one request failed, the server goes on


@dataclass(frozen=True, slots=True)
class Sign:
    name: str  # lines of one name fold into one failure
    kind: Kind
    role: Role
    exception: str
    message: str
    why: str
    pid: int | None = None  # the process it is about, where the line says so
    ends_server: bool = False  # SGLang's own end-of-server line


_DIED = "the parent saw a process of the server end"


def _signal_word(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"Signal {number}"


def _exited(match: re.Match[str], text: str) -> Sign:
    """'Subprocess scheduler_0 (pid=7) crashed with exit code -9': -3 is the SIGQUIT that SGLang sends itself."""
    code = int(match["code"])
    pid = int(match["pid"]) if match["pid"] else None
    if code in (-3, 0, 1):
        return Sign("exit", Kind.CASCADE, Role.CASCADE, f"ExitStatus {code}", text, _DIED, pid, True)
    word = _signal_word(-code) if code < 0 else f"ExitStatus {code}"
    return Sign(f"exit{code}", Kind.EXIT, Role.ROOT, word, text, f"{_DIED}, by {word}", pid, True)


def _native(word: str, why: str) -> Callable[[re.Match[str], str], Sign]:
    def make(_match: re.Match[str], text: str) -> Sign:
        return Sign("native", Kind.NATIVE, Role.ROOT, word, text, why)

    return make


_FAULTS = {
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}


def _fault(match: re.Match[str], text: str) -> Sign:
    what = match["what"].strip()
    word = _FAULTS.get(what, "FatalPythonError")
    return Sign("native", Kind.NATIVE, Role.ROOT, word, text, "Python's fault handler wrote it")


def _terminate(match: re.Match[str], text: str) -> Sign:
    return Sign("native", Kind.NATIVE, Role.ROOT, "SIGABRT", text, f"an uncaught C++ exception, {match['name']}")


def _cascade(name: str, why: str, *, ends: bool = False) -> Callable[[re.Match[str], str], Sign]:
    def make(_match: re.Match[str], text: str) -> Sign:
        return Sign(name, Kind.CASCADE, Role.CASCADE, name, text, why, None, ends)

    return make


def _usage(match: re.Match[str], _text: str) -> Sign:
    return Sign(
        "usage", Kind.FATAL, Role.ROOT, "UsageError", match["message"].strip(), "the arguments were refused", None, True
    )


def _watchdog(_match: re.Match[str], text: str) -> Sign:
    return Sign("watchdog", Kind.COLLECTIVE, Role.ROOT, "WatchdogTimeout", text, "the scheduler made no step in time")


def _collective(_match: re.Match[str], text: str) -> Sign:
    return Sign("collective", Kind.COLLECTIVE, Role.ROOT, "CollectiveTimeout", text, "a collective did not end in time")


def _bind(_match: re.Match[str], text: str) -> Sign:
    return Sign("bind", Kind.PLAIN, Role.ROOT, "OSError", text, "the server's port was taken")


def _assert(_match: re.Match[str], text: str) -> Sign:
    return Sign("assert", Kind.HINT, Role.CONFIRMATION, "DeviceAssert", text, "a device-side assert came first")


# anchor (a plain substring, tested first), expression, what to make of it
_Maker = Callable[[re.Match[str], str], Sign]
_LINES: tuple[tuple[str, str, _Maker], ...] = (
    ("SIGQUIT received", r"SIGQUIT received\. signum=", _cascade("sigquit", "a child told the parent", ends=True)),
    ("sigquit from a child", r"Received sigquit from a child proc", _cascade("sigquit", "a child told it", ends=True)),
    (
        "crashed with exit code",
        r"Subprocess \S+(?: \(pid=(?P<pid>\d+)\))? crashed with exit code (?P<code>-?\d+)",
        _exited,
    ),
    (
        "exit code: ",
        r"Rank \d+ scheduler died during initialization \(exit code: (?P<code>-?\d+)\)(?P<pid>)",
        _exited,
    ),
    ("is dead", r"Rank \d+ scheduler is dead|scheduler_\d+ is dead", _cascade("dead", _DIED, ends=True)),
    ("terminated with", r"Scheduler or DataParallelController \d+ terminated with", _cascade("dead", _DIED, ends=True)),
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
    ("Killed", r"Killed$", _cascade("killed", "the shell's word for the parent's end", ends=True)),
    (
        "TCPStore",
        r".*(?:sendBytes failed|recvValue failed|\"should dump\" flag|Broken pipe)",
        _cascade("store", "a peer's store is gone"),
    ),
    ("HeartbeatMonitor", r".*HeartbeatMonitor", _cascade("heartbeat", "a peer is gone")),
    (
        "watchdog thread terminated",
        r".*watchdog thread terminated with exception",
        _cascade("ncclwatch", "NCCL's watchdog followed"),
    ),
    ("Fatal Python error", r"Fatal Python error: (?P<what>[^(\n]*)", _fault),
    ("terminate called", r"terminate called (?:after throwing an instance of '(?P<name>[^']*)'|without)", _terminate),
    ("Segfault encountered", r"!+ Segfault encountered !+", _native("SIGSEGV", "a native handler wrote it")),
    (
        "Segmentation fault",
        r"(?:\*+ )?(?:Process received signal )?Segmentation fault",
        _native("SIGSEGV", "the shell's or a handler's word"),
    ),
    ("Caught signal", r".*Caught signal 11 \(Segmentation fault", _native("SIGSEGV", "UCX wrote it")),
    ("Caught signal", r".*Caught signal 7 \(Bus error", _native("SIGBUS", "UCX wrote it")),
    (
        "corruption",
        r"(?:double free or corruption|malloc\(\): .*corrupt|corrupted size vs)",
        _native("SIGABRT", "the C library aborted"),
    ),
    ("invalid pointer", r"(?:munmap_chunk|free)\(\): invalid pointer", _native("SIGABRT", "the C library aborted")),
    (
        "invalid size",
        r"(?:malloc|free|realloc)\(\): invalid (?:size|next size)",
        _native("SIGABRT", "the C library aborted"),
    ),
    ("HSA_STATUS_ERROR", r".*HSA_STATUS_ERROR_", _native("SIGABRT", "the ROCm runtime aborted")),
    ("atchdog timeout", r"(?:\w+ )?[Ww]atchdog timeout \((?!.*self\.soft=True)", _watchdog),
    ("collective operation timeout", r".*Watchdog caught collective operation timeout", _collective),
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
    ("Assertion ", r".*\.cuh?:\d+: .*Assertion `.*(?:failed|`)", _assert),
)
_COMPILED = tuple((anchor, re.compile(expression), make) for anchor, expression, make in _LINES)

# Exceptions that only say that somebody else is gone.
_PEER_LOST = re.compile(
    r"Connection closed by peer|Connection reset by peer|gloo/transport|ncclRemoteError|"
    r"remote process exited or there was a network error|Broken pipe|"
    r"scheduler died during initialization|Rank \d+ scheduler is dead|monitoredBarrier|"
    r"NCCL communicator was aborted|recvValue failed|sendBytes failed"
)
_TEARDOWN_NAMES = frozenset(
    {
        "CancelledError",
        "KeyboardInterrupt",
        "BrokenPipeError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "GeneratorExit",
    }
)
_REQUEST_LEAD = re.compile(r"Exception in ASGI application|Exception in callback|Task exception was never retrieved")
FATAL_LEAD = re.compile(
    r"(?:Scheduler|DetokenizerManager|Detokenizer|TpModelWorker\w*|TokenizerManager|ModelTpServer|Controller\w*|"
    r"DataParallelController|\w*Scheduler\w*|ModelRpcClient) hit an exception|Exception in ModelRpcClient|"
    r"router init state|Initialization failed"
)


def read(text: str) -> Sign | None:
    """The sign of one line, or None."""
    for anchor, expression, make in _COMPILED:
        if anchor in text:
            match = expression.match(text)
            if match is not None:
                return make(match, text)
    return None


def peer_lost(name: str, message: str) -> bool:
    """Whether an exception only tells that another process is gone."""
    last = name.rsplit(".", 1)[-1]
    if last in _TEARDOWN_NAMES or (last in ("EOFError", "SystemExit") and message in ("", "0")):
        return True
    return bool(_PEER_LOST.search(message))


_CHILD_LEAD = re.compile(r"Process \w*Process-\d+|Exception in thread |Exception ignored in")


def lead_in(previous: str) -> str:
    """The record before a bare traceback header, if it announces the traceback."""
    for pattern in (_REQUEST_LEAD, FATAL_LEAD, _CHILD_LEAD):
        if pattern.search(previous):
            return previous
    return ""


def is_request(lead: str) -> bool:
    return bool(_REQUEST_LEAD.search(lead))


# ---------------------------------------------------------------- kernel

_XID = re.compile(r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+), (?:pid='?(?P<pid>\d+)'?)?(?P<rest>.*)")
_OOM = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]*)\)"
)
_OOM_CGROUP = re.compile(r"oom-kill:.*task_memcg=(?P<cgroup>[^,]*),.*pid=(?P<pid>\d+)")
_SERVER_NAMES = ("python", "sglang", "pt_main_thread", "ray::")
# The rest (13, 31, 43, 45 ...) are how the driver sees a fault of the application: they confirm, they are no cause.
DEVICE_XIDS = frozenset({48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143, 144, 145, 149, 154})


def read_kernel(text: str) -> Sign | None:
    """A kernel line about a GPU or a killed server process, or None."""
    if "Xid" in text:
        match = _XID.search(text)
        if match is not None:
            number = int(match["xid"])
            kind = Kind.HARDWARE if number in DEVICE_XIDS else Kind.HINT
            role = Role.ROOT if kind is Kind.HARDWARE else Role.CONFIRMATION
            pid = int(match["pid"]) if match["pid"] else None
            return Sign(f"xid{number}", kind, role, f"Xid {number}", text.strip(), "the GPU's driver reported it", pid)
    if "ut of memory: Kill" in text:
        match = _OOM.search(text)
        if match is not None and match["name"].startswith(_SERVER_NAMES):
            why = "the kernel killed it for want of memory"
            return Sign("oom", Kind.HARDWARE, Role.ROOT, "HostOutOfMemory", text.strip(), why, int(match["pid"]))
    return None


def oom_unit(text: str) -> tuple[int, str] | None:
    """Pid and unit that the kernel's 'oom-kill:' line names."""
    match = _OOM_CGROUP.search(text) if text.startswith("oom-kill:") else None
    if match is None:
        return None
    for part in reversed(match["cgroup"].split("/")):
        if part.endswith(".service"):
            return int(match["pid"]), part
    return None


# ---------------------------------------------------------------- manager

EXITED = "98e322203f7a4ed290d09fe03c09fe15"
FAILED = "d9b373ed55a64feb8242e02dbe79a49c"
STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
DEACTIVATED = "7ad2d189f7e94e70a38c781354912448"
OOM_KILL = "fe6faa94e7774663a0da52717891d8ef"
CORE_DUMP = "fc2e22bc6ee647b6b90729ab34a250b1"
STARTED = "39f53479d3a045ac8e11786248231fbf"
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
RESTART = "5eb03494b6584870a536b337290809b3"
SUPPRESSED = "a596d6fe7bfa4994828e72309e95d61e"

_EXIT_TEXT = re.compile(
    r"(?P<unit>\S+): Main process exited, code=(?P<code>\w+), status=(?P<status>\d+)(?:/(?P<name>\S+))?"
)
_RESULT_TEXT = re.compile(r"(?P<unit>\S+): Failed with result '(?P<result>[\w-]+)'")
_UNIT_TEXT = re.compile(r"(?P<unit>[\w@.\\:-]+\.service): ")


@dataclass(frozen=True, slots=True)
class Word:
    """What the manager says about a unit: one of the names below and its details."""

    name: str  # exited failed stopping starting deactivated restart oom dump start-limit timeout
    code: str | None = None
    status: str | None = None
    result: str | None = None
    job: str | None = None


def read_manager(line: Line, text: str) -> Word | None:
    """The manager's word, from its message id or (text exports carry none) from the text."""
    fields: Mapping[str, str] = line.fields
    ident = fields.get("MESSAGE_ID", "")
    if ident == EXITED:
        return Word("exited", fields.get("EXIT_CODE"), fields.get("EXIT_STATUS"))
    if ident == FAILED:
        return Word("failed", result=fields.get("UNIT_RESULT"))
    if ident == STOPPING:
        return Word("stopping", job=fields.get("JOB_TYPE"))
    if ident == DEACTIVATED:
        return Word("deactivated")
    if ident == OOM_KILL:
        return Word("oom")
    if ident == CORE_DUMP:
        return Word("dump", status=fields.get("COREDUMP_SIGNAL"))
    if ident in (STARTED, STARTING):
        return Word("starting")
    if ident == RESTART:
        return Word("restart")
    if "Start request repeated too quickly" in text:
        return Word("start-limit")
    return _manager_text(text) if not ident else None


def manager_unit(text: str) -> str | None:
    """The unit a manager's line of a text export is about."""
    match = _UNIT_TEXT.match(text)
    return match["unit"] if match else None


def _manager_text(text: str) -> Word | None:
    match = _EXIT_TEXT.match(text)
    if match is not None:
        return Word("exited", match["code"], match["status"])
    match = _RESULT_TEXT.match(text)
    if match is not None:
        return Word("failed", result=match["result"])
    if "Deactivated successfully" in text or "Succeeded." in text:
        return Word("deactivated")
    if text.startswith("Stopping "):
        return Word("stopping", job="stop")
    if text.startswith(("Starting ", "Started ")):
        return Word("starting")
    if "Scheduled restart job" in text:
        return Word("restart")
    if "killed by the OOM killer" in text:
        return Word("oom")
    return None


def end_sign(end: UnitEnd, text: str) -> Sign:
    """The failure of a unit whose log says nothing: what the manager saw."""
    if end.result == "oom-kill":
        return Sign("end", Kind.HARDWARE, Role.ROOT, "HostOutOfMemory", text, "the manager: killed for want of memory")
    if end.result == "watchdog":
        return Sign("end", Kind.EXIT, Role.ROOT, "WatchdogTimeout", text, "the unit's own watchdog ended it")
    if end.result == "timeout":
        return Sign("end", Kind.EXIT, Role.ROOT, "StartTimeout", text, "the unit was not up in time")
    if end.result == "start-limit-hit":
        return Sign("end", Kind.EXIT, Role.ROOT, "StartLimit", text, "it was started too often in a short time")
    if end.code in ("killed", "dumped") and end.status:
        word = _signal_word(int(end.status)) if end.status.isdigit() else f"SIG{end.status.removeprefix('SIG')}"
        return Sign("end", Kind.EXIT, Role.ROOT, word, text, "only the manager saw the end")
    kind = Kind.FATAL if end.status in ("203", "200") else Kind.EXIT
    return Sign("end", kind, Role.ROOT, f"ExitStatus {end.status or '?'}", text, "only the manager saw the end")
