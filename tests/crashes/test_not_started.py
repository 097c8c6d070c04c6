"""Units that the manager could not start at all."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import UNIT, Said
from triage.model import Outcome

JOB = "be02cf6855d2428ba40df7e9d022f03d"
ROADS = [story.as_json, story.as_export, story.as_short]


def job(result, ms=100):
    about = {"MESSAGE_ID": JOB, "JOB_TYPE": "start", "JOB_RESULT": result}
    word = "Dependency failed for" if result == "dependency" else "Failed to start"
    return Said(f"{word} {UNIT} - A server.", 1, ms, about)


@pytest.mark.parametrize("render", ROADS)
def test_what_the_unit_requires_failed(render):
    said = [job("dependency"), Said(f"{UNIT}: Job {UNIT}/start failed with result 'dependency'.", 1, 101)]
    (crash,) = crashes_of(render(said))
    assert (crash.root.cause.exception, crash.outcome, crash.unit) == ("NotStarted", Outcome.FATAL, UNIT)
    assert crash.end.result == "dependency"


@pytest.mark.parametrize("name", ["local-fs.target - Local File Systems", "heron.service - A web server"])
def test_what_a_boot_says_of_other_units_in_a_text_is_no_crash(name):
    assert crashes_of(story.as_short([Said(f"Dependency failed for {name}.", 1, 100)])) == []


@pytest.mark.parametrize("render", ROADS)
def test_what_the_manager_failed_to_do_is_the_message(render):
    files = f"{UNIT}: Failed to load environment files: No such file or directory"
    said = [Said(files, 1, 100), Said(f"{UNIT}: Failed to run 'start' task: No such file or directory", 1, 101)]
    (crash,) = crashes_of(render([*said, story.unit_failed(102, result="resources")[1], job("failed", 103)]))
    assert (crash.root.cause.exception, crash.root.cause.message) == ("UnitResources", files)
    assert crash.outcome is Outcome.FATAL


@pytest.mark.parametrize("render", ROADS)
def test_another_end_is_not_told_by_such_words(render):
    said = [*story.starting(), Said(f"{UNIT}: Failed to set up IP firewalling, ignoring: no BPF", 1, 12_000)]
    (crash,) = crashes_of(render([*said, *story.unit_failed(13_000), job("failed", 13_001)]))
    assert crash.root.cause.exception == "SIGKILL"
    assert crashes_of(render([*said, *story.serving(13_000, 4)])) == []
