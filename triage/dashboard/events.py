"""/api/v1/events: tells pages that something changed, as server-sent events.

One task looks at the store's pulse twice a second, in a thread, and only while somebody listens; every stream gets the
same word. What changed is not told: pages fetch what they show anew, so that there is one way to render it. The only
async route (docs/architecture.md).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool

from triage.model import TriageError

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
STREAMS = 64  # each is a socket and a task; more than that is a mistake or an attack


class Pulse:
    """The shared watcher. Its state lives as long as the application; used from the event loop's thread only."""

    def __init__(
        self,
        look: Callable[[], str],
        *,
        streams: int = STREAMS,
        look_seconds: float = LOOK_SECONDS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._look = look
        self._limit = streams
        self._every = look_seconds
        self._heartbeat = heartbeat_seconds
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._last: str | None = None

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def full(self) -> bool:
        """No more streams now."""
        return self._closed or len(self._listeners) >= self._limit

    def close(self) -> None:
        """End all streams: the process is about to stop and a server waits for its open connections."""
        self._closed = True
        for queue in self._listeners:
            queue.put_nowait(None)
        if self._task is not None:
            self._task.cancel()

    async def stream(self) -> AsyncIterator[bytes]:
        """The bytes of one listener, until it goes away."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._listeners.add(queue)
        if self._last is not None:
            queue.put_nowait(self._last)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield b"retry: 2000\n\n"
            while not self._closed:
                try:
                    word = await asyncio.wait_for(queue.get(), self._heartbeat)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if word is None:
                    return
                while not queue.empty():  # a slow listener needs the last word only
                    word = queue.get_nowait() or word
                yield f"event: change\nid: {word}\ndata: {json.dumps({'pulse': word})}\n\n".encode()
        finally:
            self._listeners.discard(queue)

    async def _watch(self) -> None:
        """Look while anybody listens. A store that cannot be read now is looked at again.

        The first look is told too, and so is the last one to whoever comes later: what changed between the rendering of
        their page and their listening would otherwise stay unseen until the next change.
        """
        self._last = None
        while self._listeners and not self._closed:
            try:
                word = await run_in_threadpool(self._look)
            except TriageError as error:
                log.warning("the store cannot be read for live updates: %s", error)
                word = self._last or ""
            if word != self._last:
                for queue in self._listeners:
                    queue.put_nowait(word)
            self._last = word
            await asyncio.sleep(self._every)
