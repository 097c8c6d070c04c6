"""A receiver of webhooks on a real socket: remembers what came, answers as it is told, checks signatures by itself."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def type(self) -> str:
        return str(json.loads(self.body)["type"])

    def signed_by(self, secret: str) -> bool:
        """As a receiver checks it: by the written standard, not by the sender's code."""
        raw = base64.b64decode(secret.removeprefix("whsec_"))
        content = b".".join((self.id.encode(), self.headers["webhook-timestamp"].encode(), self.body))
        mark = base64.b64encode(hmac.new(raw, content, hashlib.sha256).digest()).decode()
        return f"v1,{mark}" in self.headers.get("webhook-signature", "").split(" ")


@dataclass
class Receiver:
    url: str = ""
    answers: list[int] = field(default_factory=list)  # one a request, then 200
    headers: dict[str, str] = field(default_factory=dict)
    got: list[Received] = field(default_factory=list)
    hold: threading.Event | None = None  # when set up, a request is not answered before it is set

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers["content-length"])
        body = handler.rfile.read(size)
        if len(body) < size:  # a sender that was killed in the middle: no receiver takes half a request for one
            return
        self.got.append(Received({name.lower(): value for name, value in handler.headers.items()}, body))
        if self.hold is not None:
            self.hold.wait(60)
        handler.send_response(self.answers.pop(0) if self.answers else 200)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the same, a moment later
            for name, value in {"content-length": "2", **self.headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(b"ok")


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    got = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.answer(self)

        def log_message(self, *values: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    got.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield got
    finally:
        if got.hold is not None:
            got.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
