"""What the kernel and the manager say about a server: GPU faults, killed processes, how a unit ended.

In comes a line of theirs, out goes a `Sign` (engine.signs) or a `Word`. Called by the assembler, only for lines whose
origin is theirs: a process that prints the same text is not believed. It must not remember anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from triage.engine.kinds import Kind, Sign, signal_word
from triage.frozen import frozen
from triage.model import Line, Role, UnitEnd

# ---------------------------------------------------------------- kernel

_XID = re.compile(r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+), (?:pid='?(?P<pid>\d+)'?)?(?P<rest>.*)")
_XID_BEFORE = re.compile(r"caused by previous Xid (?P<xid>\d{1,3})")
_GONE = re.compile(r"NVRM: .*(?:fallen off the bus|RmInitAdapter failed)")
_OOM = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]*)\)"
)
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:[0-9a-fA-F:.]+\): \d+, Fatal\b")
# A fault that no handler caught. A thread is named by itself and its own number: only a process can be recognised.
_FAULT = re.compile(
    r"(?:traps: )?(?P<name>[^\[\]]{1,15})\[(?P<pid>\d+)\]:? "
    r"(?P<what>segfault|general protection fault|trap invalid opcode|trap divide error)\b.*?"
    r"(?P<where> in [^\s\[]{1,200})?(?:\[[0-9a-f+,]*\])?$"
)
_FAULT_SIGNALS = {"trap invalid opcode": "SIGILL", "trap divide error": "SIGFPE"}
_OOM_CGROUP = re.compile(r"oom-kill:.*task_memcg=(?P<cgroup>[^,]*),.*pid=(?P<pid>\d+)")
_ENGINES = ("docker.service", "containerd.service", "crio.service")  # whose container it is they do not tell
_INVOKED = re.compile(r"(?P<name>\S{1,15}) invoked oom-killer: ")
_COMPILERS = ("cicc", "nvcc", "ptxas", "cudafe++", "fatbinary", "cc1plus", "ninja", "clang")  # a start may run them
_SERVER_NAMES = ("python", "sglang", "pt_main_thread", "ray::")
# The rest (13, 31, 43, 45 ...) are how the driver sees a fault of the application: they confirm, they are no cause. 63
# tells that a row will be replaced at the next reset, which hurts nobody yet.
DEVICE_XIDS = frozenset({48, 61, 62, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143, 144, 145, 149, 154})


COMPILER = "compiler"  # a sign that tells of a child of some server's, if of anybody's
CONTAINED = 94  # an error of the device that only the process with that pid is to die of


def read_kernel(text: str) -> Sign | None:
    """A kernel line about a GPU, the switch between them, or a server's process that was killed; else None."""
    if "SXid" in text:
        match = _SXID.search(text)
        if match is None:
            return None
        why = "the driver of the switch between the GPUs reported it"
        return Sign("sxid", Kind.HARDWARE, Role.ROOT, "SXid", text.strip(), why)
    if "Xid" in text:
        match = _XID.search(text)
        if match is not None:
            return _xid(match, text)
    if "NVRM" in text and _GONE.search(text):
        return Sign("gone", Kind.HINT, Role.CONFIRMATION, "NVRM", text.strip(), "the driver lost the GPU")
    if "ut of memory: Kill" in text:
        match = _OOM.search(text)
        if match is not None and match["name"].startswith(_SERVER_NAMES):
            why = "the kernel killed it for want of memory"
            return Sign("oom", Kind.HARDWARE, Role.ROOT, "HostOutOfMemory", text.strip(), why, int(match["pid"]))
        if match is not None and match["name"].startswith(_COMPILERS):
            why = "the kernel killed a compiler for want of memory"
            return Sign(
                COMPILER, Kind.HARDWARE, Role.ROOT, "HostOutOfMemory", text.strip(), why, int(match["pid"]), own=True
            )
    if "invoked oom-killer" in text:
        match = _INVOKED.match(text)
        if match is not None and match["name"].startswith((*_SERVER_NAMES, *_COMPILERS)):
            why = "it asked for memory that the machine had not"
            return Sign("invoked", Kind.HINT, Role.CONFIRMATION, "HostOutOfMemory", text.strip(), why)
    match = _FAULT.match(text.rstrip())
    if match is not None and match["name"].startswith(_SERVER_NAMES):
        word, why = _FAULT_SIGNALS.get(match["what"], "SIGSEGV"), "the kernel ended it"
        message = f"{match['name']}: {match['what']}{match['where'] or ''}"  # addresses differ from start to start
        return Sign("fault", Kind.EXIT, Role.ROOT, word, message, why, int(match["pid"]), own=True)
    return None


def _xid(match: re.Match[str], text: str) -> Sign:
    number = int(match["xid"])
    pid = int(match["pid"]) if match["pid"] else None
    name, why = f"xid{number}", "the GPU's driver reported it"
    if "Nonfatal" in match["rest"]:  # a link that was retrained: the driver tells it, nothing is lost
        why = f"{why}, as not fatal"
        return Sign(name, Kind.CASCADE, Role.CONFIRMATION, f"Xid {number}", text.strip(), why, pid)
    before = _XID_BEFORE.search(match["rest"])
    first = int(before["xid"]) if before is not None else number
    kind = Kind.HARDWARE if first in DEVICE_XIDS else Kind.HINT
    role = Role.ROOT if kind is Kind.HARDWARE else Role.CONFIRMATION
    cause = f"Xid {first}" if first != number else ""
    own = kind is Kind.HINT or first == CONTAINED
    return Sign(name, kind, role, f"Xid {number}", text.strip(), why, pid, cause=cause, own=own)


def oom_unit(text: str) -> tuple[int, str] | None:
    """Pid and unit, or else scope, that the kernel's 'oom-kill:' line names."""
    match = _OOM_CGROUP.search(text) if text.startswith("oom-kill:") else None
    if match is None:
        return None
    parts = match["cgroup"].split("/")
    units = [part for part in parts if part.endswith(".service") and part not in _ENGINES]
    return int(match["pid"]), (units or parts)[-1]


def dumped(pid: int, status: str, text: str) -> Sign:
    """A process of the unit left a core."""
    word = signal_word(int(status)) if status.isdigit() else "SIGABRT"
    why = "its core was dumped"
    return Sign("dump", Kind.EXIT, Role.ROOT, word, text.split("\n", 1)[0].strip(), why, pid)


KERNEL_WORDS = (
    "NVRM",
    "ut of memory: Kill",
    "invoked oom-killer",
)  # for the gate: what the kernel's lines hold in a plain log

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
DEPENDENCY = "be02cf6855d2428ba40df7e9d022f03d"  # any job that failed has it: its result tells which
SUPPRESSED = "a596d6fe7bfa4994828e72309e95d61e"

RUNTIME_LIMIT = "runtime-limit"  # systemd's own result for it is 'timeout', as for a start that takes too long

_EXIT_TEXT = re.compile(
    r"(?P<unit>\S+): Main process exited, code=(?P<code>\w+), status=(?P<status>\d+)(?:/(?P<name>\S+))?"
)
_RESULT_TEXT = re.compile(r"(?P<unit>\S+): Failed with result '(?P<result>[\w-]+)'")
_TIMEOUT_TEXT = re.compile(r"(?i):? ?start(?:-pre|-post|) operation timed out\. (?:Terminating|Aborting|Killing)")
_HINDERED = re.compile(r"\S+: Failed to (?:load environment files|run 'start(?:-pre|)' task): ")
# A text may hold a whole boot: a unit that is not SGLang by its name is not known to be the server.
_DEPENDENCY = re.compile(r"Dependency failed for [\w@.\\:-]{0,120}(?i:sgl)[\w@.\\:-]{0,120}\.service\b")
_UNIT_TEXT = re.compile(
    r"(?:Start\w+ |Stopp\w+ |Dependency failed for |)(?P<unit>[\w@.\\:-]+\.service)(?::| -|\.\.\.|\.$)"
)


@frozen
class Word:
    """What the manager says about a unit: one of the names below and its details."""

    name: str  # exited failed stopping starting deactivated restart oom dump start-limit overdue hindered
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
    if ident == DEPENDENCY:
        start = fields.get("JOB_TYPE") == "start" and fields.get("JOB_RESULT") == "dependency"
        return Word("failed", result="dependency") if start else None
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
    if _DEPENDENCY.match(text):
        return Word("failed", result="dependency")
    if "Deactivated successfully" in text or "Succeeded." in text:
        return Word("deactivated")
    if text.startswith("Stopping "):
        return Word("stopping", job="stop")
    if text.startswith(("Starting ", "Started ")):
        return Word("starting")
    if "Scheduled restart job" in text:
        return Word("restart")
    if _TIMEOUT_TEXT.search(text):
        return Word("overdue", result="timeout")
    if "reached runtime time limit. " in text:
        return Word("overdue", result=RUNTIME_LIMIT)
    if "Watchdog timeout (limit " in text:
        return Word("overdue", result="watchdog")
    if "killed by the OOM killer" in text:
        return Word("oom")
    if _HINDERED.match(text):
        return Word("hindered")
    return None


def end_sign(end: UnitEnd, text: str) -> Sign:
    """The failure of a unit whose log says nothing: what the manager saw."""
    if end.result == "oom-kill":
        return Sign("end", Kind.HARDWARE, Role.ROOT, "HostOutOfMemory", text, "the manager: killed for want of memory")
    if end.result == "watchdog":
        return Sign("end", Kind.EXIT, Role.ROOT, "WatchdogTimeout", text, "the unit's own watchdog ended it")
    if end.result == RUNTIME_LIMIT:
        return Sign("end", Kind.EXIT, Role.ROOT, "RuntimeLimit", text, "it ran as long as RuntimeMaxSec= lets it")
    if end.result == "timeout":
        return Sign("end", Kind.EXIT, Role.ROOT, "StartTimeout", text, "the unit was not up in time")
    if end.result == "dependency":
        return Sign("end", Kind.EXIT, Role.ROOT, "NotStarted", text, "what it requires had failed")
    if end.result == "start-limit-hit":
        return Sign("end", Kind.EXIT, Role.ROOT, "StartLimit", text, "it was started too often in a short time")
    if end.result == "resources":
        return Sign("end", Kind.EXIT, Role.ROOT, "UnitResources", text, "the manager could not prepare its start")
    if end.code in ("killed", "dumped") and end.status:
        word = signal_word(int(end.status)) if end.status.isdigit() else f"SIG{end.status.removeprefix('SIG')}"
        return Sign("end", Kind.EXIT, Role.ROOT, word, text, "only the manager saw the end")
    kind = Kind.FATAL if end.status in ("203", "200") else Kind.EXIT
    return Sign("end", kind, Role.ROOT, f"ExitStatus {end.status or '?'}", text, "only the manager saw the end")
