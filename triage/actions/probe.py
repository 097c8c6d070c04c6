"""One short request to a server, as a client of it would send it.

In: an `Endpoint` (where and as whom to ask). Out: `Answer` (did it answer, what, how long it took). Called by
`readiness`, `triage verify` and the soak. Never more than one request in flight, nothing is retried after a time-out:
piled-up probes have crashed schedulers.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from triage.actions.address import Endpoint, Kind
from triage.actions.questions import COUNT, EMBEDDINGS, READY, SPEED, Question, question, read
from triage.frozen import frozen

_LIMIT = 1 << 20  # bytes of an answer


@frozen
class Answer:
    ok: bool
    text: str
    seconds: float = 0.0
    proved: bool = True  # False: all that could be checked was fine, but nothing was generated
    status: int = 0  # of HTTP; 0 where none came
    hung: bool = False  # cancelled after the time was up
    unknown: bool = False  # proper words, but not the answer that is known
    speed: float = 0.0  # tokens/s, where the question allows to tell
    asked: str = ""  # kind and URL of what was asked, '' where nothing was


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
