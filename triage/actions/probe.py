"""One short request to a server, as a client of it would send it.

In: the server's command line as the manager holds it, with variables filled in. Out: `Endpoint` (where and as whom to
ask) and `Answer` (did it answer, what, how long it took). Called by `readiness`, `triage verify`. Never more than one
request in flight, nothing is retried after a time-out: piled-up probes have themselves crashed schedulers.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from triage.model import EMPTY
from triage.units.flags import long_name, served
from triage.units.launch import ROUTERS

_LIMIT = 1 << 20  # bytes of an answer
_PROMPT = "Reply with the single word: ready"


class Kind(StrEnum):
    """What the server is for, which decides what can be asked of it."""

    GENERATION = "generation"
    EMBEDDING = "embedding"
    ROUTER = "router"
    HALF = "half"  # prefill or decode alone: a whole answer needs its partner
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


# ---------------------------------------------------------------- where to ask


def endpoint(argv: tuple[str, ...], variables: Mapping[str, str] = EMPTY) -> Endpoint:
    """Where this command line listens. `argv` is what the process gets: variables and specifiers filled in.

    `variables` are those of the process, for a shell's script that holds `$PORT` yet."""
    published = _published(argv)
    options, server = _options(served(argv, variables))
    if not server and not any(word in ROUTERS for word in argv):
        return Endpoint(Kind.UNKNOWN, note="the command is not understood: whether it serves cannot be asked")
    host = options.get("--host", "127.0.0.1")
    port = options.get("--port", "30000")
    kind, note = _kind(options, server)
    if "--config" in options and "--port" not in options:
        note = note or "flags come from --config too: a port set there is not seen"
    return Endpoint(
        kind,
        {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host),  # noqa: S104
        published.get(port, int(port) if port.isdecimal() and int(port) < 65536 else 30000),
        "--ssl-certfile" in options or "--ssl-keyfile" in options,
        options.get("--api-key", ""),
        options.get("--served-model-name", ""),
        note,
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


def probe(at: Endpoint, timeout: float, alive: Callable[[], str] = lambda: "") -> Answer:
    """One short generation (or what the kind allows), patient with a first JIT compile.

    `alive` is asked every second and says why the server is gone, '' while it is not: a dead scheduler must not cost
    the whole timeout.
    """
    if at.kind in (Kind.FOLLOWER, Kind.UNKNOWN):
        return Answer(True, at.note, proved=False)
    started = time.monotonic()
    outcome: list[Answer] = []
    asker = _Asker(at, timeout)
    thread = threading.Thread(target=lambda: outcome.append(asker.run()), daemon=True)
    thread.start()
    gone = ""
    while thread.is_alive() and time.monotonic() - started < timeout and not gone:
        thread.join(1.0)
        gone = alive() if thread.is_alive() else ""
    seconds = time.monotonic() - started
    if thread.is_alive():
        asker.hang_up()
        return Answer(False, gone or f"no answer to the probe in {timeout:.0f} s", seconds)
    answer = outcome[0] if outcome else Answer(False, "the probe itself failed")
    return Answer(answer.ok, answer.text, seconds, answer.proved)


class _Asker:
    def __init__(self, at: Endpoint, timeout: float) -> None:
        self.at = at
        self.timeout = timeout
        self.conversation: Conversation | None = None

    def hang_up(self) -> None:
        if self.conversation is not None:
            self.conversation.hang_up()

    def run(self) -> Answer:
        try:
            return self._run()
        except TimeoutError:
            return Answer(False, f"no answer to the probe in {self.timeout:.0f} s")
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, IndexError) as error:
            return Answer(False, f"the probe got no proper answer: {_why(error)}")

    def _run(self) -> Answer:
        status, body = self._ask("GET", "/v1/models")
        if status != 200:
            return Answer(False, f"/v1/models says {status}")
        served = [str(item["id"]) for item in json.loads(body)["data"]]
        if self.at.kind in (Kind.ROUTER, Kind.HALF):
            return Answer(True, self.at.note, proved=False)
        if self.at.model and self.at.model not in served:
            return Answer(
                False, f"{self.at.url} serves {', '.join(served)[:100]}, not {self.at.model}: another server?"
            )
        model = self.at.model or (served[0] if served else "")
        if self.at.kind is Kind.EMBEDDING:
            return self._embedding(model)
        return self._generation(model)

    def _embedding(self, model: str) -> Answer:
        status, body = self._ask("POST", "/v1/embeddings", {"model": model, "input": _PROMPT})
        if status != 200:
            return Answer(False, f"/v1/embeddings says {status}: {_short(body)}")
        vector = json.loads(body)["data"][0]["embedding"]
        return Answer(bool(vector), f"an embedding of {len(vector)} numbers")

    def _generation(self, model: str) -> Answer:
        common = {"model": model, "temperature": 0, "max_tokens": 16, "stream": False}
        chat = {**common, "messages": [{"role": "user", "content": _PROMPT}]}
        status, body = self._ask("POST", "/v1/chat/completions", chat)
        if status in (400, 404, 405, 422):  # a model without a chat template still completes
            status, body = self._ask("POST", "/v1/completions", {**common, "prompt": _PROMPT})
        if status != 200:
            return Answer(False, f"generation says {status}: {_short(body)}")
        said = _said(json.loads(body)["choices"][0])
        if not said.strip():
            return Answer(False, "the server answered 200 with an empty text")
        return Answer(True, f"answered {said.strip()[:60]!r}")

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        self.conversation = Conversation(self.at, self.timeout)
        return self.conversation.ask(method, path, body)


def _said(choice: Mapping[str, Any]) -> str:
    message = choice.get("message") or {}
    parts = (message.get("content"), message.get("reasoning_content"), choice.get("text"))
    return "".join(part for part in parts if isinstance(part, str))


def _short(body: bytes) -> str:
    return " ".join(body[:200].decode("utf-8", "replace").split())


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
