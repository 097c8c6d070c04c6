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


def test_an_incident_that_was_undiagnosed_is_known_at_the_next_start_with_its_rule(
    home: Path, run: Type, caplog: pytest.LogCaptureFixture
) -> None:
    rules = home / "rules"
    rules.mkdir()
    (home / "etc").mkdir()
    (home / "etc/triage.toml").write_text(f'rules = ["{rules}"]\n')
    names = ("dflash-graph-replay-none", "replayed-graph-none", "spec-worker", "own-code-failed")
    masked = [rules / f"{name}.yaml" for name in names]
    for path in masked:
        path.write_text("")
    log = home / "server.export"
    log.write_bytes(story.as_export(story.story()))
    run("watch", "--source", str(log))
    assert "undiagnosed" in run("incidents", "show", "1").stdout
    masked[0].unlink()
    healthy = home / "healthy.export"
    healthy.write_bytes(story.as_export(story.starting()))
    caplog.set_level("INFO", logger="triage")
    run("watch", "--source", str(healthy))
    assert "incident 1 is known now: dflash-graph-replay-none" in [record.getMessage() for record in caplog.records]
    shown = run("incidents", "show", "1").stdout
    assert "undiagnosed" not in shown
    assert "rules changed, and one knows it now" in shown
