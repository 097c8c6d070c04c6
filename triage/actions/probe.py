"""One short request to a server, as a client of it would send it.

In: the server's command line as the manager holds it, with variables filled in. Out: `Endpoint` (where and as whom to
ask) and `Answer` (did it answer, what, how long it took). Called by `readiness`, `triage verify` and the soak. Never
more than one request in flight, nothing is retried after a time-out: piled-up probes have crashed schedulers.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from triage.actions.questions import COUNT, EMBEDDINGS, READY, SPEED, Question, question, read
from triage.model import EMPTY
from triage.units.flags import long_name, served
from triage.units.launch import ROUTERS

_LIMIT = 1 << 20  # bytes of an answer


class Kind(StrEnum):
    """What the server is for, which decides what can be asked of it."""

    GENERATION = "generation"
    EMBEDDING = "embedding"
    ROUTER = "router"
    HALF = "half"  # prefill or decode alone: a whole answer needs its partner
    LOCKED = "locked"  # wants a key that is not taken from where it lies
    FOLLOWER = "follower"  # node rank above 0: serves no requests
    UNKNOWN = "unknown"  # the command is not understood


@dataclass(frozen=True, slots=True)
class Endpoint:
    kind: Kind
    host: str = "127.0.0.1"
    port: int = 30000
    tls: bool = False
    key: str = ""
    model: str = ""  # as served; '' asks the server
    note: str = ""  # what cannot be checked here, and why
    made_up: bool = False  # weights by chance: no answer of it can be known

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    ok: bool
    text: str
    seconds: float = 0.0
    proved: bool = True  # False: all that could be checked was fine, but nothing was generated
    status: int = 0  # of HTTP; 0 where none came
    hung: bool = False  # cancelled after the time was up
    unknown: bool = False  # proper words, but not the answer that is known
    speed: float = 0.0  # tokens/s, where the question allows to tell


# ---------------------------------------------------------------- where to ask


def endpoint(
    argv: tuple[str, ...], variables: Mapping[str, str] = EMPTY, filed: Mapping[str, str] | None = None
) -> Endpoint:
    """Where this command line listens. `argv` is what the process gets: variables and specifiers filled in.

    `variables` are those of the process, for a shell's script that holds `$PORT` yet; `filed` the flags of the
    `--config` file, None where that could not be read. A key is not taken from it: whoever may write that file could
    make root read another's."""
    published = _published(argv)
    options, server = _options(served(argv, variables))
    keyed = "--api-key" in (filed or {}) and "--api-key" not in options
    options = {**(filed or {}), **options}
    if not server and not any(word in ROUTERS for word in argv):
        return Endpoint(Kind.UNKNOWN, note="the command is not understood: whether it serves cannot be asked")
    host = options.get("--host", "127.0.0.1")
    port = options.get("--port", "30000")
    kind, note = _kind(options, server)
    if keyed and kind in (Kind.GENERATION, Kind.EMBEDDING):
        kind, note = Kind.LOCKED, f"its key stands in {options.get('--config')}: its health is asked, no generation"
    if "--config" in options and filed is None and "--port" not in options:
        note = note or "flags come from --config too, which cannot be read: a port set there is not seen"
    return Endpoint(
        kind,
        {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host),  # noqa: S104
        published.get(port, int(port) if port.isdecimal() and int(port) < 65536 else 30000),
        "--ssl-certfile" in options or "--ssl-keyfile" in options,
        "" if keyed else options.get("--api-key", ""),
        options.get("--served-model-name", ""),
        note,
        options.get("--load-format") == "dummy",
    )


def _options(argv: tuple[str, ...]) -> tuple[dict[str, str], bool]:
    server = any(
        word == "sglang.launch_server"
        or word.endswith("sglang/launch_server.py")
        or (word == "serve" and argv[max(at - 1, 0)].rsplit("/", 1)[-1] == "sglang")
        for at, word in enumerate(argv)
    )
    found: dict[str, str] = {}
    for at, word in enumerate(argv):
        name = long_name(word)
        if name:
            following = argv[at + 1] if at + 1 < len(argv) else ""
            _, equals, joined = word.partition("=")
            found[name] = joined if equals else "" if following.startswith("--") else following
    return found, server


def _published(argv: tuple[str, ...]) -> dict[str, int]:
    """A container's ports and where the host has them: `-p 127.0.0.1:8000:30000`."""
    found = {}
    for option, value in zip(argv, (*argv[1:], ""), strict=True):
        text = (
            option.partition("=")[2]
            if option.startswith("--publish=")
            else value
            if option in ("-p", "--publish")
            else ""
        )
        parts = text.partition("/")[0].split(":")
        if len(parts) > 1 and parts[-1].isdecimal() and parts[-2].isdecimal() and int(parts[-2]) < 65536:
            found[parts[-1]] = int(parts[-2])
    return found


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


# ---------------------------------------------------------------- asking


class Conversation:
    """One connection for one question; `hang_up` from another thread ends it."""

    def __init__(self, at: Endpoint, timeout: float) -> None:
        self.connection: http.client.HTTPConnection
        if at.tls:
            # The server's own certificate names a host, we ask the loopback; what matters is that it answers.
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.connection = http.client.HTTPSConnection(at.host, at.port, timeout=timeout, context=context)
        else:
            self.connection = http.client.HTTPConnection(at.host, at.port, timeout=timeout)
        self.key = at.key

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """(status, body). Raises OSError or http.client.HTTPException as they come."""
        headers = {"Content-Type": "application/json", "User-Agent": "triage-probe"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            self.connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self.connection.getresponse()
            return response.status, response.read(_LIMIT)
        finally:
            self.connection.close()

    def hang_up(self) -> None:
        sock = self.connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def healthy(at: Endpoint, timeout: float = 10) -> tuple[bool, str]:
    """Whether the server says it is up. A plain GET without the key; it may lie, so the probe follows."""
    try:
        status, _ = Conversation(Endpoint(at.kind, at.host, at.port, at.tls), timeout).ask("GET", "/health")
    except (OSError, http.client.HTTPException) as error:
        return False, f"{at.url} does not answer yet ({_why(error)})"
    if status == 404:
        return True, f"{at.url} answers, but knows no /health"
    return status == 200, f"/health says {status}"


class Talk:
    """One question at a time to one server; `hang_up` from another thread ends the one that is asked."""

    def __init__(self, at: Endpoint, timeout: float) -> None:
        self.at = at
        self.timeout = timeout
        self._model = at.model
        self._conversation: Conversation | None = None

    def hang_up(self) -> None:
        if self._conversation is not None:
            self._conversation.hang_up()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        self._conversation = Conversation(self.at, self.timeout)
        return self._conversation.ask(method, path, body)

    def model(self) -> Answer:
        """The served model's name; not ok where the server has none, or is another server."""
        status, body = self.ask("GET", "/v1/models")
        if status != 200:
            return Answer(False, f"/v1/models says {status}", status=status)
        served = [str(item["id"]) for item in json.loads(body)["data"]]
        if self.at.kind in (Kind.ROUTER, Kind.HALF):
            return Answer(True, "")
        if self.at.model and self.at.model not in served:
            text = f"{self.at.url} serves {', '.join(served)[:100]}, not {self.at.model}: another server?"
            return Answer(False, text)
        return Answer(True, self.at.model or (served[0] if served else ""))

    def put(self, asked: Question, model: str) -> Answer:
        """One question to that model, judged."""
        started = time.monotonic()
        status, body = self.ask("POST", asked.path, {"model": model, **asked.body})
        seconds = time.monotonic() - started
        if status != 200:
            return Answer(False, f"{asked.path} says {status}: {_short(body)}", seconds, status=status)
        reply = read(asked, body)
        if reply.wrong:
            return Answer(False, reply.wrong, seconds, status=status)
        told = reply.said if asked.path == EMBEDDINGS else f"answered {reply.said[:60]!r}"
        speed = reply.tokens / seconds if asked.timed and seconds > 0 else 0.0
        return Answer(True, told, seconds, status=status, unknown=reply.unknown, speed=speed)


def converse(at: Endpoint, timeout: float, say: Callable[[Talk], Answer], alive: Callable[[], str]) -> Answer:
    """`say` in a thread of its own, cancelled after `timeout` seconds: the server sees the connection close.

    `alive` is asked every second and says why the server is gone, '' while it is not: a dead scheduler must not cost
    the whole timeout.
    """
    started = time.monotonic()
    outcome: list[Answer] = []
    talk = Talk(at, timeout)
    thread = threading.Thread(target=lambda: outcome.append(_said(talk, say)), daemon=True)
    thread.start()
    gone = ""
    while thread.is_alive() and time.monotonic() - started < timeout and not gone:
        thread.join(1.0)
        gone = alive() if thread.is_alive() else ""
    seconds = time.monotonic() - started
    if thread.is_alive():
        talk.hang_up()
        return Answer(False, gone or f"no answer to the probe in {timeout:.0f} s", seconds, hung=not gone)
    answer = outcome[0] if outcome else Answer(False, "the probe itself failed")
    return replace(answer, seconds=seconds)


def _said(talk: Talk, say: Callable[[Talk], Answer]) -> Answer:
    try:
        return say(talk)
    except TimeoutError:
        return Answer(False, f"no answer to the probe in {talk.timeout:.0f} s", hung=True)
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, IndexError) as error:
        return Answer(False, f"the probe got no proper answer: {_why(error)}")


def probe(at: Endpoint, timeout: float, alive: Callable[[], str] = lambda: "") -> Answer:
    """One short generation with a known answer (or what the kind allows), patient with a first JIT compile."""
    if at.kind in (Kind.FOLLOWER, Kind.LOCKED, Kind.UNKNOWN):
        return Answer(True, at.note, proved=False)
    return converse(at, timeout, _first_words, alive)


def speed(at: Endpoint, timeout: float) -> float:
    """Tokens per second of one request, 0 where it gets no answer."""
    if at.kind is not Kind.GENERATION:
        return 0.0

    def say(talk: Talk) -> Answer:
        model = talk.model()
        return talk.put(SPEED, model.text) if model.ok else model

    return converse(at, timeout, say, lambda: "").speed


def _first_words(talk: Talk) -> Answer:
    model = talk.model()
    if not model.ok:
        return model
    if talk.at.kind in (Kind.ROUTER, Kind.HALF):
        return Answer(True, talk.at.note, proved=False)
    if talk.at.kind is Kind.EMBEDDING:
        return talk.put(question(0, embedding=True), model.text)
    answer = talk.put(READY, model.text)
    if (answer.ok and not answer.unknown) or answer.status not in (200, 400, 404, 405, 422):
        return answer
    if answer.status == 200 and not answer.ok:  # empty, garbage
        return answer
    # A model without a chat template still completes; and one that does not do as it is told can count.
    counted = talk.put(COUNT, model.text)
    if not counted.ok or not counted.unknown:
        return counted
    if talk.at.made_up:
        return replace(counted, text=f"{counted.text}; its weights are made up (--load-format dummy)")
    said = (answer if answer.status == 200 else counted).text
    return replace(counted, ok=False, text=f"{said}: none of the answers that are known")


def _short(body: bytes) -> str:
    return " ".join(body[:200].decode("utf-8", "replace").split())


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
