"""The dashboard under uvicorn: bind first, then tell the link, sign the manager's watchdog while it serves.

Called by `web` and the demo. The link holds the token that may change things, so it goes to the terminal or the
journal of the unit, and nowhere else.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI

from triage.model import InputError, Unreachable
from triage.notify import notify, watchdog_interval

GRACE = 3  # seconds that open streams have at the end
TICKS = 10  # a second, of uvicorn's main loop


def bound(host: str, port: int) -> socket.socket:
    """A listening socket, so that a taken port is one clear sentence and port 0 is a number before anything is told."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise Unreachable(
            f"cannot listen on {host}:{port} ({reason}): give another --port, or 0 for a free one"
        ) from None
    except OverflowError:
        listener.close()
        raise InputError(f"{port} is no port: give one from 0 to 65535") from None
    listener.listen(128)
    return listener


class Server(uvicorn.Server):
    """uvicorn's, which also speaks to the service manager."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._told = started
        self._every = max(1, int((watchdog_interval() or 5.0) * TICKS))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            notify("READY=1", "STATUS=serving")
            self._told()

    async def on_tick(self, counter: int) -> bool:
        if counter % self._every == 0:
            notify("WATCHDOG=1")
        return await super().on_tick(counter)


def serve(app: FastAPI, listener: socket.socket, started: Callable[[], None]) -> None:
    """Until SIGTERM or SIGINT. `started` is called once requests are answered."""
    options: dict[str, Any] = {
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
    }
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE, lifespan="on", **options)
    try:
        Server(config, started).run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn raises it again once it has closed
        pass
    finally:
        notify("STOPPING=1")
        listener.close()
