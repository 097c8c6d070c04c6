"""`triage watch` goes on where something that people wrote is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Type
from tests.crashes import story


def test_a_faulty_rule_of_the_site_is_told_and_does_not_stop_the_watch(
    home: Path, run: Type, caplog: pytest.LogCaptureFixture
) -> None:
    rules = home / "rules"
    rules.mkdir()
    (rules / "slip.yaml").write_text("title: [\n")
    (rules / "dflash-graph-replay-none.yaml").write_text("title: a shipped rule, spoilt\n")
    (home / "etc").mkdir()
    (home / "etc/triage.toml").write_text(f'rules = ["{rules}"]\n')
    log = home / "server.export"
    log.write_bytes(story.as_export(story.story()))
    assert run("scan", "--rules", str(rules), str(log)).exit_code == 2
    assert run("watch", "--source", str(log)).exit_code == 0
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert any("slip.yaml:" in text for text in told)
    assert any("dflash-graph-replay-none.yaml:" in text for text in told)
    assert "undiagnosed" not in run("incidents", "show", "1").stdout
