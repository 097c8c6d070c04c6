"""Where `watch` begins on a machine it has not seen: history stays silent, what still runs is known from its start."""

from __future__ import annotations

import json
import time

from tests.e2e.installed import Installed
from tests.e2e.server import Server

# The real reader on the live journal, with seconds for minutes.
READ = """
import json, time
from triage.sources import beginning
from triage.sources import open_source
beginning.RECENT, beginning.LOADING = 5_000_000, 60_000_000
source = open_source("journal:", units=["sglang-first-*.service"])
seen, end = [], time.monotonic() + 2
for batch in source.batches():
    seen += [[line.unit, line.text, batch.cursor is not None] for line in batch.lines]
    if time.monotonic() > end:
        break
print(json.dumps(seen))
"""


def test_a_first_start_knows_what_runs_and_does_not_tell_old_crashes(triage: Installed) -> None:
    old = Server(triage.box, "first-old", 31500)
    old.crash()
    running = Server(triage.box, "first-running", 31501, flags="--disable-cuda-graph")
    running.start()
    time.sleep(6)  # its start is older than RECENT then
    running.generate()
    argv = ["/opt/triage/bin/python", "-I", "-c", READ]
    seen = json.loads(triage.box.run(argv).out)
    assert {unit for unit, _, _ in seen} == {running.name}
    texts = [text for _, text, _ in seen]
    assert any("server_args=ServerArgs(" in text for text in texts)
    assert any("fired up and ready" in text for text in texts)
    assert any("POST /generate" in text for text in texts)
    # A place to come back to is given only once history is over.
    assert not any(has for _, text, has in seen if "server_args" in text)
    assert all(has for _, text, has in seen if "POST /generate" in text)
    running.stop()
