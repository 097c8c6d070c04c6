"""The ways out of an alert: one `send()` each, which says whether it arrived and whether trying again makes sense.

In: a message of the outbox. Out: `Sent`. Called by the worker and by `triage alerts test`. A channel never retries by
itself, never follows a redirect (the receiver is who the settings name) and never raises for what a receiver does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Protocol

import httpx2

from triage import __version__
from triage.frozen import frozen
from triage.model import InputError
from triage.settings import Settings
from triage.settings import Webhook as WebhookSettings

PREFIX = "whsec_"
KEPT_CHARS = 200  # of an answer that says what is wrong


@frozen
class Message:
    """One event on its way. `id` and `body` are the same on every try."""

    id: str
    type: str
    body: str


@frozen
class Sent:
    """What became of one try. `permanent`: the receiver never wants it. `wait`: it asked for that many seconds."""

    ok: bool
    text: str
    permanent: bool = False
    wait: float | None = None


class Channel(Protocol):
    """What the worker needs of a way out."""

    @property
    def name(self) -> str: ...
    @property
    def events(self) -> frozenset[str]: ...
    def send(self, message: Message, now: int) -> Sent:
        """One try; `now` in microseconds UTC."""
        ...

    def close(self) -> None: ...


class Webhook:
    """Standard Webhooks 1.0: signed with every secret of its file, so that a receiver may change over at leisure."""

    def __init__(self, settings: WebhookSettings) -> None:
        self.name = settings.name
        self.events = frozenset(settings.events)
        self._url = settings.url
        self._secrets: Callable[[], tuple[str, ...]] = settings.secrets
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(settings.timeout_seconds, connect=min(5.0, settings.timeout_seconds)),
            follow_redirects=False,
            headers={"user-agent": f"triage/{__version__}", "content-type": "application/json"},
        )

    def send(self, message: Message, now: int) -> Sent:
        try:
            headers = signed(message, now // 1_000_000, self._secrets())
        except InputError as error:
            return Sent(False, str(error))
        try:
            with self._client.stream("POST", self._url, content=message.body.encode(), headers=headers) as response:
                text = f"{response.status_code} {response.reason_phrase}".strip()
                if response.is_success:
                    return Sent(True, text)
                # The rest of an answer is not worth waiting for: its sender may never end it.
                return Sent(False, text, permanent=response.status_code == 410, wait=_wait(response))
        except httpx2.TimeoutException:
            return Sent(False, "no answer in time")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return Sent(False, f"{type(error).__name__}: {error}"[:KEPT_CHARS])

    def close(self) -> None:
        self._client.close()


def open_channels(settings: Settings) -> tuple[Channel, ...]:
    """All that the settings name."""
    return tuple(Webhook(hook) for hook in settings.webhooks)


def signed(message: Message, seconds: int, secrets: tuple[str, ...]) -> dict[str, str]:
    """The three headers of Standard Webhooks; without a secret there is no signature, and receivers see so."""
    headers = {"webhook-id": message.id, "webhook-timestamp": str(seconds)}
    content = f"{message.id}.{seconds}.{message.body}".encode()
    marks = [base64.b64encode(hmac.digest(key(secret), content, hashlib.sha256)).decode() for secret in secrets]
    if marks:
        headers["webhook-signature"] = " ".join(f"v1,{mark}" for mark in marks)
    return headers


def key(secret: str) -> bytes:
    """The bytes of a secret in the standard's spelling: whsec_ and base64."""
    try:
        if not secret.startswith(PREFIX):
            raise ValueError
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raise InputError(
            "a webhook secret is not spelled whsec_ and base64: make one with "
            "`echo whsec_$(head -c 32 /dev/urandom | base64)`"
        ) from None


def _wait(response: httpx2.Response) -> float | None:
    after = response.headers.get("retry-after", "")
    return float(after) if after.isdecimal() and len(after) < 7 else None
