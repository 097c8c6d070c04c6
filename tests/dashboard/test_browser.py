"""The pages in a real browser: filter, preview, confirm, live progress, undo; with script and without.

Fails clearly where Chromium is missing, unless TRIAGE_E2E=skip.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.dashboard.conftest import NOW, TOKEN
from tests.dashboard.made import MadeHands, result, units
from triage.actionmodel import ActionState
from triage.dashboard.app import create_app
from triage.rulebase.rule import Rule, Rules
from triage.rulebase.shelf import InForce
from triage.settings import Settings, Web
from triage.store import Store

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.environ.get("TRIAGE_E2E") == "skip", reason="TRIAGE_E2E=skip"),
]

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PAGES = (
    "/incidents?state=all",
    "/incidents/1",
    "/incidents/2",
    "/incidents/1/remedies/disable-cuda-graph",
    "/actions",
    "/actions/a1",
    "/workarounds",
    "/units",
    "/rules",
    "/rules/dflash-graph-replay-none",
    "/login",
)


@dataclass(frozen=True)
class Site:
    url: str
    store: Store
    hands: MadeHands


@pytest.fixture
def site(tmp_path: Path, store: Store, hands: MadeHands, rules: tuple[Rule, ...]) -> Iterator[Site]:
    """The dashboard under a real server, on a port that was free."""
    settings = Settings(state_dir=tmp_path, runtime_dir=tmp_path / "run", web=Web(port=0))
    clock = lambda: NOW / 1e6 + 60  # noqa: E731
    present = InForce(Rules(rules))
    app = create_app(settings, store, token=TOKEN, hands=hands, units=units, in_force=lambda: present, clock=clock)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Site(f"http://127.0.0.1:{listener.getsockname()[1]}", store, hands)
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.fail(
            "the browser tests need Chromium: run `apt-get install chromium`, or leave them out with TRIAGE_E2E=skip",
            pytrace=False,
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with _browser() as one:
        yield one


@pytest.fixture
def opened(browser: Any, site: Site) -> Iterator[Callable[..., Any]]:
    """Opens a page as somebody who followed the printed link. Whatever the browser complains of fails the test."""
    complaints: list[str] = []
    contexts = []

    def page(**options: Any) -> Any:
        context = browser.new_context(base_url=site.url, **options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        made = context.new_page()
        made.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        made.on("pageerror", lambda error: complaints.append(str(error)))
        made.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        made.goto(f"/login?token={TOKEN}")
        assert TOKEN not in made.url
        return made

    yield page
    for context in contexts:
        context.close()
    assert not complaints


def test_the_list_is_filtered(opened: Callable[..., Any]) -> None:
    page = opened()
    page.goto("/incidents")
    assert page.locator("ul.incidents > li").count() == 2
    page.get_by_label("Severity").select_option("critical")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**severity=critical**")
    assert page.locator("ul.incidents > li").count() == 1
    page.get_by_role("link", name="DFlash loses").click()
    page.wait_for_url("**/incidents/1")


def test_preview_confirm_progress_and_undo(opened: Callable[..., Any], site: Site) -> None:
    page = opened()
    page.goto("/incidents/1")
    page.get_by_role("link", name="Preview Run without CUDA graphs").click()
    page.get_by_text("+ExecStart=/opt/venv").wait_for()
    button = page.get_by_role("button", name="Apply and restart")
    button.click()  # the box is not ticked: the browser itself refuses
    assert page.get_by_role("dialog").count() == 0
    page.get_by_label("I have read the diff").check()
    button.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Not now").click()
    assert not site.hands.filed
    button.click()
    dialog.get_by_role("button", name="Apply and restart").click()
    page.wait_for_url("**/actions/i1-*")
    assert len(site.hands.filed) == 1
    page.get_by_text("root has not taken it up yet").wait_for()

    # Root's account arrives; the page follows by itself.
    request = site.hands.filed[0]
    for state, going, word in (
        (ActionState.RUNNING, True, "loading weights, 96 s"),
        (ActionState.VERIFIED, False, "the unit serves again"),
    ):
        account = replace(result(request.action, state, NOW, going=going), request=request)
        site.store.import_result(account, NOW + 1)
        page.get_by_text(word).wait_for()

    page.get_by_label("may restart now").check()
    page.get_by_role("button", name="Undo and restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo and restart").click()
    page.wait_for_url("**/actions/i1-undo-*")
    assert site.hands.filed[1].target == request.action


def test_everything_works_without_script(opened: Callable[..., Any], site: Site) -> None:
    page = opened(java_script_enabled=False)
    page.goto("/incidents/1")
    page.get_by_role("link", name="Preview Run without CUDA graphs").click()
    page.get_by_label("I have read the diff").check()
    page.get_by_role("button", name="Apply and restart").click()
    page.wait_for_url("**/actions/i1-*")
    assert len(site.hands.filed) == 1
    page.goto("/incidents/1")
    page.get_by_role("button", name="Resolve").click()
    page.get_by_role("button", name="Reopen").wait_for()


def test_what_somebody_is_about_to_do_is_not_taken_away_by_an_update(opened: Callable[..., Any], site: Site) -> None:
    site.store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    page = opened()
    page.goto("/incidents/1")
    page.locator("#live[data-on=yes]").wait_for()
    page.get_by_text("Mute", exact=True).first.click()
    field = page.get_by_role("textbox", name="Why")
    field.fill("driver update")
    site.store.resolve(1, "somebody else", NOW + 5)
    page.locator("#head .mark.resolved").wait_for()
    assert field.input_value() == "driver update"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways_on_a_phone(opened: Callable[..., Any], site: Site, scheme: str) -> None:
    site.store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    page = opened(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    for path in PAGES:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, path


def test_hostile_log_text_stays_text(opened: Callable[..., Any]) -> None:
    page = opened()
    for path in ("/incidents", "/incidents/2"):
        page.goto(path)
        assert page.locator("script").count() == 1
        assert "<script>alert(" in page.locator("h1, h2").filter(has_text="RuntimeError").first.inner_text()
