"""Is a unit up, does it stay up, does it answer: the proof after a restart.

In: a manager, a unit's name, time limits. Out: `Answer`s with a sentence each. Called by `carry` (as root) and by
`triage verify`. Minutes are normal while weights load; a crash while loading is seen at once, by a new invocation, a
counted restart or a failed state, and not only when the time is over.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from triage.actions.address import Endpoint, Kind, endpoint
from triage.actions.probe import Answer, healthy, probe, speed
from triage.frozen import frozen
from triage.model import Refused, TriageError
from triage.units.flagfile import config_path, load
from triage.units.sockets import Ears, command_lines, ears, listeners
from triage.units.systemctl import Loaded, Manager, State, environment
from triage.units.unitfile import Word, expand

Report = Callable[[str], None]


@frozen
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

    def endpoint(self, unit: str, asked: str = "") -> Endpoint:
        """Where the unit's server listens: by what the manager holds; else by the process that runs in its cgroup;
        else, where that may not be read here, `asked`: where root's proof asked it (`Answer.asked`)."""
        held = self.manager.loaded(unit)
        variables = environment(self.manager, unit)
        if _hidden(held, variables):
            found = [Endpoint(Kind.UNKNOWN, note=_HIDDEN)]
        else:
            found = [_listening(expand(command, variables), variables) for command in held.commands]
        known = [item for item in found if item.kind is not Kind.UNKNOWN]
        if known:
            return known[0]
        at = next(iter(found), Endpoint(Kind.UNKNOWN, note=_UNKNOWN))
        if not at.inside:
            return at
        return self._running(unit) or _proved(at, asked) or at

    def _running(self, unit: str) -> Endpoint | None:
        """By the one server among the unit's processes. Whoever owns them chose the words, so it is asked only where
        the unit itself listens."""
        group = self.manager.state(unit).cgroup
        if not group or listeners() is None:
            return None
        found = {endpoint(argv) for argv in command_lines(group)}
        seen = {replace(at, seen=True) for at in found if at.kind is not Kind.UNKNOWN and at.inside}
        return seen.pop() if len(seen) == 1 else None

    def ears(self, at: Endpoint, unit: str) -> Ears:
        """Whether the unit itself listens where it is asked; `ours` is None where that cannot be told."""
        group = self.manager.state(unit).cgroup
        asks = at.kind not in (Kind.FOLLOWER, Kind.UNKNOWN)
        return ears(at.host, at.port, group) if asks and at.inside and group else Ears(None)

    def deaf(self, at: Endpoint, unit: str) -> str:
        """Why an answer from there would not be the unit's; '' where it would, or where that cannot be told."""
        heard = self.ears(at, unit)
        if heard.ours is None and at.seen:
            return f"whose server answers at {at.url} cannot be told"
        if heard.ours is not False:
            return ""
        return (
            stranger(at, unit, heard) if heard.other else f"{at.url} does not answer yet ({unit} listens nowhere there)"
        )

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
        while True:
            now = self.clock()
            gone = self.gone(unit, invocation)
            if gone:
                return Answer(False, gone, now - started)
            state = self.manager.state(unit)
            if at.kind is Kind.UNKNOWN and at.inside:
                at = self.endpoint(unit)  # once the server's process runs, its words tell
                well_since = well_since if at.kind is Kind.UNKNOWN else -1.0
            asked = at.kind not in (Kind.FOLLOWER, Kind.UNKNOWN)
            needed = self.limits.steady if asked else self.limits.steady_unasked
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
        """Whether the unit's own server says it is up, and what was seen."""
        why = self.deaf(at, unit)
        return (False, why) if why else healthy(at)

    def _put(self, unit: str, invocation: str) -> Answer:
        return self.ask(unit, lambda: self._gone_now(unit, invocation))

    def speed(self, unit: str) -> float:
        """Tokens per second as the unit runs now, 0 where that cannot be told."""
        at = self.endpoint(unit)
        return 0.0 if self.deaf(at, unit) else speed(at, min(self.limits.baseline, self.limits.probe))

    def ask(self, unit: str, alive: Callable[[], str]) -> Answer:
        """One request to the unit's own server. `alive`: why it is gone, '' while it is not."""
        at = self.endpoint(unit)
        if why := self.deaf(at, unit):
            return Answer(False, why)
        answer = probe(at, self.limits.probe, alive)
        if at.kind in (Kind.FOLLOWER, Kind.UNKNOWN):
            return answer
        untold = self.manager.state(unit).cgroup and self.ears(at, unit).ours is None
        note = f" ({at.url} is no socket of the unit's own: whose it is cannot be told)" if untold else ""
        return replace(answer, asked=f"{at.kind} {at.url}", text=answer.text + note)

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


def stranger(at: Endpoint, unit: str, heard: Ears) -> str:
    """In words that another one than the unit listens there."""
    return f"somebody else answers on port {at.port}: {heard.other}, not {unit}"


def _hidden(held: Loaded, variables: Mapping[str, str]) -> bool:
    """Whether the command holds a variable that may stand in a file which cannot be read here."""
    words = [word for command in held.commands for word in command if Word(word, word).opaque]
    names = {name for word in words for name in _NAME.findall(word.replace("$$", ""))}
    return bool(names - variables.keys()) and any(_unreadable(path) for path, _ in held.environment_files)


def _unreadable(path: str) -> bool:
    try:
        with open(path, "rb"):
            return False
    except PermissionError:
        return True
    except OSError:
        return False


def _proved(at: Endpoint, asked: str) -> Endpoint | None:
    """The endpoint with the kind and place of an earlier proof put in."""
    found = _ASKED.fullmatch(asked)
    if found is None:
        return None
    tls, host, port = found["scheme"] == "https", found["host"].strip("[]"), int(found["port"])
    return replace(at, kind=Kind(found["kind"]), host=host, port=port, tls=tls, note="", seen=True)


def _listening(argv: tuple[str, ...], variables: Mapping[str, str]) -> Endpoint:
    path = config_path(argv, variables)
    file = load(path) if path else None
    return endpoint(argv, variables, file.values if file else None)


_UNKNOWN = "the command is not understood: only that the unit keeps running is checked"
_HIDDEN = "a variable of the command may stand in a file that cannot be read here"
_NAME = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_ASKED = re.compile(rf"(?P<kind>{'|'.join(Kind)}) (?P<scheme>https?)://(?P<host>\S+):(?P<port>[0-9]{{1,5}})")
