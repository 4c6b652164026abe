"""Chromium for tests of pages, with tabs that fail on any error or request."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

WIDE, PHONE = 1280, 390
CHROMIUM = "/usr/bin/chromium"


def prepare_chromium() -> str:
    """Return the path of Chromium; install Debian's package first if it is missing, and this user may do so."""
    path = os.environ.get("CHROMIUM", CHROMIUM)
    if path == CHROMIUM and not Path(path).exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # Several processes may find it missing at once; apt-get update fails while another one runs.
        with (Path(tempfile.gettempdir()) / "chromium.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
                subprocess.run(["apt-get", "-qq", *arguments], env=quiet, stdout=subprocess.DEVNULL, check=True)
    assert Path(path).exists(), f"{path} is missing: install Chromium (apt-get install chromium), or set CHROMIUM"
    return path


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run the installed Chromium until the block ends."""
    path = prepare_chromium()
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
