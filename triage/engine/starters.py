"""The word of whoever started the server, for its end: shells, compose, Kubernetes, slurm, MPI, pm2, Ray, supervisord.

A table for `engine.signs`, which reads it line by line. Such a word counts only where the log holds nothing else
(`engine.burst`), and nobody had asked for the end (`Starter`). It must not take the end of another program for the
server's: where a line names a program, it has to be one that may be SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from triage.engine.kinds import Kind, Sign, signal_word
from triage.model import Role

KILLED = "killed"  # the name of these signs
STOP = "stop"  # somebody asked it to end the server
ALIVE = "alive"  # a container runs: the reason of an end that is told below is that of its life before
SAID = (KILLED, STOP, ALIVE)
DRAIN = 300_000_000  # from the word to the end of what would not end
_NEAR = 8  # lines of one container's description
LIMIT = "RuntimeLimit"
MEMORY = "HostOutOfMemory"
_CHILD = "ChildDied"
_WHY = "the word of whoever started it, for its end"
ASKED = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})  # how a process is told to end
FAULTS = {
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
# What bash says in other languages; that a process was told to end is no crash in any.
_WORDS = {
    **dict.fromkeys(("已杀死", "Getötet", "Processus arrêté", "Terminado (killed)", "Убито", "強制終了"), "SIGKILL"),
    **dict.fromkeys(("죽었음", "Ucciso", "Morto"), "SIGKILL"),
    **dict.fromkeys(("段错误", "Speicherzugriffsfehler", "Erreur de segmentation", "Violación de segmento"), "SIGSEGV"),
    **dict.fromkeys(("Ошибка сегментирования", "Errore di segmentazione", "Falha de segmentação"), "SIGSEGV"),
    **dict.fromkeys(("已放弃", "Abgebrochen", "Abandon", "Abortado", "Аварийный останов", "Annullato"), "SIGABRT"),
    **dict.fromkeys(("已终止", "Beendet", "Complété", "Terminado", "Завершено", "終了しました", "종료됨"), "SIGTERM"),
    **dict.fromkeys(("Terminato", "Terminated"), "SIGTERM"),
    **FAULTS,
}

Maker = Callable[[re.Match[str], str], Sign]


def killed(match: re.Match[str], text: str) -> Sign | None:
    """A shell's 'Killed', compose's 'sglang-1 exited with code 137', Kubernetes' 'OOMKilled'."""
    code = int(match.groupdict().get("code") or 128 + 9)
    word = signal_word(code - 128) if code > 128 else f"ExitStatus {code}"
    return None if word in ASKED or not serves(match) else told(MEMORY if "OOM" in text else word, text)


def told(word: str, text: str) -> Sign:
    return Sign(KILLED, Kind.CASCADE, Role.CASCADE, word, text.strip(), _WHY, None, True)


def _only(name: str) -> Maker:
    return lambda _match, text: Sign(name, Kind.CASCADE, Role.NOISE, name, text.strip(), _WHY)


def _as(word: str) -> Maker:
    return lambda _match, text: told(word, text)


def _signalled(match: re.Match[str], text: str) -> Sign | None:
    """By number or by name, or else an exit code. One that was told to end is no crash."""
    groups = match.groupdict()
    number, code = groups.get("signal"), groups.get("code")
    if number:
        word = signal_word(int(number)) if number.isdecimal() else number
    else:
        word = signal_word(int(code) - 128) if code and int(code) > 128 else f"ExitStatus {code}"
    return None if word in ASKED or word == "ExitStatus 0" else told(word, text)


def _task(match: re.Match[str], text: str) -> Sign | None:
    """srun's 'task 3: Exited with exit code 137', 'tasks 0-7: Out Of Memory', 'task 0: Killed'."""
    what = match["what"]
    if match["code"]:
        return _signalled(match, text)
    return told({"Out Of Memory": MEMORY, "Killed": "SIGKILL"}.get(what) or FAULTS[what], text)


def serves(match: re.Match[str]) -> bool:
    """Whether the command that was run is the server, where the line tells one. Few lines are asked: the expression is
    slow to compile."""
    command = match.groupdict().get("command")
    return command is None or re.match(_COMMAND, command[:1000]) is not None


def _job(match: re.Match[str], text: str) -> Sign | None:
    """bash's 'run.sh: line 3: 881 Killed   command' in other languages. A word that is not known may be 'Done'."""
    word = _WORDS.get(match["what"].strip())
    return None if word is None or word in ASKED or not serves(match) else told(word, text)


# A command that names SGLang, and is none that copies or looks at its files or logs, asks it or stands before it.
_BEFORE = r" *(?:(?:env|exec|nice|nohup|setsid|stdbuf|sudo|time|timeout)(?: -\S{1,80}| \d\S{0,20}){0,9} +){0,4}"
_TOOLS = (
    r"(?:\S{0,200}/)?(?:aws|awk|cat|cp|curl|dd|du|emacs|find|git|grep|gzip|head|hf|htop|huggingface-cli|journalctl|jq|"
    r"k9s|kill|kubectl|less|lnav|more|mv|nano|nvcc|oc|pgrep|pip|pkill|py-spy|pytest|rclone|rg|rm|rsync|scp|sed|sort|ssh|"
    r"stern|tail|tar|tee|top|vim?|watch|wc|wget|zcat|zgrep|zstd|uv +pip|"
    r"(?:docker|nerdctl|podman)(?: +compose)? +"
    r"(?:attach|build|cp|events|exec|inspect|load|logs|ps|pull|push|save|stats))"
)
_BESIDE = r".{0,300}?-m +sgl(?:ang\.(?:bench|check_env|eval|profiler|test)|ang_router(?!\.launch_server)|[_.-]eval)"
_SERVER = r"(?:-m +sglang\.launch_server|(?<!\S)sglang +serve)\b"
_COMMAND = (
    rf"(?!{_BEFORE}{_TOOLS}(?: |$))(?!{_BESIDE})"
    rf"(?:[^'\"={{}}]{{0,200}}(?<!backend )(?<!engine )\bsgl|.{{0,300}}?{_SERVER})"
)
COMMAND = r"(?P<command>.*\bsgl.*)"
_BASH = r"[\w./-]{1,80} ?: ?[^\W\d][\w.]{0,20} ?\d+ ?: +\d+ (?P<what>[^\s'\"={}\d][^'\"={}\d]{1,40}?) {2,}" + COMMAND
# What it writes below whatever the server wrote last, that is no more of an exception's message.
BELOW = (
    r"(?:srun|slurmstepd(?:-[\w.-]{1,80})?): |(?:OOM)?Killed$|Command terminated by signal \d|"
    r"[\w./-]{1,80}: line \d+: +\d+ (?:Killed|Terminated|Aborted|Segmentation fault|Bus error) |"
    r"[\w.-]{1,80} exited with code \d{1,3}$|PM2 +(?:log:|\|) |"
    r" *(?:Last State: +Terminated|Reason: +OOMKilled)$|make(?:\[\d+\])?: \*\*\* |Aborting on container exit|"
    r"(?:\x1b\S* ?|\^C)?Gracefully [Ss]topping\.\.\.| ?(?:\S +)?Container [\w.-]{1,80} +Stopp(?:ing|ed)\b"
)
_SLURM = r"(?:\[[\d:T. -]{8,40}\] )?(?:srun|slurmstepd(?:-[\w.-]{1,80})?): (?:error: )?"
# What is called after the server it stands beside bears its own name behind SGLang's; before that stands the project's.
_OTHERS = (
    r"(?![\w./:-]{0,80}(?<![a-z])(?:bench(?:mark)?|cache|client|dashboard|db|download(?:er)?|eval|exporter|"
    r"grafana|init|loadgen|metrics|monitor(?:ing)?|nginx|otel|postgres|prom|prometheus|proxy|redis|router|setup|sidecar|"
    r"ui|web|webui)(?![a-z]))"
)
_NAME = rf"[\w./:-]{{0,80}}sgl{_OTHERS}[\w./:-]{{0,80}}"
# As in engine.signs: anchor, expression, what to make of it. An anchor with one of `gate.PIECES` in it costs no search.
LINES: tuple[tuple[str, str, Callable[[re.Match[str], str], Sign | None]], ...] = (
    ("Killed", r"(?: *(?:- )?[Rr]eason: +)?(?:OOM)?Killed$", killed),
    (" exited with code ", rf"{_NAME} exited with code (?P<code>[1-9]\d?\d?)$", killed),
    ("sglang.launch_server", _BASH, _job),
    ("sglang serve", _BASH, _job),
    ("error: Detected ", _SLURM + r"Detected [1-9]\d* oom[_-]kill event", _as(MEMORY)),
    (
        "srun: error: ",
        _SLURM + r"[\w.\[\],-]{1,200}: tasks? [\d,-]{1,80}: (?:Exited with exit code (?P<code>\d{1,3})|"
        rf"(?P<what>Killed|Out Of Memory|{'|'.join(FAULTS)}))",
        _task,
    ),
    ("error: *** ", _SLURM + r"\*\*\* (?:STEP|JOB) \S{1,40} ON .* DUE TO TIME LIMIT", _as(LIMIT)),
    (
        "error: *** ",
        _SLURM + r"\*\*\* (?:STEP|JOB) \S{1,40} ON \S{1,200} CANCELLED AT \S+(?: DUE TO PREEMPTION)? \*\*\*$",
        _only(STOP),
    ),
    ("srun: forcing job", r"srun: forcing job termination", _only(STOP)),
    ("container exit", r"Aborting on container exit\.\.\.", _only(STOP)),
    ("racefully ", r"(?:\x1b\S* ?|\^C)?Gracefully [Ss]topping\.\.\.", _only(STOP)),
    (
        "Stopping",
        rf"(?:PM2 +(?:log:|\|) )?Stopping app:{_NAME}|(?:\S+ +){{1,6}}Stopping container {_NAME}|"
        rf" ?(?:\S +)?Container {_NAME} +Stopping *$",
        _only(STOP),
    ),
    ("State: ", r" *State: +Running$", _only(ALIVE)),
    ("error: *** ", _SLURM + r"\*\*\* (?:STEP|JOB) \S{1,40} ON .* DUE TO NODE FAILURE", _as(_CHILD)),
    (
        "exited on signal ",
        r"(?:mpirun|mpiexec|prterun|orterun) noticed .* exited on signal (?P<signal>\d+)",
        _signalled,
    ),
    ("exited with non-zero status", r"(?:mpirun|mpiexec|prterun|orterun) detected that one or more ", _as(_CHILD)),
    ("(signal ", r"YOUR APPLICATION TERMINATED WITH .*\(signal (?P<signal>\d+)\)", _signalled),
    (
        "exited with code [",
        rf"(?:PM2 +(?:log:|\|) )?App \[{_NAME}\] exited with code \[\d+\] via signal \[(?P<signal>SIG[A-Z]+)\]",
        _signalled,
    ),
    (
        "unexpected system error",
        r"(?:\(raylet[^()]{0,80}\) )?A worker died or was killed while executing .*unexpected system error",
        _as(_CHILD),
    ),
    (
        " due to memory pressure",
        r"(?:\(raylet[^()]{0,80}\) )*(?:\[[^\]]{1,80}\] )?(?:\(raylet\) )?(?:node_manager\.cc:\d+: )?"
        r"[1-9]\d* Workers \(tasks / actors\) killed due to memory pressure \(OOM\)",
        _as(MEMORY),
    ),
    ("Command terminated by", r"Command terminated by signal (?P<signal>\d+)", _signalled),
    ("failed container ", rf"(?:\S+ +)*Back-off restarting failed container {_NAME} ", _as(_CHILD)),
    ("failed liveness probe", rf"(?:\S+ +)*Container {_NAME} failed liveness probe, will be restarted", _as(_CHILD)),
    ("was low on resource: ", rf"(?:\S+ +)*The node was low on resource: .*Container {_NAME} was using", _as(_CHILD)),
)


class Starter:
    """What it said of one invocation before the line that is read now."""

    __slots__ = ("_alive", "_asked")

    def __init__(self) -> None:
        self._alive: int | None = None  # serial of the line
        self._asked: int | None = None  # when, -1 without a time

    def heard(self, sign: Sign, time: int | None, serial: int) -> Sign | None:
        """One of these signs: itself, if the server's end is a failure by it."""
        if sign.name == STOP:
            self._asked = time if time is not None else -1
        elif sign.name == ALIVE:
            self._alive = serial
        elif sign.name != KILLED or not (self._stopped(sign, time) or self._lives(sign, serial)):
            return sign
        return None

    def _stopped(self, sign: Sign, time: int | None) -> bool:
        if self._asked is None or sign.exception == MEMORY:  # no stop takes a host's memory
            return False
        return time is None or self._asked < 0 or time - self._asked <= DRAIN

    def _lives(self, sign: Sign, serial: int) -> bool:
        return self._alive is not None and serial - self._alive <= _NEAR and "Reason: " in sign.message
