"""packaging/install: again and again, and away again."""

from __future__ import annotations

from tests.e2e.box import Box
from tests.e2e.installed import SERVICES, Installed


def test_a_second_run_keeps_what_the_operator_changed(triage: Installed) -> None:
    box = triage.box
    policy = box.pull("/etc/triage/policy.toml").decode() + "# ours\n"
    box.push(policy, "/etc/triage/policy.toml")
    said = triage.run_install().out
    assert "kept your /etc/triage/policy.toml" in said
    assert box.pull("/etc/triage/policy.toml").decode() == policy
    assert box.systemctl("is-active", *SERVICES).split() == ["active"] * len(SERVICES)


def test_what_root_runs_can_be_written_by_root_alone(triage: Installed) -> None:
    writable = triage.box.run("find /opt/triage ! -type l \\( ! -user root -o -perm /022 \\) -print").out
    assert writable == ""


def test_the_services_are_confined(triage: Installed) -> None:
    for service in ("triage-watch", "triage-worker", "triage-web", "triage-apply"):
        out = triage.box.run(["systemd-analyze", "security", "--no-pager", f"{service}.service"], check=False).out
        level = float(out.rsplit("Overall exposure level", 1)[1].split(":")[1].split()[0])
        assert (service, level < 2.5) == (service, True)


def test_uninstall_leaves_the_records_and_purge_leaves_nothing() -> None:
    with Box("uninstall") as box:
        before = box.tree("/etc", "/usr/local/bin")
        installed = Installed(box)
        installed.install()
        said = box.run(["/root/install", "--uninstall"]).out
        assert "kept /var/lib/triage" in said
        assert (
            box.run("test -e /var/lib/triage/triage.db && test -d /var/lib/triage-apply && ! test -e /opt/triage").code
            == 0
        )
        box.run(["/root/install", "--uninstall", "--purge"])
        after = box.tree("/etc", "/usr/local/bin")
        # Not ours to take away: the accounts' files of the stand-in's user, and a folder that others may use too.
        theirs = (
            "/etc/passwd",
            "/etc/shadow",
            "/etc/group",
            "/etc/gshadow",
            "/etc/subuid",
            "/etc/subgid",
            "/etc/sysusers.d",
            "/etc/standin",
        )
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert {path for path in changed if not path.startswith(theirs) and not path.endswith(".pyc")} == set()
        assert box.run(["id", "triage"], check=False).code != 0
        assert box.run("ls -d /var/lib/triage* /run/triage", check=False).out == ""
