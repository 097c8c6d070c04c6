"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "action",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("diff", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=True),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("effective_at", sa.BigInteger(), nullable=True),
        sa.Column("watched_at", sa.BigInteger(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("steps", sa.Text(), nullable=False),
        sa.Column("measured", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "name", name=op.f("pk_action")),
    )
    op.create_index("ix_action_changed_at", "action", ["changed_at"], unique=False)
    op.create_index("ix_action_incident", "action", ["incident"], unique=False)
    op.create_index("ix_action_requested_at", "action", ["requested_at"], unique=False)
    op.create_index("ix_action_unit_state", "action", ["unit", "state"], unique=False)
    op.create_table(
        "context",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("invocation", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("host", "source", "invocation", name=op.f("pk_context")),
    )
    op.create_table(
        "counter",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("host", "name", "labels", name=op.f("pk_counter")),
    )
    op.create_table(
        "cursor",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=True),
        sa.Column("read_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "source", name=op.f("pk_cursor")),
    )
    op.create_table(
        "incident",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("exception", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("sglang_version", sa.Text(), nullable=True),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("alarms", sa.Integer(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.Column("noticed_at", sa.BigInteger(), nullable=True),
        sa.Column("mute_until", sa.BigInteger(), nullable=True),
        sa.Column("mute_why", sa.Text(), nullable=False),
        sa.Column("merged_into", sa.Integer(), nullable=True),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident")),
        sa.UniqueConstraint("host", "unit", "signature", name=op.f("uq_incident_host_unit_signature")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_incident_changed_at", "incident", ["changed_at"], unique=False)
    op.create_index("ix_incident_last_seen_id", "incident", ["last_seen", "id"], unique=False)
    op.create_index("ix_incident_state_last_seen", "incident", ["state", "last_seen"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("incident", sa.Integer(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index("ix_outbox_settled_due", "outbox", ["settled", "due"], unique=False)
    op.create_table(
        "wanted_rollback",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("filed_at", sa.BigInteger(), nullable=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("host", "action", name=op.f("pk_wanted_rollback")),
    )
    op.create_table(
        "crash",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("invocation", sa.Text(), nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.Column("crash_id", sa.Text(), nullable=False),
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("grade", sa.Text(), nullable=False),
        sa.Column("alarming", sa.Boolean(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=True),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("notice", sa.Text(), nullable=True),
        sa.Column("state_before", sa.Text(), nullable=True),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["incident"], ["incident.id"], name=op.f("fk_crash_incident")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_crash")),
        sa.UniqueConstraint(
            "host",
            "unit",
            "invocation",
            "position",
            "crash_id",
            name=op.f("uq_crash_host_unit_invocation_position_crash_id"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_crash_incident_id", "crash", ["incident", "id"], unique=False)
    op.create_index("ix_crash_opened_at", "crash", ["opened_at"], unique=False)
    op.create_table(
        "delivery",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("outbox", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["outbox"], ["outbox.id"], name=op.f("fk_delivery_outbox")),
        sa.PrimaryKeyConstraint("host", "outbox", "channel", name=op.f("pk_delivery")),
    )
    op.create_index("ix_delivery_state_next_try", "delivery", ["state", "next_try"], unique=False)
    op.create_table(
        "timeline",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["incident"], ["incident.id"], name=op.f("fk_timeline_incident")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_timeline")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_timeline_incident_id", "timeline", ["incident", "id"], unique=False)
