"""What triage does about a crash unasked: nothing, propose it, prepare it for a yes, or file it. Off by default.

In: crashes that have just been stored, the settings by rule and unit, what the store remembers. Out: one decision a
crash, in the store; for an automatic one an ordinary request through the same hands as everybody's, under the same
guards. Called by the worker, without rights. `shadow` decides all the same, writes down what it would have done, and
does nothing. Each condition for acting unasked is a sentence: what is missing is told, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Protocol

from triage.actionmodel import Level, Plan
from triage.frozen import frozen
from triage.ladder import check_evidence, first_plan
from triage.model import Busy, Pending, Refused, TriageError
from triage.poison import check_poison
from triage.rulebase.rule import Rule
from triage.settings import WINDOW, Autonomy
from triage.store import CrashRow, Decision, IncidentRow, IncidentState, Store, Verdict

SECOND = 1_000_000
WHO = "triage (automatic)"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Hands(Protocol):
    """What plans and files; `triage.request.Requester` is it."""

    def listening(self) -> bool: ...
    def action_name(self, incident: int) -> str: ...
    def rungs(
        self, ladder: Sequence[Mapping[str, Any]], incident: IncidentRow, document: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]: ...
    def plan(self, incident: IncidentRow, document: Mapping[str, Any], remedy: str, name: str, time: int) -> Plan: ...
    def apply(self, plan: Plan, name: str, time: int, who: str) -> None: ...
    def gave_up(self, unit: str) -> bool: ...
    def stopped(self, unit: str) -> bool: ...


@frozen
class Facts:
    """All that the question "unasked?" depends on, gathered so that it can be answered without looking anywhere."""

    rule: str
    remedy: str
    stable: bool
    confirmed: bool
    complete: bool
    end: Mapping[str, Any] | None  # the manager's word on the end, as in the crash's document
    proved: int  # how often this remedy of this rule held through its window on this host
    demoted: bool
    breaker_open: bool
    in_force: str  # an action on the same incident
    muted: bool
    gave_up: bool
    in_window: bool
    listening: bool
    of_user: bool = False  # systemctl --user
    stopped: bool = False


def objections(facts: Facts, history: int) -> tuple[str, ...]:
    """Why a person has to decide; empty where nobody has to."""
    end = facts.end or {}
    confirmed_by_systemd = end.get("result") not in (None, "", "success") and not end.get("requested")
    found = (
        (not facts.stable, f"the rule {facts.rule} is not marked stable, or was changed since"),
        (not facts.confirmed, f"nobody has confirmed that {facts.remedy} helps"),
        (not facts.complete, "the evidence is not complete"),
        (not confirmed_by_systemd, "systemd does not confirm that the unit failed by itself"),
        (facts.proved < history, f"{facts.remedy} was not applied and verified {history} times on this host"),
        (facts.demoted, "it failed a proof on this unit (triage guards)"),
        (facts.breaker_open, "the breaker is open (triage guards)"),
        (bool(facts.in_force), f"{facts.in_force} is in force and it crashed all the same"),
        (facts.muted, "the incident is muted"),
        (facts.gave_up, "systemd gave the unit up (start limit)"),
        (facts.stopped, "the unit is stopped, and it would start it"),
        (not facts.in_window, "no maintenance window is open"),
        (not facts.listening, "root's side is not listening"),
        (facts.of_user, "it is a unit of a user: how it ended is the word of that user's own manager"),
    )
    return tuple(text for holds, text in found if holds)


def level_of(settings: Autonomy, rule: str, unit: str) -> Level:
    """The last entry that fits decides, else the level for all."""
    fitting = [one.level for one in settings.rules if fnmatchcase(rule, one.rule) and fnmatchcase(unit, one.unit)]
    return fitting[-1] if fitting else settings.level


def open_window(windows: Sequence[str], when: datetime) -> bool:
    """Whether that local time lies in one of the windows, or there are none. `23:00-02:00` goes over midnight."""
    return not windows or any(_within(text, when) for text in windows)


def _within(text: str, when: datetime) -> bool:
    found = re.fullmatch(WINDOW, text.lower())
    assert found is not None  # the settings have been checked
    first, last, begin, end = found.groups()
    minute = f"{when:%H:%M}"
    over_midnight = end <= begin
    inside = minute >= begin or minute < end if over_midnight else begin <= minute < end
    if not inside or first is None:
        return inside
    day = when - timedelta(days=1) if over_midnight and minute < end else when  # the day it began on
    start, stop = DAYS.index(first), DAYS.index(last or first)
    return (day.weekday() - start) % 7 <= (stop - start) % 7


class Deciding:
    """One for a worker. `rule`: the rules in force, by id; `local` makes a local time of microseconds."""

    def __init__(
        self,
        settings: Autonomy,
        store: Store,
        hands: Hands,
        *,
        rule: Callable[[str], Rule | None] = lambda name: None,
        shadow: bool = False,
        local: Callable[[int], datetime] = lambda now: datetime.fromtimestamp(now / SECOND).astimezone(),
    ) -> None:
        self._settings = settings
        self._store = store
        self._hands = hands
        self._rule = rule
        self._shadow = shadow or settings.shadow
        self._local = local

    def round(self, now: int) -> int:
        """Decide on the crashes that have closed since the last round; gives on how many."""
        done = 0
        for crash in self._store.undecided(now - self._settings.fresh_seconds * SECOND):
            level = level_of(self._settings, crash.rule or "", crash.unit)
            if level is not Level.OBSERVE:
                done += self._decide(crash, level, now)
        return done

    def _decide(self, crash: CrashRow, level: Level, now: int) -> bool:
        """False where that has to wait, for the server's flags or another action's end: the worker waits for nobody."""
        incident = self._store.incident(crash.incident).incident
        decision = Decision(crash.number, crash.incident, crash.unit, crash.rule or "", level, decided_at=now)
        try:
            plan = self._plan(incident, crash, now)
        except (Busy, Pending):
            return False
        except TriageError as reason:
            self._keep(replace(decision, verdict=Verdict.HELD, text=str(reason)))
            return True
        decision = replace(decision, remedy=plan.remedy, action=plan.action, plan=plan_facts(plan))
        told = f"{plan.title} ({plan.remedy})"
        if level is Level.AUTOMATIC:
            against = objections(self._facts(incident, crash, plan, now), self._settings.history)
            if not against:
                self._act(replace(decision, text=told), plan, now)
                return True
            told += f"; not by itself: {'; '.join(against)}"
        verdict = Verdict.WAITING if level is Level.APPROVE else Verdict.PROPOSED
        self._keep(replace(decision, verdict=verdict, text=told))
        return True

    def _plan(self, incident: IncidentRow, crash: CrashRow, now: int) -> Plan:
        check_evidence(crash.document)
        name = self._hands.action_name(incident.number)
        matches = crash.document.get("matches") or ()
        ladder = matches[0]["remedies"] if matches else ()
        check_poison(self._store.incident(incident.number), ladder)
        ladder = self._hands.rungs(ladder, incident, crash.document)
        return first_plan(ladder, lambda one: self._hands.plan(incident, crash.document, one, name, now))[0]

    def _facts(self, incident: IncidentRow, crash: CrashRow, plan: Plan, now: int) -> Facts:
        match = crash.document["matches"][0]
        rung = next(rung for rung in match["remedies"] if rung["id"] == plan.remedy)
        rule, held = self._rule(match["rule"]), self._store.guarded()
        in_force = [row.name for row in self._store.workarounds(crash.unit) if row.incident == incident.number]
        return Facts(
            rule=match["rule"],
            remedy=plan.remedy,
            stable=rule is not None and rule.stable and rule.digest == match["rule_digest"],
            confirmed=bool(rung["confirmed"]),
            complete=crash.document["evidence"]["grade"] == "complete",
            # A text may hold a line that looks like the manager's; only the journal tells who wrote an entry.
            end=crash.document.get("end") if crash.invocation else None,
            proved=self._store.proved(match["rule"], plan.remedy),
            demoted=any((one.rule, one.unit) == (match["rule"], crash.unit) for one in held.demotions),
            breaker_open=held.breaker.opened_at is not None,
            in_force=in_force[0] if in_force else "",
            muted=incident.muted(now),
            gave_up=crash.document.get("owner") is None and self._hands.gave_up(crash.unit),
            in_window=open_window(self._settings.windows, self._local(now)),
            listening=self._hands.listening(),
            of_user=crash.document.get("owner") is not None,
            stopped=crash.document.get("owner") is None and self._hands.stopped(crash.unit),
        )

    def _act(self, decision: Decision, plan: Plan, now: int) -> None:
        """Written down before it is filed: after a kill between the two it is not done, rather than done twice."""
        if self._shadow:
            self._keep(replace(decision, verdict=Verdict.FILED))
            return
        self._keep(replace(decision, verdict=Verdict.FILING))
        try:
            self._hands.apply(plan, plan.action, plan.time, WHO)
        except Refused as reason:  # the guards
            self._keep(replace(decision, verdict=Verdict.HELD, text=f"{decision.text}: {reason}"))
            return
        self._keep(replace(decision, verdict=Verdict.FILED))

    def _keep(self, decision: Decision) -> None:
        self._store.decide(replace(decision, shadow=self._shadow))


def plan_facts(plan: Plan) -> dict[str, Any]:
    """What a yes stands for: the plan made anew at the same time must come to the same digests."""
    return {"time": plan.time, "seen": plan.seen_digest, "result": plan.result_digest}


def waiting(store: Store, incident: int | None = None) -> tuple[Decision, ...]:
    """The prepared plans on which nobody has said anything yet, of one incident or of all that are open."""
    newest: dict[int, Decision] = {}
    for decision in store.decisions(incident=incident, limit=1 if incident else 200):
        newest.setdefault(decision.incident, decision)
    found = (one for one in newest.values() if one.verdict is Verdict.WAITING and not one.shadow)
    return tuple(one for one in found if not store.knows_action(one.action) and _open(store, one.incident))


def _open(store: Store, incident: int) -> bool:
    return store.incident(incident).incident.state in (IncidentState.OPEN, IncidentState.REGRESSED)


def check_same(decision: Decision, plan: Plan) -> None:
    """Raise Refused unless the plan, made anew, is the one that was prepared."""
    if plan_facts(plan) != dict(decision.plan):
        raise Refused(f"{plan.unit} was changed since the plan was made: triage apply {plan.incident} plans anew")
