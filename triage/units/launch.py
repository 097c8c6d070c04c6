"""Where SGLang's own words stand in a unit's command, behind whatever starts it.

In: the commands of a unit (`unitfile.Command`). Out: `Launch`: the words from the interpreter to the last flag, where
the flags begin, and how to put other words in their place; or `Refused` where a person has to do it. Called by `edits`,
`dropin`, `servers`, `probe`. Pure. Words that are handed on as they are (env, numactl, torchrun, uv run, a container's
engine) need no understanding: the start of the server is found behind them. The script of `bash -c` is taken apart.
"""

from __future__ import annotations

import re

from triage.frozen import frozen
from triage.model import Refused
from triage.units.shellwords import ShellWord, shell_word, simple_commands
from triage.units.unitfile import PREFIXES, Command, Word, quoted, word

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
_SCRIPT_TAKERS = frozenset(("su", "runuser", "sg"))  # they hand `-c SCRIPT` to a shell
ENGINES = frozenset(("docker", "podman", "nerdctl"))
ELSEWHERE = frozenset(("systemd-run", "screen", "tmux", "kubectl", "ssh", "machinectl"))
NEW_ENVIRONMENT = frozenset(("sudo", "su", "doas"))
_MODULES = frozenset(("sglang.launch_server", "sglang"))
ROUTERS = frozenset(("sglang_router.launch_router", "sglang.launch_router", "sglang_router.launch_server"))
_MODULE_OPTION = re.compile(r"-[A-Za-z]*m")
_SCRIPT_OPTION = re.compile(r"-[A-Za-z]*c")
_PROGRAM = re.compile(r"python[0-9.]*|sglang")
_GIVEN = re.compile(r"(?P<option>--env=|-e)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.S)


@frozen
class Launch:
    """The server's start in the unit's command number `index`. `script`: the word of it whose text holds `words`."""

    index: int
    command: Command
    words: tuple[Word, ...]
    start: int  # first word that may be a flag
    serve: bool = False  # `sglang serve MODEL`: a word without a flag may be the model
    script: int | None = None
    exported: tuple[ShellWord, ...] = ()  # words of `export` and `NAME=value` before the start, in the script

    def replaced(self, at: int, until: int, values: tuple[str, ...]) -> Command:
        """The command with words[at:until] replaced by new words of these values."""
        if self.script is None:
            new = (word(value, variables=":" not in self.command.prefix) for value in values)
            return Command((*self.words[:at], *new, *self.words[until:]))
        inner = [item for item in self.words if isinstance(item, ShellWord)]
        begin = inner[at - 1].end if at else inner[0].begin
        end = inner[until - 1].end if until > at else begin
        return self._with_script(begin, end, "".join(f" {shell_word(value)}" for value in values), inner[at:until])

    def assigned(self, item: Word, value: str) -> Command:
        """The command with that word, one of `given`, now saying NAME=value."""
        found = _GIVEN.fullmatch(item.text)
        name = f"{found['option'] or ''}{found['name']}" if found else item.text
        if isinstance(item, ShellWord):
            return self._with_script(item.begin, item.end, f"{name}={shell_word(value)}", [])
        at = next(at for at, other in enumerate(self.command.words) if other is item)
        new = word(f"{name}={value}", variables=":" not in self.command.prefix)
        return Command((*self.command.words[:at], new, *self.command.words[at + 1 :]))

    def ungiven(self, items: tuple[Word, ...]) -> Command | None:
        """The command without these words of `given`; None where taking them away would leave half a command."""
        words = self.command.words
        if isinstance(items[-1], ShellWord):
            at = next((at for at, other in enumerate(self.words) if other is items[-1]), None)
            return None if at is None or len(items) > 1 else self.replaced(_optioned(self.words, at), at + 1, ())
        places = [at for at, other in enumerate(words) if any(other is item for item in items)]
        gone = {place for at in places for place in range(_optioned(words, at), at + 1)}
        return Command(tuple(item for at, item in enumerate(words) if at not in gone))

    def _with_script(self, begin: int, end: int, text: str, gone: list[ShellWord]) -> Command:
        assert self.script is not None
        words, script = self.command.words, self.command.words[self.script].text
        between = script[begin:end]
        for item in gone:
            between = between.replace(item.raw, "", 1)
        if gone and between.strip(" \t\\\n"):
            raise Refused("something else stands between a flag and its value in the script: change it by hand")
        script = script[:begin] + text + script[end:]
        return Command((*words[: self.script], Word(quoted(script), script), *words[self.script + 1 :]))

    # ------------------------------------------------------------ what the server is given besides flags

    def container(self, name: str, value: str) -> Command | None:
        """The command with this variable given to the container that it runs; None where it runs none."""
        new = ("--env", f"{name}={value}")
        at = _verb(self.words[: self.start])
        if at is not None:
            return self.replaced(at + 1, at + 1, new)
        at = None if self.script is None else _verb(self.command.words)
        if at is None:
            return None
        words = self.command.words
        return Command((*words[: at + 1], *(word(text) for text in new), *words[at + 1 :]))

    @property
    def contained(self) -> bool:
        """Whether it runs in a container: the unit's own variables do not get there."""
        return _verb(self.words[: self.start]) is not None or _verb(self.command.words) is not None

    @property
    def new_environment(self) -> str:
        """What throws the unit's variables away before the server starts, '' where nothing does."""
        before = self.command.words if self.script is not None else self.words[: self.start]
        names = [_base(item) for item in before]
        found = next((name for name in names if name in NEW_ENVIRONMENT), "")
        if not found and "env" in names:
            after = names[names.index("env") + 1 :]
            found = "env -i" if {"-i", "-", "--ignore-environment"} & set(after[:1]) else ""
        return found

    def given(self, name: str) -> tuple[Word, ...]:
        """The words that set this variable for the server, in the order of the command."""
        outer = self.words[: self.start] if self.script is None else self.command.words[: self.script]
        inner = () if self.script is None else (*self.exported, *self.words[: self.start])
        return tuple(item for words in (outer, inner) for at, item in enumerate(words) if _gives(words, at, name))


def find(commands: tuple[Command, ...]) -> Launch:
    """The start of SGLang. Raises Refused, with what this unit starts instead, where it cannot be edited."""
    if not commands:
        raise Refused("the unit has no ExecStart= command: nothing to edit")
    why, starts = "", []
    for index, command in enumerate(commands):
        try:
            found = _direct(index, command) or _scripted(index, command)
        except Refused as reason:
            why = str(reason)
            continue
        if found is not None:
            starts.append(found)
    if len(starts) > 1:
        raise Refused("the unit starts SGLang in several ExecStart= lines")
    if starts:
        return starts[0]
    raise Refused(why or _instead(commands))


def interpreter(launch: Launch) -> str:
    """The program beside which SGLang is installed, as written; '' where that is inside a container."""
    if launch.contained:
        return ""
    programs = [
        item.literal.lstrip(PREFIXES) for item in launch.words[: launch.start] if _PROGRAM.fullmatch(_base(item))
    ]
    return programs[-1] if programs else launch.command.program


def _direct(index: int, command: Command) -> Launch | None:
    texts = [item.text for item in command.words]
    if command.prefix:
        texts[0] = command.program
        if "@" in command.prefix and len(texts) > 1:
            texts[1] = command.program  # the name it is given; what is started stands before it
    start = _start(texts)
    if start is None:
        return None
    elsewhere = {text.rsplit("/", 1)[-1] for text in texts[:start]} & ELSEWHERE
    if elsewhere:
        raise Refused(f"{elsewhere.pop()} starts SGLang, outside of this unit's own processes")
    return Launch(index, command, command.words, start, texts[start - 1] == "serve")


def _scripted(index: int, command: Command) -> Launch | None:
    at = _script(command)
    if at is None:
        return None
    program, item = _base(command.words[at - 1]), command.words[at]
    program = next((_base(before) for before in command.words[:at] if _base(before) in _SHELLS), program)
    if "sglang" not in item.text:
        return None
    if ":" in command.prefix:
        raise Refused(f"the prefix ':' changes what $ means in the script of {program}")
    found = []
    parts = simple_commands(item.text)
    for place, words in enumerate(parts):
        start = _start([inner.text for inner in words])
        if start is not None:
            before = tuple(inner for part in parts[:place] for inner in part if part[0].text == "export")
            found.append(Launch(index, command, words, start, words[start - 1].text == "serve", at, before))
    if len(found) > 1:
        raise Refused(f"the script of {program} starts SGLang in several places")
    if not found:
        raise Refused(f"the script of {program} starts SGLang in a way that is not understood")
    return found[0]


def _script(command: Command) -> int | None:
    """The word that a shell is given to run as a script."""
    words = command.words
    for at in range(len(words)):
        name = _base(words[at]) if at else command.program.rsplit("/", 1)[-1]
        if name not in _SHELLS | _SCRIPT_TAKERS:
            continue
        for place in range(at + 1, len(words) - 1):
            text = words[place].text
            if _SCRIPT_OPTION.fullmatch(text) or text == "--command":
                return place + 1
            option = text.startswith(("-", "+")) or words[place - 1].text in ("-o", "+o", "-O", "+O")
            if name in _SHELLS and not option:
                break
    return None


def _start(texts: list[str]) -> int | None:
    """The place behind the words that start the server."""
    for at, text in enumerate(texts):
        previous = texts[at - 1] if at else ""
        if _MODULE_OPTION.fullmatch(previous) and text in _MODULES:
            if text == "sglang.launch_server":
                return at + 1
            if texts[at + 1 : at + 2] == ["serve"]:
                return at + 2
        if text == "-msglang.launch_server" or (at and text.endswith("sglang/launch_server.py")):
            return at + 1
        if text == "serve" and previous.rsplit("/", 1)[-1] == "sglang":
            return at + 1
    return None


def _gives(words: tuple[Word, ...], at: int, name: str) -> bool:
    found = _GIVEN.fullmatch(words[at].text)
    if found is None:  # handed through to a container: `-e NAME`
        return words[at].text == name and at > 0 and words[at - 1].text in ("-e", "--env")
    return found["name"] == name


def _optioned(words: tuple[Word, ...], at: int) -> int:
    return at - 1 if at and words[at - 1].text in ("-e", "--env") else at


def _verb(words: tuple[Word, ...]) -> int | None:
    """The word `run` or `exec` of a container's engine."""
    for at, item in enumerate(words):
        if _base(item) in ENGINES:
            verbs = (place for place in range(at + 1, len(words)) if words[place].text in ("run", "exec", "create"))
            return next(verbs, None)
    return None


def _instead(commands: tuple[Command, ...]) -> str:
    command = commands[0]
    program = command.program.rsplit("/", 1)[-1]
    words = [item.text for item in command.words]
    if any(text in ROUTERS for one in commands for text in [item.text for item in one.words]):
        return "this unit starts the SGLang router, not a server: the server's flags have no place in it"
    if program in ENGINES and "compose" in words:
        return f"{program} compose starts SGLang from its own file (docker-compose.yml or what -f names)"
    if program in ENGINES and "start" in words:
        name = words[-1]
        return f"container {name} keeps the flags that it was made with ({program} run or create), make it anew"
    if program in ENGINES:
        return f"{program} runs the image with its own entrypoint, which starts SGLang"
    if program in ELSEWHERE:
        return f"{program} starts SGLang, outside of this unit's own processes"
    if program in _SHELLS and len(words) > 1:
        return f"{words[-1] if words[1].startswith('-') else words[1]} starts SGLang, a script of its own"
    return f"{command.program} starts SGLang, not the unit itself"


def _base(item: Word) -> str:
    """A program's name. Prefixes go only before a path: words such as `-e` begin like one."""
    text = item.text.lstrip(PREFIXES) if item.text.lstrip(PREFIXES).startswith("/") else item.text
    return text.rsplit("/", 1)[-1]
