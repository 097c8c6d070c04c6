"""Units of users: whose a crash is, and that nobody can speak for the unit of somebody else."""

from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of, documents_of
from tests.crashes.story import Said
from triage.model import Outcome


def of_user(uid: int, lines: list[Said]) -> list[Said]:
    """The same, told by a unit of that user and by the user's own manager."""
    told = []
    for said in lines:
        manager = f"user@{uid}.service"
        if said.pid == 1:
            about = {"USER_UNIT": said.unit, "USER_INVOCATION_ID": said.run, "UNIT": "", "INVOCATION_ID": ""}
            fields = {**about, "_PID": "900", "_SYSTEMD_UNIT": manager, "_SYSTEMD_USER_UNIT": "init.scope"}
        else:
            fields = {"_SYSTEMD_UNIT": manager, "_SYSTEMD_USER_UNIT": said.unit}
        told.append(replace(said, fields={**said.fields, **fields}) if said.pid > 0 else said)
    return told


@pytest.mark.parametrize("render", [story.as_json, story.as_export])
def test_a_crash_of_a_users_unit_says_whose_it_is(render):
    found = documents_of(render(of_user(1000, story.story())))
    assert [(crash["unit"], crash["owner"], crash["outcome"]) for crash in found] == [(story.UNIT, 1000, "fatal")]
    assert "owner" not in documents_of(render(story.story()))[0]


def test_units_of_two_users_and_of_the_system_with_one_name_are_three_servers():
    lines = []
    for said, *others in zip(story.story(), of_user(1000, story.story()), of_user(1001, story.story()), strict=True):
        lines += [said, *others]
    found = crashes_of(story.as_json(lines))
    assert sorted((crash.owner or 0, crash.outcome) for crash in found) == [
        (0, Outcome.FATAL),
        (1000, Outcome.FATAL),
        (1001, Outcome.FATAL),
    ]
    assert {len(crash.ranks) for crash in found} == {8}


def test_a_users_manager_cannot_end_the_systems_unit():
    """Whoever may start units of their own can name one like the system's, and say its invocation."""
    healthy = [*story.starting(), *story.serving(10_000, 20)]
    ended = [said for said in of_user(1000, story.unit_failed(10_700)) if said.pid == 1]
    assert [crash.owner for crash in crashes_of(story.as_json([*healthy, *ended]))] in ([], [1000])
    real = crashes_of(story.as_json([*healthy, *story.unit_failed(10_700)]))
    assert [(crash.owner, crash.outcome) for crash in real] == [(None, Outcome.FATAL)]
