"""What happens beside reading: import root's accounts, prove remedies further, deliver alerts, watch windows, prune.

In: the store, the channels, root's results. Out: rows. `run_once(now)` does what is due at `now` and never sleeps; the
loop around it is the command line's. Each channel has a thread of its own, so a receiver that is dead or slow keeps
nobody waiting but itself. A try that was made but not noted (kill -9 between the two) is made again under the same id.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

from triage.actionmodel import ActionResult
from triage.channels import Channel, Message
from triage.model import Busy, Pending, TriageError
from triage.prover import Prover
from triage.store import DueDelivery, Pruned, Store, WantedRollback

SECOND = 1_000_000
DAY = 86_400 * SECOND
# After each failed try, in seconds; the next failure after the last is the end. Just under four days in all.
SCHEDULE = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
JITTER = 0.2  # of each wait, so that receivers that come back do not get everything at once
BATCH = 20  # deliveries of one channel in one round
HOLD = 5 * SECOND  # a channel that failed is left alone that long, and longer each time it fails again
LONGEST_HOLD = 300 * SECOND
LASTING = 30 * SECOND  # after which a rollback that cannot be filed is for people
PRUNE_EVERY = 6 * 3_600 * SECOND


class FilesRollbacks(Protocol):
    """Puts the wish for a rollback into the spool; gives the name of the request. Asked twice, it files once."""

    def __call__(self, wanted: WantedRollback, now: int) -> str: ...


@dataclass(slots=True)
class Round:
    """What one round did."""

    imported: int = 0
    abandoned: int = 0  # settled because nothing of them is left
    filed: int = 0
    decided: int = 0  # crashes on which autonomy has said its word
    debts: int = 0  # workarounds proposed for retirement, or closed because a hand removed them
    events: int = 0  # handed to the channels
    watched: int = 0
    pruned: Pruned | None = None
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    until: int = 0
    failures: int = 0


class Worker:
    """`results` gives root's accounts (`Spool.results`); `retention` is how long ended things are kept."""

    def __init__(
        self,
        store: Store,
        channels: tuple[Channel, ...] = (),
        *,
        results: Callable[[], Iterable[ActionResult]] = tuple,
        file_rollback: FilesRollbacks | None = None,
        settle_abandoned: Callable[[int], int] = lambda now: 0,
        decide: Callable[[int], int] = lambda now: 0,
        collect_debts: Callable[[int], int] = lambda now: 0,
        prover: Prover | None = None,
        retention: int = 90 * DAY,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._channels = {channel.name: channel for channel in channels}
        self._results = results
        self._file_rollback = file_rollback
        self._settle_abandoned = settle_abandoned
        self._decide = decide
        self._collect_debts = collect_debts
        self._prover = prover
        self._retention = retention
        self._chance = chance
        self._pruned_at: int | None = None
        self._imported: dict[str, ActionResult] = {}
        self._told: dict[str, str] = {}  # why the rollback of an action could not be filed
        self._held: dict[str, _Held] = {name: _Held() for name in self._channels}
        self._busy: dict[str, Future[None]] = {}
        self._threads = ThreadPoolExecutor(max(1, len(channels)), thread_name_prefix="channel")

    def run_once(self, now: int, *, patience: float | None = None) -> Round:
        """All that is due at `now`. Waits for the channels at most `patience` seconds (None: until they are done);
        one that is still sending then goes on by itself and is left alone until it has finished."""
        done = Round()
        self._guard(done, lambda: self._import(done, now))
        self._guard(done, lambda: self._settle(done, now))
        self._guard(done, lambda: self._prove(done))
        self._guard(done, lambda: self._file(done, now))
        self._guard(done, lambda: self._watch(done, now))
        self._guard(done, lambda: self._act(done, now))
        self._guard(done, lambda: self._collect(done, now))
        self._guard(done, lambda: self._deliver(done, now, patience))
        if self._pruned_at is None or now - self._pruned_at >= PRUNE_EVERY:
            self._guard(done, lambda: self._prune(done, now))
        return done

    def close(self) -> None:
        """Ends the threads after the try each of them is in."""
        if self._prover is not None:
            self._prover.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for channel in self._channels.values():
            channel.close()

    @staticmethod
    def _guard(done: Round, step: Callable[[], None]) -> None:
        """One step that fails (a database busy for too long, a file that cannot be read) does not stop the others."""
        try:
            step()
        except (TriageError, OSError) as error:
            done.errors.append(str(error))

    def _import(self, done: Round, now: int) -> None:
        for result in self._results():
            name = result.request.action
            if self._imported.get(name) != result:  # accounts stay where root wrote them: most were seen before
                done.imported += self._store.import_result(result, now)
                self._imported[name] = result

    def _settle(self, done: Round, now: int) -> None:
        done.abandoned = self._settle_abandoned(now)

    def _prove(self, done: Round) -> None:
        if self._prover is not None:
            done.errors += self._prover.round()

    def _file(self, done: Round, now: int) -> None:
        if self._file_rollback is None:
            return
        for wanted in self._store.wanted_rollbacks():
            try:
                request = self._file_rollback(wanted, now)
            except (Busy, Pending):  # another action of its unit comes first
                continue
            except (TriageError, OSError) as error:  # of this one: the other units' must not wait for it
                self._unfiled(done, wanted, str(error), now)
                continue
            self._store.mark_filed(wanted.action, request, now)
            self._told.pop(wanted.action, None)
            done.filed += 1

    def _unfiled(self, done: Round, wanted: WantedRollback, why: str, now: int) -> None:
        """It is tried again each round; said once in the log, and to people where it lasts."""
        if self._told.get(wanted.action) != why:
            done.errors.append(f"the rollback of {wanted.action} on {wanted.unit} cannot be filed: {why}")
            self._told[wanted.action] = why
        if now - wanted.created_at >= LASTING:
            self._store.not_taken_back(wanted.action, why, now)

    def _watch(self, done: Round, now: int) -> None:
        done.watched = self._store.watch_windows(now)

    def _act(self, done: Round, now: int) -> None:
        done.decided = self._decide(now)

    def _collect(self, done: Round, now: int) -> None:
        done.debts = self._collect_debts(now)

    def _prune(self, done: Round, now: int) -> None:
        self._store.close_left_open(now)
        done.pruned = self._store.prune(now - self._retention)
        self._pruned_at = now

    # ------------------------------------------------------------ delivery

    def _deliver(self, done: Round, now: int, patience: float | None) -> None:
        wanted = {name: channel.events for name, channel in self._channels.items()}
        done.events = self._store.fan_out(wanted, now)
        for name, channel in self._channels.items():
            held = self._held[name]
            if (busy := self._busy.get(name)) is not None and not busy.done():
                continue
            if held.until <= now and (due := self._store.due(name, now, BATCH)):
                self._busy[name] = self._threads.submit(self._send_all, channel, due, now)
        wait(self._busy.values(), timeout=patience)
        for name in [name for name, sending in self._busy.items() if sending.done()]:
            if (error := self._busy.pop(name).exception()) is not None:
                done.errors.append(f"channel {name}: {error}")

    def _send_all(self, channel: Channel, due: tuple[DueDelivery, ...], now: int) -> None:
        """In a thread of its own. The first failure ends the round: what follows would most likely fail too."""
        held = self._held[channel.name]
        for delivery in due:
            sent = channel.send(Message(delivery.id, delivery.type, delivery.payload), now)
            if sent.ok:
                self._store.delivered(delivery.id, channel.name, sent.text, now)
                held.until, held.failures = 0, 0
            elif sent.permanent or delivery.tries >= len(SCHEDULE):
                self._store.died(delivery.id, channel.name, sent.text, now)
            else:
                pause = max(SCHEDULE[delivery.tries] * (1 + JITTER * self._chance()), sent.wait or 0)
                self._store.retry(delivery.id, channel.name, sent.text, now + int(pause * SECOND))
                held.failures += 1
                held.until = now + min(HOLD << min(held.failures - 1, 10), LONGEST_HOLD)
                return
