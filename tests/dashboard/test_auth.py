"""The token, the sessions made of it, and the checks on headers, without an application around them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triage.dashboard.auth import Keeper, check_bind, foreign_origin, host_allowed, load_token, local_path, login_link
from triage.model import InputError

TOKEN = "t" * 43


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"])
def test_loopback_is_bound(host: str) -> None:
    check_bind(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "gpu17", "", "127.0.0.1.example.org"])
def test_any_other_address_is_refused_with_the_way_round(host: str) -> None:
    with pytest.raises(InputError, match="SSH tunnel"):
        check_bind(host)


def test_the_token_is_made_once_with_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        token = load_token(tmp_path / "run")
    finally:
        os.umask(before)
    file = tmp_path / "run" / "web-token"
    assert len(token) >= 43
    assert file.stat().st_mode & 0o777 == 0o640
    assert load_token(tmp_path / "run") == token
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["web-token"]


def test_a_planted_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "web-token"
    file.write_text("x" * 43)
    file.chmod(0o666)
    with pytest.raises(InputError, match="remove it"):
        load_token(tmp_path)
    file.unlink()
    (tmp_path / "other").write_text("x" * 43)
    file.symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="remove the file"):
        load_token(tmp_path)


def test_a_cut_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "web-token"
    file.write_text("short")
    file.chmod(0o640)
    with pytest.raises(InputError, match="remove it"):
        load_token(tmp_path)


def test_only_the_token_is_accepted() -> None:
    keeper = Keeper(TOKEN)
    assert keeper.accepts(TOKEN)
    assert keeper.bearer(f"Bearer {TOKEN}")
    for wrong in ("", "t" * 42, "é" * 43, "\udce9"):
        assert not keeper.accepts(wrong)
        assert not keeper.bearer(f"Bearer {wrong}")
    assert not keeper.bearer(f"Basic {TOKEN}")


def test_a_session_ends_and_cannot_be_forged_or_lengthened() -> None:
    keeper = Keeper(TOKEN)
    cookie = keeper.issue(1000.0)
    session = keeper.session(cookie, 1001.0)
    assert session is not None
    name, end, signature = cookie.split(".")
    assert keeper.session(cookie, int(end) + 1) is None
    assert keeper.session(f"{name}.{int(end) + 9999}.{signature}", 1001.0) is None
    assert keeper.session(f"{'0' * 32}.{end}.{signature}", 1001.0) is None
    assert keeper.session("", 1001.0) is None
    assert Keeper("u" * 43).session(cookie, 1001.0) is None


def test_each_session_has_its_own_csrf_word() -> None:
    keeper = Keeper(TOKEN)
    one, two = (keeper.session(keeper.issue(0.0), 1.0) for _ in range(2))
    assert one is not None
    assert two is not None
    assert one.csrf != two.csrf
    assert TOKEN not in one.csrf


@pytest.mark.parametrize("host", ["localhost", "localhost:8475", "127.0.0.1:9000", "[::1]:8475", "LOCALHOST"])
def test_loopback_names_are_answered(host: str) -> None:
    assert host_allowed(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.nip.io:80", "localhost.evil.example", "10.0.0.1", "localhost:x", "::1"]
)
def test_other_names_are_not(host: str) -> None:
    assert not host_allowed(host)


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, True),
        ({"origin": "http://localhost:8475"}, True),
        ({"origin": "http://localhost:8475", "sec-fetch-site": "same-origin"}, True),
        ({"origin": "null", "sec-fetch-site": "same-origin"}, True),  # a form under Referrer-Policy: no-referrer
        ({"origin": "null"}, False),
        ({"origin": "null", "sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://localhost:9999"}, False),  # another server on this loopback
        ({"origin": "http://localhost:9999", "sec-fetch-site": "same-site"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
    ],
)
def test_a_change_must_come_from_our_own_page(headers: dict[str, str], own: bool) -> None:
    assert (foreign_origin({"host": "localhost:8475", **headers}) is None) is own


def test_after_signing_in_only_our_own_pages_follow() -> None:
    assert local_path("/incidents/3?crash=1") == "/incidents/3?crash=1"
    for elsewhere in (
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "",
        "javascript:alert(1)",
        "/a\r\nSet-Cookie: x",
    ):
        assert local_path(elsewhere) == "/"


def test_the_printed_link_is_right_for_ipv6() -> None:
    assert login_link("::1", 8475, TOKEN) == f"http://[::1]:8475/login?token={TOKEN}"
    assert login_link("127.0.0.1", 8475, TOKEN) == f"http://127.0.0.1:8475/login?token={TOKEN}"
