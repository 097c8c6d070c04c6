"""Runs the migrations on the connection `triage.store` hands over, inside its transaction. Nothing else runs them."""

from alembic import context

from triage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
