"""The longer proof of an applied remedy: a soak of mixed requests, then the speed, then (in the store) a window.

In: actions whose soak is wanted, by the store; their servers. Out: progress and a verdict in the store; one against an
action leaves a wanted rollback, which the worker files like any other. Called by the worker, without rights: it asks
as a client would. Never more than one request in flight on a unit, and none while root works on it. Progress lies in
the store, so that a worker that was killed goes on where it was.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from triage.actions.address import Endpoint, Kind
from triage.actions.probe import Answer, Talk, converse, healthy
from triage.actions.questions import question
from triage.actions.readiness import Limits, Proof, stranger
from triage.model import Pace, TriageError
from triage.speed import Comparison, compare, enough
from triage.store import SoakRow, Store
from triage.units.systemctl import Manager, State

UNITS = 8  # soaked at the same time
HELD = 30.0  # seconds after an error of triage's own
NOTED = 2.0  # seconds between two notes of the progress
SETTLING = 30.0  # seconds in which `watch` tells what a server died of
LINES_WAIT = 45.0  # seconds for the last decode lines to be read: while a crash is open `watch` saves nothing
_WRONG = 3  # answers that are not the known one
_TRIES = 2  # a connection that breaks once is no verdict
_SKIPPED = (400, 404, 405, 413, 422)  # this server does not take that kind of request
_AGAIN = 2.0  # seconds until a busy server is asked again
_PATIENCE = 600.0  # seconds of nothing but that
_BUSY, _LOCKED = (429, 503), (401, 403)


class Prover:
    """A thread for each unit that is soaked. `busy`: whether an action is under way on a unit; `manager_of`: a user's,
    as far as it can be seen from here."""

    def __init__(
        self,
        store: Store,
        manager: Manager,
        busy: Callable[[str], bool],
        manager_of: Callable[[int], Manager] | None = None,
    ) -> None:
        self._store = store
        self._proof = Proof(manager, Limits())
        self._manager_of = manager_of
        self._busy = busy
        self._stop = threading.Event()
        self._running: dict[str, Future[None]] = {}
        self._held: dict[str, float] = {}  # units that cannot be asked at all just now
        self._threads = ThreadPoolExecutor(UNITS, thread_name_prefix="soak")

    def round(self) -> list[str]:
        """Begin or go on with what is wanted; gives the errors of those that ended. Never waits."""
        errors = []
        for unit in [unit for unit, soak in self._running.items() if soak.done()]:
            if (error := self._running.pop(unit).exception()) is not None:
                errors.append(f"soak of {unit}: {error}")
                self._held[unit] = time.monotonic() + HELD
        for row in self._store.soaking():
            held = self._held.get(row.unit, 0.0) > time.monotonic()
            if row.unit not in self._running and not held and not self._stop.is_set():
                try:
                    proof = self._proof_of(row)
                except TriageError as reason:
                    errors.append(f"soak of {row.unit}: {reason}")
                    self._held[row.unit] = time.monotonic() + HELD
                    continue
                soak = Soak(self._store, proof, row, self._busy, self._stop.wait)
                self._running[row.unit] = self._threads.submit(soak.run)
        return errors

    def _proof_of(self, row: SoakRow) -> Proof:
        if row.owner is None or self._manager_of is None:
            return self._proof
        return Proof(self._manager_of(row.owner), Limits())

    def close(self) -> None:
        """A request in flight is cancelled; it is asked again by the next worker."""
        self._stop.set()
        self._threads.shutdown(wait=True, cancel_futures=True)


class Soak:
    """One action's soak from where it stands. `wait(seconds)` answers True when it is to stop."""

    def __init__(
        self,
        store: Store,
        proof: Proof,
        row: SoakRow,
        busy: Callable[[str], bool],
        wait: Callable[[float], bool],
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.store = store
        self.proof = proof
        self.row = row
        self.busy = busy
        self.wait = wait
        self.clock = clock
        self.sent = row.sent
        self.profile = row.profile
        self.invocation = ""
        self._noted = 0.0
        self._model = ""
        self._stopping = False
        self._tries = self._unknown = 0
        self._skipped = row.skipped
        self._turned_away = 0.0  # seconds since an answer, while the server says that it is busy
        self._seconds: list[float] = []
        self._speeds: list[float] = []

    def run(self) -> None:
        """Until a verdict, until told to stop, or until nothing can be asked for now: then a later round goes on."""
        if self.busy(self.row.unit):
            return
        state = self.proof.manager.state(self.row.unit)
        if self.busy(self.row.unit):  # asked twice: what was seen between the two is no change on trial
            return
        if not state.up:
            self._down(state)
            return
        self.invocation = state.invocation
        at = self.proof.endpoint(self.row.unit, self.row.measured.get("asked", ""))
        if at.kind not in (Kind.GENERATION, Kind.EMBEDDING):
            self._soaked(f"not soaked: {at.note}")
            return
        wanted = self.profile.soak or 0
        while self.sent < wanted:
            if self._pause(self._gap()) or self.busy(self.row.unit) or not self._ask(at):
                return
            if not self._note(self._words()):
                return
        if not self._pause(0):
            self._judge()

    def _down(self, state: State) -> None:
        """It waits for whoever stopped the unit. A run that ended by a crash while nobody asked is a verdict."""
        ended = state.active == "failed" or state.sub == "auto-restart"
        row = self.row
        if ended and (died := self.store.died_of(row.unit, state.invocation, row.owner, row.effective_at)):
            self._fail(f"it crashed after {self._words()}: {died}")
            return
        self._note(f"waits, the unit is {state.active}", always=True)
        self._pause(5)

    # ------------------------------------------------------------ asking

    def _ask(self, at: Endpoint) -> bool:
        """One request; False where this run is over."""
        asked = question(self.sent, embedding=at.kind is Kind.EMBEDDING)

        def say(talk: Talk) -> Answer:
            if not self._model:
                model = talk.model()
                if not model.ok:
                    return model
                self._model = model.text
            return talk.put(asked, self._model)

        heard = self.proof.ears(at, self.row.unit)
        if heard.other:
            return self._fail(stranger(at, self.row.unit, heard))
        if at.seen and not heard.ours:
            return self._unheard(at)
        answer = converse(at, self.profile.timeout or 120.0, say, self._gone)
        if self._stopping:
            return False
        if answer.ok:
            self._tries, self._turned_away = 0, 0.0
            self._seconds.append(answer.seconds)
            if answer.speed:
                self._speeds.append(answer.speed)
            self._unknown += answer.unknown and not at.made_up
            self.sent += 1
            if self._unknown >= _WRONG:
                return self._fail(f"{self._unknown} answers are not those that are known: {answer.text}")
            return True
        return self._trouble(at, answer)

    def _trouble(self, at: Endpoint, answer: Answer) -> bool:
        number = self.sent + 1
        if answer.status in _BUSY:
            self._turned_away += _AGAIN + answer.seconds
            if self._turned_away >= _PATIENCE:
                return self._given_up(at, answer)
            self._note(f"the server is busy ({answer.status})", always=True)
            return not self._pause(_AGAIN)
        if answer.status in _LOCKED:
            self._soaked("not soaked: the server wants a key that cannot be read without root's rights")
            return False
        if answer.status in _SKIPPED:
            self._skipped += 1
            self._turned_away = 0.0
            self.sent += 1
            return True
        if answer.hung:
            said = f"no answer to request {number} in {self.profile.timeout or 120:.0f} s"
            return False if self.busy(self.row.unit) else self._fail(said)
        if answer.status:
            return self._fail(f"request {number}: {answer.text}")
        return self._broken(number, answer)

    def _given_up(self, at: Endpoint, answer: Answer) -> bool:
        """Turned away for minutes on end. Its own word decides whether that was others' load or its end."""
        well, said = healthy(at)
        busy = f"busy ({answer.status}) for {_PATIENCE:.0f} s without an answer"
        if not well:
            return self._fail(f"request {self.sent + 1}: {busy}, and {said}")
        self._soaked(f"not soaked to its end: {busy}, though {said}; {self._words()}")
        return False

    def _broken(self, number: int, answer: Answer) -> bool:
        """No HTTP answer at all: what `watch` has recorded of that run decides, not a connection that broke."""
        waited = 0.0
        while waited < SETTLING:
            if self.busy(self.row.unit):
                return False
            if died := self.store.crash_of(self.row.unit, self.invocation):
                return self._fail(f"it crashed at request {number}: {died}")
            state = self.proof.manager.state(self.row.unit)
            if state.up and state.invocation == self.invocation and waited >= 3:
                self._tries += 1
                return True if self._tries < _TRIES else self._fail(f"request {number}: {answer.text}")
            if self._pause(1):
                return False
            waited += 1
        self._note(f"waits, the unit is {self.proof.manager.state(self.row.unit).active}", always=True)
        return False

    def _unheard(self, at: Endpoint) -> bool:
        """Where it listens is known from root's proof alone, and it does not any more: it died, or chose anew."""
        if self.proof.manager.state(self.row.unit).invocation != self.invocation:
            return False
        self._soaked(f"not soaked: it was proved at {at.url}, and where it listens now cannot be told")
        return False

    def _gone(self) -> str:
        if self._pause(0):
            return "the worker stops"
        try:
            state = self.proof.manager.state(self.row.unit)
        except TriageError:  # the manager is slow to answer: that says nothing about the server
            return ""
        same = state.invocation in ("", self.invocation) and state.active not in ("failed", "inactive")
        return "" if same else f"{self.row.unit} is {state.active}"

    def _gap(self) -> float:
        """Seconds until the next request may go out."""
        spent = self._seconds[-1] if self._seconds else 0.0
        return max(0.0, 1 / (self.profile.rate or 1.0) - spent)

    def _pause(self, seconds: float) -> bool:
        self._stopping = self._stopping or self.wait(seconds)
        if self._stopping:
            self.store.soak_progress(self.row.action, self.sent, self._words(), self.clock(), self._skipped)
        return self._stopping

    # ------------------------------------------------------------ the verdict

    def _judge(self) -> None:
        if self._skipped and self._skipped == self.sent:
            self._soaked(f"not soaked: it takes none of the {self.sent} requests")
            return
        before = self.store.pace_before(self.row.unit, self.row.effective_at, self.row.owner)
        after = self._after(before)
        told = float(self.row.measured.get("speed_before") or 0)
        found = compare(before, after, told, max(self._speeds, default=0.0))
        floor = self.profile.min_speed or 0.0
        shares = [share for share in (found.share, found.accepted) if share is not None]
        if shares and min(shares) < floor:
            self._fail(f"too slow: {found.text}; at least {floor:.2f} has to be left by what was announced", found)
            return
        self._soaked(f"{self._words()}; {found.text}", found)

    def _after(self, before: tuple[Pace, ...]) -> tuple[Pace, ...]:
        """The lines of this run, once `watch` has saved enough of them."""
        waited = 0.0
        while True:
            after = self.store.pace_of(self.invocation)
            if not before or enough(before, after) or waited >= LINES_WAIT or self._pause(1):
                return after
            waited += 1

    def _words(self) -> str:
        took = f", {statistics.median(self._seconds):.2f} s each" if self._seconds else ""
        skipped = f", {self._skipped} of a kind that it does not take" if self._skipped else ""
        return f"{self.sent - self._skipped} requests answered{took}{skipped}"

    def _measured(self, found: Comparison | None) -> dict[str, str]:
        values = {"requests": str(self.sent - self._skipped)}
        if self._seconds:
            values["seconds"] = f"{statistics.median(self._seconds):.3f}"
        if found is not None and found.speeds is not None:
            values |= {"speed_before": f"{found.speeds[0]:.1f}", "speed_after": f"{found.speeds[1]:.1f}"}
        elif self._speeds:
            values["speed_after"] = f"{max(self._speeds):.1f}"
        return values

    def _note(self, text: str, *, always: bool = False) -> bool:
        """On the disk every few seconds; False where the soak is not wanted any more."""
        present = time.monotonic()
        if not always and present - self._noted < NOTED:
            return True
        self._noted = present
        return self.store.soak_progress(self.row.action, self.sent, text, self.clock(), self._skipped)

    def _soaked(self, text: str, found: Comparison | None = None) -> None:
        self.store.soaked(self.row.action, self.sent, text, self._measured(found), self.clock())

    def _fail(self, text: str, found: Comparison | None = None) -> bool:
        self.store.proof_failed(self.row.action, self.sent, text, self._measured(found), self.clock())
        return False
