"""How an action is proved after its first proof: profile, progress, verdict."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "proof",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("window", sa.BigInteger(), nullable=True),
        sa.Column("sent", sa.Integer(), nullable=False),
        sa.Column("measured", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "action", name=op.f("pk_proof")),
    )
    op.create_index("ix_proof_state", "proof", ["state"], unique=False)
