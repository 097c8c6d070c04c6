"""What of a crash the rules look at, prepared once, and the conditions on it that need no regex.

A crash comes in; `Evidence` goes out: the same texts for the automaton, for the regexes and for the account of how far
a rule got. Called by `rulebook`, `trial` and `offer`. Pure.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

from triage.frozen import frozen
from triage.model import Crash, Failure, Frame, Link, Origin, Phase, Role
from triage.rulebase.options import flag_holds
from triage.rulebase.rule import FramePattern, RemedyText

LINE_CAP = 2_000
TEXT_CAP = 64_000
# Lines that hold every flag's name, or advice that is printed under any failure: nothing may match on them.
_DUMPS = ("server_args=ServerArgs(", "Possible solutions:", "usage: ", "dict_keys([")
# Classes that speak of what somebody sent: they may quote a request, and know nothing of devices, memory or imports.
_OF_INPUT = frozenset(
    {"ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "AssertionError", "NotImplementedError"}
    | {"UnicodeDecodeError", "UnicodeEncodeError", "JSONDecodeError", "ValidationError", "RequestValidationError"}
    | {"HTTPException", "BadRequestError", "TemplateError", "TemplateSyntaxError", "UndefinedError", "SecurityError"}
)
# Of these Python or the code itself writes the message: without a quotation mark nothing in it is a request's.
_OF_CODE = frozenset({"TypeError", "AttributeError", "IndexError", "NotImplementedError"})
_QUOTE = re.compile(r"(?:^|(?<=[\s=:(\[{,]))[bu]?['\"](?=[^\s'\"]|\s*\n)", re.MULTILINE)
_PYTHONS = re.compile(r"'[\w.]+' object [a-z ]+(?:'\w+')?")  # names of the code, in Python's own words
_ELSEWHERE = re.compile(
    r"(?i:\bout[ _-]of[ _-]memory)|OutOfMemory|OUT_OF_MEMORY|ALLOC_FAILED|MemoryAllocation|Not enough memory|"
    r"\bECC\b|ECCUncorrectable|NVRM|\bS?Xid\b|\bGSP\b|_issueRpcAndWait|fallen off the bus|RmInitAdapter|"
    r"\b(?:CUDA|HIP|NCCL|Cuda|cuDNN|CUBLAS|Triton) (?:error|Error|failure)|illegal memory access|oom-kill|"
    r"No module named|cannot import name|undefined symbol|(?i:address already in use)|attempting to bind on address|"
    r"No space left|shared memory segment|Watchdog caught|is installed with version|exit code|Traceback"
)
_HIDDEN = "…"  # what stands for a message that is not believed: no pattern means it, nor an empty one
_SERVING = frozenset({Phase.SERVING, Phase.SHUTDOWN})  # requests of clients were taken
_BEFORE = frozenset({Phase.ARGUMENTS, Phase.LOAD, Phase.MEMORY, Phase.CAPTURE})  # no request was taken yet
# Words of the kernel's log alone: in what a process says itself they are somebody's words.
_KERNELS = re.compile(r"NVRM: |\bSXid\b|\boom-kill:|Out of memory: Kill")
_KERNELS_WORDS = ("NVRM: ", "SXid", "oom-kill:", "Out of memory: Kill")  # one of them is in all that it matches
_KERNELS_OWN = ("Xid ", "SXid", "NVRM", "HostOutOfMemory")


@frozen
class Evidence:
    """One crash as the rules see it."""

    crash: Crash
    chain: tuple[tuple[Link, str], ...]  # links of the root, each with its capped message
    text: str  # the crash's lines and messages, capped, one below the other
    gate: str  # everything an anchor may stand in

    @classmethod
    def of(cls, crash: Crash) -> Evidence:
        chain = tuple((link, _capped(own_words(link, crash.phase))) for link in crash.root.chain)
        text = _capped("\n".join(_lines(crash)))
        words = [message for _, message in chain]
        words += [link.exception for link, _ in chain]
        words += [f"{_slashed(frame.path)} {frame.function}" for link, _ in chain for frame in frames(link)]
        if crash.end:
            words += filter(None, (crash.end.result, crash.end.code, crash.end.status))
        return cls(crash, chain, text, "\n".join((*words, text)))


def _lines(crash: Crash) -> list[str]:
    """The texts of the crash's lines and messages, each once, without dumps that hold every word, and without what
    only a request met or may have written."""
    noise = {line.text for failure in crash.failures if failure.role is Role.NOISE for line in failure.lines}
    failures = [failure for failure in crash.failures if failure.role is not Role.NOISE]
    quoted = {line for failure in failures for line in _quoted(failure, crash.phase)}
    quoted |= noise - {line.text for failure in failures for line in failure.lines}
    lines = (line for failure in failures for line in failure.lines)
    kept = (line.text for line in (*crash.evidence, *lines) if line.text not in quoted)
    texts = dict.fromkeys((*kept, *(line.text for line in crash.context.warnings)))
    for failure in failures:
        for link in failure.chain:
            own = own_words(link, crash.phase)
            texts[own if own == link.message else f"{link.exception}: {own}"] = None
    return [text[:LINE_CAP] for text in texts if not any(dump in text[:400] for dump in _DUMPS)]


def own_words(link: Link, phase: Phase) -> str:
    """The message without what it quotes, where that holds words that such an exception never says itself: a request
    wrote them. Nothing behind the first quotation mark is believed then, since a request can write the closing one.
    Where no mark stands before such words, a server that serves has them from a request too: nothing is believed."""
    message, name = link.message, link.exception.rsplit(".", 1)[-1]
    if not link.exception.startswith(_KERNELS_OWN) and _KERNELS.search(message):
        message = "\n".join(line for line in message.split("\n") if not _KERNELS.search(line))
    if phase in _BEFORE or name not in _OF_INPUT:
        return message
    python = _PYTHONS.match(message)
    mark = _QUOTE.search(message, python.end() if python is not None else 0)
    if mark is not None and _ELSEWHERE.search(message, mark.end()) is not None:
        message = message[: mark.start()]
    written = phase in _SERVING and name not in _OF_CODE
    return _HIDDEN if written and _ELSEWHERE.search(message) is not None else message


def _quoted(failure: Failure, phase: Phase) -> set[str]:
    """The texts of its lines that hold what a request wrote, not the process or the kernel."""
    hidden: set[str] = set()
    for link in failure.chain:
        own = own_words(link, phase)
        if own != link.message:
            left = {part.strip() for part in own.split("\n")}
            hidden |= {part.strip() for part in link.message.split("\n") if len(part.strip()) > 2} - left
    texts = [line.text for line in failure.lines if line.origin is not Origin.KERNEL]
    found = {text for text in texts if hidden and any(text.rstrip().endswith(part) for part in hidden)}
    if failure.chain and not failure.cause.exception.startswith(_KERNELS_OWN):
        found |= {text for text in texts if any(word in text for word in _KERNELS_WORDS) and _KERNELS.search(text)}
    return found


def frames(link: Link) -> tuple[Frame, ...]:
    return link.frames or ((link.frame,) if link.frame else ())


def _capped(text: str) -> str:
    """Head and tail: the cause stands at one of the two."""
    return text if len(text) <= TEXT_CAP else text[: TEXT_CAP // 2] + "\n" + text[-TEXT_CAP // 2 :]


def is_one_of(exception: str, wanted: tuple[str, ...]) -> bool:
    """By the class's own name, unless a rule writes the dotted one."""
    return exception in wanted or exception.rsplit(".", 1)[-1] in wanted


def stands_at(patterns: tuple[FramePattern, ...], frame: Frame) -> bool:
    """Do the globs mean this frame? `Class.method`, as newer Pythons print it, is the method too."""
    file, name, method = _names(frame.path, frame.function)
    for pattern in patterns:
        in_file = _ends(frame.path, pattern.file) if "/" in pattern.file else _fits(file, pattern.file)
        if in_file and (_fits(name, pattern.function) or _fits(method, pattern.function)):
            return True
    return False


def leads(text: RemedyText, crash: Crash) -> bool:
    """Does the crash say that this rung is likelier than those before it? What the log does not tell says nothing."""
    where = text.first_where
    if where is None or not all(flag_holds(condition, crash.context.flags) for condition in where.flags):
        return False
    return not where.frames or any(
        stands_at(where.frames, frame) for link in crash.root.chain for frame in frames(link)
    )


@lru_cache(4096)
def _ends(path: str, glob: str) -> bool:
    """Is this, a file within its folders, how the path ends?"""
    return _matches("/" + _slashed(path), "*/" + glob)


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


@lru_cache(1024)  # each rule asks about the same few frames
def _names(path: str, function: str) -> tuple[str, str, str]:
    return Frame(path, function, None).file, function, function.rsplit(".", 1)[-1]


def _fits(name: str, glob: str) -> bool:
    """Most globs are plain names."""
    return name == glob or glob == "*" or _matches(name, glob)


def _matches(name: str, glob: str) -> bool:
    """As fnmatchcase says, which makes an expression of each glob: with stars alone none is needed."""
    parts = _between(glob)
    if parts is None:
        return fnmatch.fnmatchcase(name, glob)
    if len(parts) == 1:
        return name == glob
    head, *inner, tail = parts
    at, end = len(head), len(name) - len(tail)
    if end < at or not name.startswith(head) or not name.endswith(tail):
        return False
    for part in inner:
        at = name.find(part, at, end) + len(part)
        if at < len(part):
            return False
    return True


@lru_cache(4096)
def _between(glob: str) -> list[str] | None:
    """What stands before, between and behind its stars; None where it has other wild cards."""
    return None if "?" in glob or "[" in glob else glob.split("*")
