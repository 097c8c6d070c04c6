"""The operator at the page: preview, read, apply, see it proved, undo. A program of its own, so that it can run in the
network of a box: `button.py LINK INCIDENT`. Prints one JSON object with what the page said on the way."""

from __future__ import annotations

import json
import shutil
import sys

from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as TooLong

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), "")
PATIENCE = 180_000  # milliseconds; a restart and a proof, on a busy machine


def press(page: Page, name: str) -> None:
    """Tick what must be ticked, press, and confirm in the dialog."""
    page.locator("form", has=page.get_by_role("button", name=name)).get_by_role("checkbox").check()
    page.get_by_role("button", name=name).click()
    page.get_by_role("dialog").get_by_role("button", name=name).click()


def until(page: Page, state: str) -> str:
    """Wait for the state's mark (by server-sent events: nothing is reloaded here); what the page says then."""
    try:
        page.get_by_text(state, exact=True).first.wait_for(timeout=PATIENCE)
    except TooLong:
        sys.exit(f"the page never said {state!r}: {page.url}\n{page.locator('main').inner_text()}")
    return page.locator("main").inner_text()


def main(link: str, incident: str) -> dict[str, str]:
    base = link.split("/login")[0]
    with sync_playwright() as tools, tools.chromium.launch(executable_path=CHROMIUM, args=ARGS) as browser:
        page = browser.new_page()
        page.goto(link)
        page.goto(f"{base}/incidents/{incident}")
        page.get_by_role("link", name="Preview").first.click()
        # The installed server is asked for its flags first: the page comes again by itself until it has answered.
        page.get_by_role("button", name="Apply and restart").wait_for(timeout=PATIENCE)
        said = {"preview": page.locator("main").inner_text()}
        press(page, "Apply and restart")
        said |= {"applied": until(page, "verified"), "action": page.url.rsplit("/", 1)[-1]}
        press(page, "Undo and restart")
        return said | {"undone": until(page, "undone")}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
