"""Is a unit up, does it stay up, does it answer: the proof after a restart.

In: a manager, a unit's name, time limits. Out: `Answer`s with a sentence each. Called by `carry` (as root) and by
`triage verify`. Minutes are normal while weights load; a crash while loading is seen at once, by a new invocation, a
counted restart or a failed state, and not only when the time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from triage.actions.probe import Answer, Endpoint, Kind, endpoint, healthy, probe, speed
from triage.model import Refused, TriageError
from triage.units.flagfile import config_path, load
from triage.units.systemctl import Manager, State, environment
from triage.units.unitfile import expand

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. `ready` covers loading weights from a slow disk; `probe` a first JIT compile."""

    ready: float = 1800
    probe: float = 300
    baseline: float = 30  # for the speed before anything is changed; what hangs is not waited for
    steady: float = 3  # how long a server that looks well is watched before it is believed
    steady_unasked: float = 20  # the same where nothing can be asked of it
    tick: float = 1
    stop: float = 300  # for the old process to end

    def __post_init__(self) -> None:
        if min(self.ready, self.probe, self.tick) <= 0:
            raise Refused("time limits must be above zero")


class ByHand(TriageError):
    """A job of somebody ended the invocation: no crash. `state` is how the unit runs after it."""

    def __init__(self, text: str, state: State, invocation: str) -> None:
        super().__init__(text)
        self.state = state
        self.invocation = invocation  # that runs now; '' where the unit was stopped


class Proof:
    """Waits and asks. `clock` and `sleep` are handed in so that tests need no real minutes."""

    def __init__(
        self,
        manager: Manager,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.manager = manager
        self.limits = limits
        self.clock = clock
        self.sleep = sleep

    def endpoint(self, unit: str) -> Endpoint:
        """Where the unit's server listens, by what the manager holds."""
        held = self.manager.loaded(unit)
        variables = environment(self.manager, unit)
        found = [_listening(expand(command, variables), variables) for command in held.commands]
        return next((item for item in found if item.kind is not Kind.UNKNOWN), Endpoint(Kind.UNKNOWN, note=_UNKNOWN))

    def restarted(self, unit: str, before: str, report: Report) -> State:
        """Wait for the new invocation that a queued restart brings. Raises Refused where none comes."""
        started = self.clock()
        while self.clock() - started < self.limits.stop:
            state = self.manager.state(unit)
            if state.invocation not in ("", before) and state.active != "deactivating":
                return state
            if state.active == "failed" and not state.job and self.clock() - started > 5 * self.limits.tick:
                raise Refused(f"{unit} did not start: {state.result}")
            report(f"waiting for the old process to end ({state.active})")
            self.sleep(self.limits.tick)
        raise Refused(f"{unit} did not start within {self.limits.stop:.0f} s")

    def ready(self, unit: str, invocation: str, report: Report, timeout: float = 0) -> Answer:
        """Active, healthy, and the same invocation for a while. Raises ByHand where somebody stops or restarts it.

        `timeout`: seconds, where less than the limit; 0: the limit."""
        started, well_since = self.clock(), -1.0
        limit = min(timeout, self.limits.ready) if timeout > 0 else self.limits.ready
        at = self.endpoint(unit)
        asked = at.kind not in (Kind.FOLLOWER, Kind.UNKNOWN)
        needed = self.limits.steady if asked else self.limits.steady_unasked
        while True:
            now = self.clock()
            gone = self.gone(unit, invocation)
            if gone:
                return Answer(False, gone, now - started)
            state = self.manager.state(unit)
            well, text = (state.up, f"unit is {state.active}")
            if well and asked:
                well, text = self.healthy(unit, at)
            well_since = -1.0 if not well else now if well_since < 0 else well_since
            if well and now - well_since >= needed:
                return Answer(True, text if asked else at.note, well_since - started)
            if now - started > limit:
                return Answer(False, f"not ready within {limit:.0f} s: {text}", now - started)
            report(f"{now - started:.0f} s: {text}")
            self.sleep(self.limits.tick)

    def probe(self, unit: str, invocation: str) -> Answer:
        """One request, and the unit is still the same invocation a moment later: some crash after the answer."""
        answer = self._put(unit, invocation)
        until = self.clock() + self.limits.steady
        while True:
            gone = self.gone(unit, invocation)
            if gone:
                return Answer(False, gone if answer.ok else f"{answer.text}; {gone}", answer.seconds)
            if not answer.ok or self.clock() >= until:
                return answer
            self.sleep(self.limits.tick)

    def healthy(self, unit: str, at: Endpoint) -> tuple[bool, str]:
        return healthy(at)

    def _put(self, unit: str, invocation: str) -> Answer:
        return probe(self.endpoint(unit), self.limits.probe, lambda: self._gone_now(unit, invocation))

    def speed(self, unit: str) -> float:
        """Tokens per second as the unit runs now, 0 where that cannot be told."""
        return speed(self.endpoint(unit), min(self.limits.baseline, self.limits.probe))

    def gone(self, unit: str, invocation: str) -> str:
        """Why the invocation is over, '' while it is not. Raises ByHand where it did not end by itself."""
        state = self.manager.state(unit)
        again = state.invocation not in ("", invocation)
        ended = state.active in ("failed", "inactive", "deactivating") or state.sub == "auto-restart"
        if not again and not ended:
            return ""
        if self._asked_to_stop(unit, invocation):
            raise self._by_hand(unit, invocation)
        if again:
            return f"{unit} crashed and was started again by systemd ({state.result or state.sub})"
        return f"{unit} ended: {state.active}, {state.result or state.sub}"

    def _asked_to_stop(self, unit: str, invocation: str) -> bool:
        if self.manager.asked_to_stop(unit, invocation):
            return True
        self.sleep(self.limits.tick)  # journald may be a moment behind the manager
        return self.manager.asked_to_stop(unit, invocation)

    def _by_hand(self, unit: str, invocation: str) -> ByHand:
        """Wait for the end of the job: only then it shows whether it was a stop or a restart."""
        started = self.clock()
        while True:
            state = self.manager.state(unit)
            if state.invocation not in ("", invocation):
                return ByHand(f"{unit} was restarted by somebody, it did not crash", state, state.invocation)
            over = state.active in ("failed", "inactive") and not state.job
            if over or self.clock() - started > self.limits.stop:
                return ByHand(f"{unit} was stopped by somebody, it did not crash", state, "")
            self.sleep(self.limits.tick)

    def _gone_now(self, unit: str, invocation: str) -> str:
        try:
            return self.gone(unit, invocation)
        except ByHand as job:
            return str(job)
        except TriageError:  # the manager is slow to answer: that says nothing about the server
            return ""


def _listening(argv: tuple[str, ...], variables: Mapping[str, str]) -> Endpoint:
    path = config_path(argv, variables)
    file = load(path) if path else None
    return endpoint(argv, variables, file.values if file else None)


_UNKNOWN = "the command is not understood: only that the unit keeps running is checked"
