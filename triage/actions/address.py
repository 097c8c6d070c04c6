"""Where a server listens, by its command line: what may be asked there, and as whom.

In: an argv as the process gets it, with variables filled in. Out: `Endpoint`. Called by `readiness`. Pure. Where the
words do not tell the port (a shell's own variable, "$@", a container that publishes nothing) the kind is UNKNOWN: a
port that is guessed may be somebody else's server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from triage.frozen import frozen
from triage.model import EMPTY, Refused
from triage.units.flags import as_written, long_name, started, tokens
from triage.units.launch import ELSEWHERE, ENGINES, NEW_ENVIRONMENT, ROUTERS, Launch
from triage.units.shellwords import simple_commands

_DEFAULT = "30000"
# What is looked for. SGLang starts only if an abbreviation is a prefix of one flag alone: so it is that one.
ASKED = (
    "--host",
    "--port",
    "--api-key",
    "--served-model-name",
    "--ssl-certfile",
    "--ssl-keyfile",
    "--node-rank",
    "--disaggregation-mode",
    "--is-embedding",
    "--load-format",
)
# Commands before the server that set no variable. After any other nobody knows what one holds.
_HARMLESS = frozenset(
    ("cd", "echo", "exec", "export", "mkdir", "nvidia-smi", "set", "sleep", "test", "trap", "true", "ulimit")
)
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=.*", re.S)
_HOST_NETWORK = re.compile(r"--net(?:work)?[= ]host")


class Kind(StrEnum):
    """What the server is for, which decides what can be asked of it."""

    GENERATION = "generation"
    EMBEDDING = "embedding"
    ROUTER = "router"
    HALF = "half"  # prefill or decode alone: a whole answer needs its partner
    LOCKED = "locked"  # wants a key that is not taken from where it lies
    FOLLOWER = "follower"  # node rank above 0: serves no requests
    UNKNOWN = "unknown"  # where it listens is not known


@frozen
class Endpoint:
    kind: Kind
    host: str = "127.0.0.1"
    port: int = 30000
    tls: bool = False
    key: str = ""
    model: str = ""  # as served; '' asks the server
    note: str = ""  # what cannot be checked here, and why
    made_up: bool = False  # weights by chance: no answer of it can be known
    inside: bool = True  # its processes stay in the unit's cgroup: not so in a container or after sudo
    seen: bool = False  # taken from the process that runs, not from the unit: asked only where that one listens

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def endpoint(
    argv: tuple[str, ...], variables: Mapping[str, str] = EMPTY, filed: Mapping[str, str] | None = None
) -> Endpoint:
    """Where this command line listens. `argv` is what the process gets: variables and specifiers filled in.

    `variables` are those of the process, for a shell's script that holds `$PORT` yet; `filed` the flags of the
    `--config` file, None where that could not be read. A key is not taken from it: whoever may write that file could
    make root read another's."""
    try:
        launch = started(argv)
    except Refused:
        launch = None
    if launch is None and not any(word in ROUTERS for word in argv):
        note = "the command is not understood: whether it serves cannot be asked"
        return Endpoint(Kind.UNKNOWN, note=note, inside=not _leaves(argv))
    words, untold = _words(launch, variables) if launch else (argv, "")
    options = _options(words)
    outer = _before(launch) if launch else argv
    contained = launch.contained if launch else _engine(argv)
    keyed = "--api-key" in (filed or {}) and "--api-key" not in options
    options = {**{_whole(name): value for name, value in (filed or {}).items()}, **options}
    host, port = options.get("--host", "127.0.0.1"), options.get("--port", _DEFAULT)
    if contained:
        host, port, unheard = _outside(outer, host, port)
        untold = untold or unheard
    if not port.isdecimal() or not 0 < int(port) < 65536:
        untold = untold or "its port does not stand in the command"
    kind, note = _kind(options, launch is not None)
    if keyed and kind in (Kind.GENERATION, Kind.EMBEDDING):
        kind, note = Kind.LOCKED, f"its key stands in {options.get('--config')}: its health is asked, no generation"
    if "--config" in options and filed is None and "--port" not in options:
        untold = untold or "flags come from --config too, which cannot be read: a port set there is not seen"
    inside = not contained and not (launch.new_environment in NEW_ENVIRONMENT if launch else _leaves(argv))
    if untold and kind is not Kind.FOLLOWER:
        instead = "the port is taken from the process that runs, else " if inside else ""
        kind, port, note = Kind.UNKNOWN, "0", f"{untold}: {instead}the proof sends no request"
    return Endpoint(
        kind,
        {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host),  # noqa: S104
        int(port),
        "--ssl-certfile" in options or "--ssl-keyfile" in options,
        "" if keyed else options.get("--api-key", ""),
        options.get("--served-model-name", ""),
        note,
        options.get("--load-format") == "dummy",
        inside,
    )


def _words(launch: Launch, variables: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The words behind the server's start; and why they may not be all, '' where they are."""
    if launch.script is None:
        return tuple(item.literal for item in launch.words[launch.start :]), ""
    known = _known(launch, variables)
    given = tokens(launch, as_written(known))
    odd = next((token.word.text for token in given if token.word.opaque), "")
    untold = f"the shell puts something in for {odd.replace('$$', '$')[:60]}" if odd else ""
    return tuple("" if token.word.opaque else token.word.literal for token in given), untold


def _known(launch: Launch, variables: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that still hold what the manager gave when the script comes to the server."""
    assert launch.script is not None
    gone: set[str] = set()
    for part in simple_commands(launch.command.words[launch.script].text):
        words = [item.text for item in part]
        if words == [item.text for item in launch.words]:
            break
        assigned = [found[1] for word in words if (found := _ASSIGNED.fullmatch(word))]
        gone.update(assigned)
        if words[0] not in _HARMLESS and not _ASSIGNED.fullmatch(words[0]):
            return EMPTY
    return {name: value for name, value in variables.items() if name not in gone}


def _options(words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        name = long_name(word)
        if name:
            following = words[at + 1] if at + 1 < len(words) else ""
            _, equals, joined = word.partition("=")
            found[_whole(name)] = joined if equals else "" if following.startswith("--") else following
    return found


def _whole(name: str) -> str:
    """An abbreviation's flag, among those that are asked for."""
    if name in ASKED:
        return name
    meant = [flag for flag in ASKED if flag.startswith(name)]
    return meant[0] if len(meant) == 1 else name


# ---------------------------------------------------------------- out of the unit


def _before(launch: Launch) -> tuple[str, ...]:
    """All words that stand before the server: in the script, around it."""
    outer = () if launch.script is None else launch.command.words
    return tuple(item.literal for item in (*outer, *launch.words[: launch.start]))


def _engine(argv: tuple[str, ...]) -> bool:
    return any(word.rsplit("/", 1)[-1] in ENGINES for word in argv)


def _leaves(argv: tuple[str, ...]) -> bool:
    """Whether any word, of a script too, names a program whose children are not the unit's."""
    return any(
        word.rsplit("/", 1)[-1] in ENGINES | NEW_ENVIRONMENT | ELSEWHERE for text in argv for word in text.split()
    )


def _outside(words: tuple[str, ...], host: str, port: str) -> tuple[str, str, str]:
    """Where the host has a container's port: host, port, and why that is not known ('' where it is)."""
    if any(
        _HOST_NETWORK.fullmatch(text) for at, word in enumerate(words) for text in (word, " ".join(words[at : at + 2]))
    ):
        return host, port, ""
    for at, word in enumerate(words):
        value = words[at + 1] if word in ("-p", "--publish") and at + 1 < len(words) else ""
        if word.startswith("--publish="):
            value = word.partition("=")[2]
        elif word.startswith("-p") and word[2:3].isdecimal():
            value = word[2:]
        address, _, inner = value.partition("/")[0].rpartition(":")
        host_ip, _, outer = address.rpartition(":")
        first, last = _range(inner)
        begin, _ = _range(outer)
        if port.isdecimal() and first <= int(port) <= last and begin:
            return host_ip.strip("[]"), str(begin + int(port) - first), ""
    return host, port, "the container publishes no port that is written down"


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not first.isdecimal() or (last and not last.isdecimal()):
        return 0, -1
    return int(first), int(last or first)


def _kind(options: Mapping[str, str], server: bool) -> tuple[Kind, str]:
    if not server:
        return Kind.ROUTER, "a router: its health is asked, the workers behind it are not"
    if options.get("--node-rank", "0") not in ("", "0"):
        return (
            Kind.FOLLOWER,
            f"node rank {options['--node-rank']} serves no requests: only that it keeps running is checked",
        )
    mode = options.get("--disaggregation-mode", "null")
    if mode in ("prefill", "decode", "encode"):
        return Kind.HALF, f"a {mode} server answers only together with its partner: its health is asked, no generation"
    if "--is-embedding" in options:
        return Kind.EMBEDDING, "an embedding server: one embedding is asked instead of a generation"
    return Kind.GENERATION, ""
