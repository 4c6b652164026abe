"""Chromium for tests of pages, with tabs that fail on any error or request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

WIDE, PHONE = 1280, 390
CHROMIUM = "/usr/bin/chromium"


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run the installed Chromium until the block ends."""
    path = os.environ.get("CHROMIUM", CHROMIUM)
    assert Path(path).exists(), f"{path} is missing: install Chromium (apt-get install chromium), or set CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def opened_tab(browser: Browser, width: int, scheme: Literal["light", "dark"] = "light") -> Iterator[Page]:
    """Open a tab that fails on any error, and on any request except that of the page itself."""
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url != page.url else None)
    yield page
    context.close()
    assert [text for text in wrong if not text.startswith("file:")] == []
    assert sum(text.startswith("file:") for text in wrong) <= 1
