"""Golden crashes: a log in, the finding out. `make golden` writes the answers anew; they are reviewed as a diff."""

import json
from pathlib import Path

import pytest

from tests.crashes.scanning import documents_of

GOLDEN = Path(__file__).parent / "golden"
LOGS = sorted(path for path in GOLDEN.iterdir() if path.suffix in (".log", ".export"))
LEFT_OUT = ("context", "position")  # long, and other tests' business


def finding(path: Path) -> str:
    crashes = documents_of(path.read_bytes())
    for crash in crashes:
        for name in LEFT_OUT:
            del crash[name]
        evidence = crash["evidence"]
        evidence["lines"] = [f"{line['n'] or '-'} {line['rank'] or '-'} {line['text']}" for line in evidence["lines"]]
        crash["root"]["frames"] = [f"{f['file']}:{f['line']} {f['function']}" for f in crash["root"]["frames"]]
    return json.dumps(crashes, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_the_finding_is_the_reviewed_one(path, request):
    answer = path.with_suffix(path.suffix + ".json")
    found = finding(path)
    if request.config.getoption("--golden"):
        answer.write_text(found)
    assert found == answer.read_text(), f"{path.name}: `make golden` writes it anew, then review the diff"


def test_every_answer_has_its_log():
    assert {path.name.removesuffix(".json") for path in GOLDEN.glob("*.json")} == {path.name for path in LOGS}
