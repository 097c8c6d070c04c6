"""The store: every method is one transaction over the functions of its own module; nothing else opens one.

A `Recorder` for the pipeline, the queues of the worker, the queries of pages and command line. Rows come out as frozen
values (`triage.store.rows`). Times come in as arguments; the store never reads a clock. Safe to share between threads.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triage.actionmodel import ActionResult, Request, Tried
from triage.document import finding_document
from triage.model import Busy, Context, Finding, FindingEvent, Pace, Refused, Severity, Verify
from triage.store import (
    action,
    decision,
    guard,
    history,
    incident,
    metrics,
    outbox,
    position,
    proof,
    query,
    rematch,
    retirement,
)
from triage.store.database import Database
from triage.store.guard import Limits
from triage.store.machine import call, machine_id, name_of
from triage.store.record import record_event
from triage.store.rows import (
    ActionRow,
    Breaker,
    Counter,
    CrashRow,
    Decision,
    Demotion,
    DueDelivery,
    Guarded,
    Health,
    IncidentRow,
    IncidentState,
    IncidentView,
    OpenCount,
    OutboxDepth,
    Page,
    ProofRow,
    ProofState,
    Pruned,
    Retirement,
    SoakRow,
    SourceHealth,
    TimelineRow,
    UnitSeen,
    Verdict,
    WantedRollback,
)
from triage.store.upkeep import close_left_open, prune
from triage.store.writing import Writing

if TYPE_CHECKING:  # reading settings costs as much as opening the database
    from triage.settings import Settings

__all__ = [
    "ActionRow",
    "Breaker",
    "Counter",
    "CrashRow",
    "Decision",
    "Demotion",
    "DueDelivery",
    "Guarded",
    "Health",
    "IncidentRow",
    "IncidentState",
    "IncidentView",
    "OpenCount",
    "OutboxDepth",
    "Page",
    "ProofRow",
    "ProofState",
    "Pruned",
    "Retirement",
    "SoakRow",
    "SourceHealth",
    "Store",
    "TimelineRow",
    "UnitSeen",
    "Verdict",
    "WantedRollback",
    "open_store",
]


def open_store(settings: Settings, *, upgrade: bool = False, read_only: bool = False) -> Store:
    """The store of these settings. Services upgrade it at their start; everybody else needs it to be ready."""
    store = Store(
        settings.database,
        base_url=settings.base_url,
        rollback_window=settings.rollback_window_seconds * 1_000_000,
        read_only=read_only,
    )
    if upgrade:
        store.upgrade()
    else:
        store.ready()
    return store


class Store:
    """`host` is this machine's name, for what does not carry one: cursors, actions, lines of a file."""

    def __init__(
        self,
        url: str,
        *,
        base_url: str = "",
        rollback_window: int = 600_000_000,
        host: str | None = None,
        read_only: bool = False,
        document: Callable[[Finding], Mapping[str, Any]] = finding_document,
    ) -> None:
        self.host = host or socket.gethostname()
        self._named = self.host  # now: `host` is what the rows bear
        self._machine = None if host else machine_id()
        self._database = Database(url, read_only=read_only)
        self._base_url = base_url
        self._window = rollback_window
        self._document = document

    def close(self) -> None:
        self._database.close()

    def is_here(self, host: str) -> bool:
        """Whether a row's host is this machine: '' is, and so is the name it was given since its services started."""
        return host in ("", self.host, self._named)

    # ------------------------------------------------------------ the database itself

    def ready(self) -> None:
        """Raises Unreachable unless the tables are there and of this version."""
        self._database.ready()
        if self._machine is not None:
            with self._database.read() as tx:
                self.host = name_of(tx, self._machine) or self.host

    def upgrade(self) -> str | None:
        """Bring the tables to this version's, and the rows to this machine's name; gives the revision before. A newer
        database is refused."""
        before = self._database.upgrade()
        if self._machine is not None:
            with self._database.write() as tx:
                call(tx, self._machine, self.host)
        return before

    def revision(self) -> str | None:
        return self._database.revision()

    def faults(self) -> tuple[str, ...]:
        """What SQLite's own check finds; empty when all is sound."""
        return self._database.faults()

    def backup(self, target: Path) -> None:
        """A consistent copy into a new file, while others write."""
        self._database.backup(target)

    def prune(self, before: int) -> Pruned:
        """Drop what is over and older than `before`."""
        with self._database.write() as tx:
            return prune(tx, before)

    def close_left_open(self, now: int) -> int:
        """Close this host's crashes whose end nobody will read; how many."""
        with self._database.write() as tx:
            return close_left_open(tx, self.host, now)

    # ------------------------------------------------------------ the pipeline

    def resume(self, source: str) -> tuple[str | None, dict[str, Context]]:
        """Where reading of `source` goes on, and what was known there by invocation."""
        with self._database.read() as tx:
            return position.load(tx, self.host, source)

    def record(
        self,
        source: str,
        events: tuple[FindingEvent, ...],
        *,
        cursor: str | None,
        contexts: Mapping[str, Context] | None,
        now: int,
    ) -> None:
        """Crashes, incidents, timeline, outbox, cursor and contexts in one transaction. Reading again adds nothing."""
        with self._database.write() as tx:
            writing = Writing(
                tx, host=self.host, base_url=self._base_url, window=self._window, document=self._document, now=now
            )
            for event in events:
                record_event(writing, event)
            writing.flush()
            if cursor is not None:
                position.move(tx, self.host, source, cursor, now)
            if contexts is not None:
                position.learn(tx, self.host, source, contexts)

    def wanted_rollbacks(self) -> tuple[WantedRollback, ...]:
        """Actions of this host whose signature came back, and for which no rollback was filed yet."""
        with self._database.read() as tx:
            return query.wanted_rollbacks(tx, self.host)

    def mark_filed(self, action_name: str, request: str, now: int) -> None:
        """The rollback of that action lies in the spool under the name `request`."""
        with self._database.write() as tx:
            action.mark_filed(tx, self.host, action_name, request, now)

    def not_taken_back(self, action_name: str, why: str, now: int) -> None:
        """The rollback of that action cannot be filed: into the timeline, and told as `action.rollback_failed`."""
        with self._database.write() as tx:
            action.not_taken_back(tx, self.host, action_name, why, self._base_url, now)

    # ------------------------------------------------------------ actions

    def reserve(
        self,
        request: Request,
        *,
        title: str,
        cost: str,
        diff: str,
        who: str,
        now: int,
        limits: Limits,
        profile: Verify | None = None,
    ) -> None:
        """Before a request is filed and anything touched: it is written down, or refused by the guards.

        Asking and writing are one transaction: of two at once, one is `Busy`. What was reserved and never filed is
        settled by `abandoned`."""
        with self._database.write() as tx:
            if busy := guard.under_way(tx, self.host, request.unit, request.root):
                raise Busy(f"{busy} is under way on {request.unit}: wait for its end (triage actions show {busy})")
            objection = guard.objection(tx, self.host, request, limits, self._base_url, now)
            if not objection:
                action.requested(tx, self.host, request, title, cost, diff, who, now, profile)
        if objection:  # outside: that the breaker opened is kept
            raise Refused(objection)

    def unsettled(self, before: int) -> tuple[ActionRow, ...]:
        """Actions of this host reserved before that time, of which no end is known."""
        with self._database.read() as tx:
            return query.unsettled(tx, self.host, before)

    def abandoned(self, name: str, now: int) -> None:
        """Neither request, claim nor result of that action is left: settle it."""
        with self._database.write() as tx:
            action.abandoned(tx, self.host, name, self._base_url, self._window, now)

    def guarded(self) -> Guarded:
        """The breaker of this host and what was demoted on it."""
        with self._database.read() as tx:
            return guard.guarded(tx, self.host)

    def reset_breaker(self, who: str, now: int) -> bool:
        """Close the breaker; False where it was not open."""
        with self._database.write() as tx:
            return guard.reset_breaker(tx, self.host, who, now)

    def reset_demotion(self, rule: str, unit: str) -> bool:
        """Trust that rule on that unit again; False where it was not demoted."""
        with self._database.write() as tx:
            return guard.reset_demotion(tx, self.host, rule, unit)

    def import_result(self, result: ActionResult, now: int) -> bool:
        """Root's account of an action; False where it says nothing new."""
        with self._database.write() as tx:
            return action.import_result(tx, self.host, result, self._base_url, self._window, now)

    def watch_windows(self, now: int) -> int:
        """Note the actions whose window passed without their signature; gives how many."""
        with self._database.write() as tx:
            return action.watch_windows(tx, self.host, self._window, now)

    def actions(self, *, unit: str | None = None, limit: int = 50, before: str | None = None) -> Page[ActionRow]:
        with self._database.read() as tx:
            return query.action_page(tx, unit, limit, before)

    def action(self, name: str) -> ActionRow:
        with self._database.read() as tx:
            return query.action(tx, name)

    def knows_action(self, name: str) -> bool:
        with self._database.read() as tx:
            return query.knows_action(tx, name)

    def tried(self, unit: str, host: str | None = None, owner: int | None = None) -> tuple[Tried, ...]:
        """The remedies that were carried out on this unit (of this host), newest first, and which of them failed."""
        with self._database.read() as tx:
            return history.tried(tx, host or self.host, unit, owner)

    def crashed_with(self, number: int, field: str) -> tuple[float, ...]:
        """The values of one flag under which this incident's crashes came, newest first."""
        with self._database.read() as tx:
            return history.crashed_with(tx, number, field)

    def workarounds(self, unit: str | None = None) -> tuple[ActionRow, ...]:
        """Actions in force, oldest first."""
        with self._database.read() as tx:
            return query.workarounds(tx, unit)

    # ------------------------------------------------------------ the debt list

    def retirements(self) -> dict[str, Retirement]:
        """By action: what is known of the end of this host's workarounds."""
        with self._database.read() as tx:
            return retirement.retirements(tx, self.host)

    def set_retirement(self, row: ActionRow, release: str, due: int | None, who: str, now: int) -> None:
        """A person's condition: from that release on, or from that time on."""
        with self._database.write() as tx:
            retirement.set_condition(tx, row, release, due, who, now)

    def propose_retirement(self, row: ActionRow, release: str, why: str, now: int) -> None:
        """Tell that its condition is met on the release that is installed."""
        with self._database.write() as tx:
            retirement.propose(tx, row, release, why, self._base_url, now)

    def crashed_on(self, row: ActionRow) -> str | None:
        """The release of SGLang whose crash it was to cure, where the log told it."""
        with self._database.read() as tx:
            return history.crashed_on(tx, row.incident, row.requested_at)

    def still_needed(self, gone: str, heir: str, release: str) -> None:
        """The crash came back on that release without `gone`; `heir` puts it back."""
        with self._database.write() as tx:
            retirement.still_needed(tx, self.host, gone, heir, release)

    # ------------------------------------------------------------ rules that changed

    def undiagnosed(self, limit: int) -> tuple[int, ...]:
        """Numbers of open incidents that no rule knew, the newest first."""
        with self._database.read() as tx:
            return rematch.undiagnosed(tx, limit)

    def diagnosed(self, crash: int, finding: Finding, document: Mapping[str, Any], now: int) -> bool:
        """A rule knows the crash of that number now. False where one was there first."""
        with self._database.write() as tx:
            return rematch.diagnosed(tx, crash, finding, document, now)

    # ------------------------------------------------------------ autonomy

    def undecided(self, since: int) -> tuple[CrashRow, ...]:
        """Failures of this host that ended after that time and on which nothing was decided yet."""
        with self._database.read() as tx:
            return decision.undecided(tx, self.host, since)

    def decide(self, made: Decision) -> None:
        """One decision a crash; the last word on it stays."""
        with self._database.write() as tx:
            decision.decide(tx, self.host, made, self._base_url)

    def decisions(self, *, incident: int | None = None, limit: int = 50) -> tuple[Decision, ...]:
        """What was decided, newest first."""
        with self._database.read() as tx:
            return decision.decisions(tx, self.host, limit, incident)

    def proved(self, rule: str, remedy: str) -> int:
        """How often that remedy of that rule held through its window on this host."""
        with self._database.read() as tx:
            return decision.proved(tx, self.host, rule, remedy)

    # ------------------------------------------------------------ proofs

    def soaking(self) -> tuple[SoakRow, ...]:
        """Actions of this host whose soak is wanted, the newest of a unit first."""
        with self._database.read() as tx:
            return proof.soaking(tx, self.host)

    def soak_progress(self, action_name: str, sent: int, text: str, now: int, skipped: int = 0) -> bool:
        """Note how far it is; False where it is not wanted any more. `skipped`: those that the server does not take."""
        with self._database.write() as tx:
            return proof.progress(tx, self.host, action_name, sent, text, now, skipped)

    def soaked(self, action_name: str, sent: int, text: str, measured: Mapping[str, str], now: int) -> None:
        with self._database.write() as tx:
            proof.soaked(tx, self.host, action_name, sent, text, measured, now)

    def proof_failed(self, action_name: str, sent: int, text: str, measured: Mapping[str, str], now: int) -> None:
        """The verdict is against the action: leaves a wanted rollback."""
        with self._database.write() as tx:
            proof.failed(tx, self.host, action_name, sent, text, measured, now)

    def pace_before(self, unit: str, before: int, owner: int | None = None) -> tuple[Pace, ...]:
        """How fast the unit decoded in the runs that crashed before that time."""
        with self._database.read() as tx:
            return proof.pace_before(tx, self.host, unit, before, owner)

    def pace_of(self, invocation: str) -> tuple[Pace, ...]:
        with self._database.read() as tx:
            return proof.pace_of(tx, self.host, invocation)

    def crash_of(self, unit: str, invocation: str) -> str:
        """What that run died of; '' where no crash of it is known."""
        with self._database.read() as tx:
            return proof.crash_of(tx, unit, invocation)

    def died_of(self, unit: str, invocation: str, owner: int | None = None, since: int = 0) -> str:
        """By what crash since then that run ended, by itself; '' where none is known, or where it was on trial."""
        with self._database.read() as tx:
            return proof.died_of(tx, self.host, unit, invocation, owner, since)

    # ------------------------------------------------------------ incidents

    def incidents(
        self,
        *,
        states: tuple[IncidentState, ...] = (),
        unit: str | None = None,
        severity: Severity | None = None,
        text: str | None = None,
        alarming: bool = True,
        limit: int = 50,
        before: str | None = None,
    ) -> Page[IncidentRow]:
        """Newest first. `alarming=False` shows those too that never were a failure (request errors and the like)."""
        with self._database.read() as tx:
            return query.incident_page(
                tx,
                states=states,
                unit=unit,
                severity=severity,
                text=text,
                alarming=alarming,
                limit=limit,
                before=before,
            )

    def incident(self, number: int, *, crash_limit: int = 5, timeline_limit: int = 200) -> IncidentView:
        """One incident with its newest crashes, timeline and actions; `merged_into` says where a merged one went."""
        with self._database.read() as tx:
            return query.incident_view(tx, number, crash_limit, timeline_limit)

    def crashes(self, number: int | None = None, *, limit: int = 50, before: str | None = None) -> Page[CrashRow]:
        """Newest first, of one incident or of all."""
        with self._database.read() as tx:
            return query.crash_page(tx, number, limit, before)

    def resolve(self, number: int, who: str, now: int) -> None:
        with self._database.write() as tx:
            incident.resolve(tx, number, who, self._base_url, now)

    def reopen(self, number: int, who: str, now: int) -> None:
        with self._database.write() as tx:
            incident.reopen(tx, number, who, now)

    def mute(self, number: int, until: int, why: str, who: str, now: int) -> None:
        """No alerts of this incident until then; a time that has passed ends a mute."""
        with self._database.write() as tx:
            incident.mute(tx, number, until, why, who, now)

    def merge(self, number: int, into: int, who: str, now: int) -> None:
        with self._database.write() as tx:
            incident.merge(tx, number, into, who, now)

    def note(self, number: int, text: str, who: str, now: int) -> None:
        """A line in the timeline."""
        with self._database.write() as tx:
            incident.note(tx, incident.get(tx, number).id, now, "note", text, who)

    # ------------------------------------------------------------ the outbox

    def fan_out(self, channels: Mapping[str, frozenset[str]], now: int) -> int:
        """Make deliveries of the events that are due. `channels`: name -> the event types it wants."""
        with self._database.write() as tx:
            return outbox.fan_out(tx, channels, now)

    def due(self, channel: str, now: int, limit: int = 20) -> tuple[DueDelivery, ...]:
        with self._database.read() as tx:
            return outbox.due(tx, channel, now, limit)

    def delivered(self, identity: str, channel: str, result: str, now: int) -> None:
        with self._database.write() as tx:
            outbox.delivered(tx, identity, channel, result, now)

    def died(self, identity: str, channel: str, result: str, now: int) -> None:
        with self._database.write() as tx:
            outbox.died(tx, identity, channel, result, now)

    def retry(self, identity: str, channel: str, result: str, next_try: int) -> None:
        with self._database.write() as tx:
            outbox.retry(tx, identity, channel, result, next_try)

    # ------------------------------------------------------------ the house

    def health(self) -> Health:
        with self._database.read() as tx:
            sources, depth = query.sources(tx), outbox.depth(tx)
        return Health(sources, depth, self._database.size(), self._database.revision())

    def units(self) -> tuple[UnitSeen, ...]:
        """Units with incidents, settled ones too."""
        with self._database.read() as tx:
            return query.units_seen(tx)

    def open_counts(self) -> tuple[OpenCount, ...]:
        with self._database.read() as tx:
            return query.open_counts(tx)

    def counters(self) -> tuple[Counter, ...]:
        """Numbers of all processes, for /metrics."""
        with self._database.read() as tx:
            return query.counters(tx)

    def put_counters(self, values: tuple[Counter, ...]) -> None:
        """Leave this process's own numbers (absolute values) for /metrics."""
        with self._database.write() as tx:
            for value in values:
                metrics.put(tx, self.host, value.name, dict(value.labels), value.value)

    def pulse(self) -> str:
        """Another text whenever something that a page shows has changed."""
        with self._database.read() as tx:
            return query.pulse(tx)
