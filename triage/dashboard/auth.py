"""Who may change something: the token, the session cookie made of it, and the checks on a request's headers.

In go header values and the token file; out come yes, no, or the reason why not. Reading needs nothing on loopback.
Whatever changes something needs the token of the link that is printed at start: as `Authorization: Bearer`, or as a
cookie that `/login` hands out for it. Called by `guard` (every request) and `pages`; never logs a token, keeps no
state but the token itself: sessions are signed with it, so a new token ends them all.

Other users and other web servers share this loopback, and cookies do not know ports. So besides the cookie a form needs
the CSRF word of its session, and Host, Origin and Sec-Fetch-Site must say that the page is ours (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from triage.frozen import frozen
from triage.model import InputError

SESSION_SECONDS = 12 * 3600  # one night shift
TOKEN_FILE = "web-token"  # noqa: S105 - the file's name
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43,128}")
_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def check_bind(host: str) -> None:
    """Only loopback until a login exists. Raises InputError."""
    if host == "localhost":
        return
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise InputError(
            f"the dashboard binds to loopback only, not to {host!r}: use 127.0.0.1, ::1 or localhost, "
            "and reach it from elsewhere through an SSH tunnel (ssh -L PORT:127.0.0.1:PORT HOST)"
        )


def load_token(folder: Path) -> str:
    """The token of this runtime folder, made on first use: 32 random bytes, mode 0640, never through a link.

    A token that was there before stays, so that a restart does not sign everyone out.
    Raises InputError when the file is not ours alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TOKEN_FILE
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return _new_token(path)
    except OSError as error:
        raise InputError(f"cannot read the dashboard's token {path}: {error.strerror}; remove the file") from error
    with os.fdopen(fd, encoding="ascii", errors="replace") as file:
        facts = os.fstat(file.fileno())
        token = file.read(256).strip()
    foreign = facts.st_uid != os.geteuid() or not stat.S_ISREG(facts.st_mode) or stat.S_IMODE(facts.st_mode) & 0o027
    if foreign or not _TOKEN.fullmatch(token):
        raise InputError(
            f"the dashboard's token file {path} was not made by triage (owner, mode or content): remove it"
        )
    return token


def _new_token(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    # Whole or not at all, and never into a file or link somebody else put there.
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.unlink(missing_ok=True)
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o640)
        file.write(token + "\n")
    staged.rename(path)
    return token


def login_link(host: str, port: int, token: str) -> str:
    """The link printed at start; opening it signs the browser in."""
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{shown}:{port}/login?token={token}"


@frozen
class Session:
    """A signed-in browser. `csrf` is the word its forms carry."""

    name: str
    csrf: str


@frozen
class Keeper:
    """Compares tokens and signs sessions. One per process."""

    token: str
    port: int = 0

    @property
    def cookie(self) -> str:
        # Browsers keep one cookie jar for all ports of a host: two triages must not sign each other out.
        return f"triage_{self.port}" if self.port else "triage_session"

    def accepts(self, token: str) -> bool:
        """Constant time, whatever was sent."""
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self.token.encode())

    def bearer(self, authorization: str) -> bool:
        """True for `Authorization: Bearer TOKEN`."""
        scheme, _, value = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.accepts(value.strip())

    def _sign(self, what: str, text: str) -> str:
        return hmac.new(self.token.encode(), f"{what}\0{text}".encode(), hashlib.sha256).hexdigest()

    def issue(self, now: float) -> str:
        """A new session cookie's value: random name, end (seconds since 1970), signature."""
        body = f"{secrets.token_hex(16)}.{int(now) + SESSION_SECONDS}"
        return f"{body}.{self._sign('session', body)}"

    def session(self, cookie: str, now: float) -> Session | None:
        """The session of a cookie, or None when it is forged, cut or over."""
        parts = cookie.split(".")
        if len(parts) != 3:
            return None
        name, end, signature = parts
        if not hmac.compare_digest(
            signature.encode("utf-8", "surrogateescape"), self._sign("session", f"{name}.{end}").encode()
        ):
            return None
        if int(end) <= now:
            return None
        return Session(name, self._sign("csrf", name))


def host_allowed(host: str) -> bool:
    """The Host header names this loopback; any port, since an SSH tunnel may show another one."""
    name = re.sub(r":[0-9]{1,5}$", "", host.strip().lower())
    return name in _HOSTS


def foreign_origin(headers: Mapping[str, str]) -> str | None:
    """Why an unsafe request does not come from our own page, or None. A client that is no browser sends neither header.

    `Origin: null` is what browsers send for a form of a page under `Referrer-Policy: no-referrer`, and what a sandboxed
    frame of a stranger sends too; Sec-Fetch-Site, which no page can forge, tells the two apart.
    """
    site = headers.get("sec-fetch-site", "")
    if site not in ("", "same-origin"):
        return f"the request came from another site (Sec-Fetch-Site: {site})"
    origin = headers.get("origin", "")
    host = headers.get("host", "").strip().lower()
    if origin == "null" and site == "same-origin":
        return None
    if origin and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return "the request came from a page of another origin"
    return None


def local_path(path: str) -> str:
    """Where to go after signing in: a path of our own, never another site."""
    return path if re.fullmatch(r"/(?![/\\])[\w\-./?=&%,]*", path, re.ASCII) else "/"
