"""The tables. `host` is part of every key; times are integer microseconds UTC; JSON is text, so that any database does.

Imported by the store and its migrations alone. A change here needs a new file in migrations/versions and its name in
REVISIONS; a test compares what the migrations build with what stands here.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

REVISIONS = ("0001", "0002", "0003", "0004")  # all that this code knows, oldest first
HEAD = REVISIONS[-1]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# How far a source was read. `read_at` is when that was saved: the age of what the pages show.
cursor = Table(
    "cursor",
    metadata,
    Column("host", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("cursor", Text),
    Column("read_at", BigInteger, nullable=False),
)

# What is known of a running invocation, saved with the cursor it belongs to.
context = Table(
    "context",
    metadata,
    Column("host", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("invocation", Text, primary_key=True),
    Column("document", Text, nullable=False),
)

incident = Table(
    "incident",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("host", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("signature", Text, nullable=False),  # version:key
    Column("state", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("rule", Text, nullable=False),  # '' = undiagnosed
    Column("phase", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("exception", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("place", Text, nullable=False),  # file:line in function
    Column("sglang_version", Text),
    Column("crashes", Integer, nullable=False),
    Column("alarms", Integer, nullable=False),  # of those, the ones that count as failures
    Column("first_seen", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("noticed_at", BigInteger),  # when the last incident.* was put into the outbox
    Column("mute_until", BigInteger),
    Column("mute_why", Text, nullable=False),
    Column("merged_into", Integer),
    Column("changed_at", BigInteger, nullable=False),
    UniqueConstraint("host", "unit", "signature"),
    Index("ix_incident_last_seen_id", "last_seen", "id"),
    Index("ix_incident_state_last_seen", "state", "last_seen"),
    Index("ix_incident_changed_at", "changed_at"),
    sqlite_autoincrement=True,  # the number stands in alerts: it is never given twice
)

crash = Table(
    "crash",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("host", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("invocation", Text, nullable=False),
    Column("position", Text, nullable=False),
    Column("crash_id", Text, nullable=False),
    Column("incident", ForeignKey("incident.id"), nullable=False),
    Column("signature", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("grade", Text, nullable=False),
    Column("alarming", Boolean, nullable=False),
    Column("started", BigInteger),
    Column("ended", BigInteger),
    Column("opened_at", BigInteger, nullable=False),
    Column("closed_at", BigInteger),
    Column("notice", Text),  # its outbox id, at most one
    Column("state_before", Text),  # the incident's, should this turn out to be no failure
    Column("weight", Integer, nullable=False),  # failures and evidence: a later account with less does not replace
    Column("document", LargeBinary, nullable=False),  # JSON, zstd
    UniqueConstraint("host", "unit", "invocation", "position", "crash_id"),
    Index("ix_crash_incident_id", "incident", "id"),
    Index("ix_crash_opened_at", "opened_at"),
    sqlite_autoincrement=True,
)

timeline = Table(
    "timeline",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("host", Text, nullable=False),
    Column("incident", ForeignKey("incident.id"), nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),
    Index("ix_timeline_incident_id", "incident", "id"),
    sqlite_autoincrement=True,
)

# One row an event; `id` is the webhook-id. The worker fans it out into one delivery per channel when it is due.
outbox = Table(
    "outbox",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("incident", Integer),
    Column("payload", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("settled", Text, nullable=False),  # '' waits; sent (fanned out), cancelled, nobody (no channel wants it)
    Index("ix_outbox_settled_due", "settled", "due"),
)

delivery = Table(
    "delivery",
    metadata,
    Column("host", Text, primary_key=True),
    Column("outbox", ForeignKey("outbox.id"), primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("state", Text, nullable=False),  # waiting, delivered, dead
    Column("tries", Integer, nullable=False),
    Column("next_try", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("result", Text, nullable=False),
    Index("ix_delivery_state_next_try", "state", "next_try"),
)

action = Table(
    "action",
    metadata,
    Column("host", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("incident", Integer, nullable=False),
    Column("rule", Text, nullable=False),
    Column("remedy", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("cost", Text, nullable=False),
    Column("diff", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Column("started", BigInteger),
    Column("ended", BigInteger),
    Column("effective_at", BigInteger),  # the unit runs with it since then
    Column("watched_at", BigInteger),  # when its window had passed in silence
    Column("text", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("steps", Text, nullable=False),
    Column("measured", Text, nullable=False),
    Column("digest", Text, nullable=False),  # of the last account imported
    Column("changed_at", BigInteger, nullable=False),
    Index("ix_action_incident", "incident"),
    Index("ix_action_unit_state", "unit", "state"),
    Index("ix_action_requested_at", "requested_at"),
    Index("ix_action_changed_at", "changed_at"),
)

# A signature came back under an action: somebody who may write the spool is to ask for its rollback.
wanted_rollback = Table(
    "wanted_rollback",
    metadata,
    Column("host", Text, primary_key=True),
    Column("action", Text, primary_key=True),
    Column("unit", Text, nullable=False),
    Column("incident", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("filed_at", BigInteger),
    Column("request", Text, nullable=False),  # the name it was filed under
)

# The breaker of mass action: open while `opened_at` is set. Actions before `reset_at` count no more.
breaker = Table(
    "breaker",
    metadata,
    Column("host", Text, primary_key=True),
    Column("opened_at", BigInteger),
    Column("why", Text, nullable=False),
    Column("reset_at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),  # reset it last
)

# Rules that failed a proof on a unit: nothing of theirs is done unasked there until a person takes the row away.
demotion = Table(
    "demotion",
    metadata,
    Column("host", Text, primary_key=True),
    Column("rule", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("action", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
)

# What autonomy made of a crash, once for each.
decision = Table(
    "decision",
    metadata,
    Column("host", Text, primary_key=True),
    Column("crash", Integer, primary_key=True),
    Column("incident", Integer, nullable=False),
    Column("unit", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("remedy", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("action", Text, nullable=False),  # its name, planned or filed
    Column("plan", Text, nullable=False),  # digests and time of what was planned: what a yes stands for
    Column("decided_at", BigInteger, nullable=False),
    Index("ix_decision_incident", "incident"),
)

# When a workaround may go: what a person set beside the rule's own `fixed_in`, and what was proposed and tried.
retirement = Table(
    "retirement",
    metadata,
    Column("host", Text, primary_key=True),
    Column("action", Text, primary_key=True),
    Column("release", Text, nullable=False),  # by a person; '' none
    Column("due", BigInteger),  # by a person
    Column("proposed_at", BigInteger),
    Column("proposed_for", Text, nullable=False),  # release installed when it was proposed
    Column("why", Text, nullable=False),
    Column("failed", Text, nullable=False),  # releases on which it came back, by blanks
)

# How an action is proved after root's own proof: a soak, the speed, a window of silence.
proof = Table(
    "proof",
    metadata,
    Column("host", Text, primary_key=True),
    Column("action", Text, primary_key=True),
    Column("unit", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("window", BigInteger),  # of this action alone, microseconds
    Column("sent", Integer, nullable=False),  # requests of the soak
    Column("measured", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Index("ix_proof_state", "state"),
)

# Counters and gauges of processes that have no page of their own, for /metrics. labels: JSON, keys sorted.
counter = Table(
    "counter",
    metadata,
    Column("host", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("labels", Text, primary_key=True),
    Column("value", Float, nullable=False),
)

# The machines that wrote here, by /etc/machine-id, and the name (`host`) that their rows bear.
machine = Table(
    "machine",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
)
