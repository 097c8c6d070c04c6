"""Guards, autonomy, and when workarounds retire."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "breaker",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("reset_at", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_breaker")),
    )
    op.create_table(
        "demotion",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "rule", "unit", name=op.f("pk_demotion")),
    )
    op.create_table(
        "decision",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("crash", sa.Integer(), nullable=False),
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "crash", name=op.f("pk_decision")),
    )
    op.create_index("ix_decision_incident", "decision", ["incident"], unique=False)
    op.create_table(
        "retirement",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("release", sa.Text(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=True),
        sa.Column("proposed_at", sa.BigInteger(), nullable=True),
        sa.Column("proposed_for", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("failed", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("host", "action", name=op.f("pk_retirement")),
    )
