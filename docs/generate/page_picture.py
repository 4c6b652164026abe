"""Draw the picture of a page in the README: an order's history, as `commitlake lineage --html` writes it.

    python -m docs.generate.page_picture

It fills a small shop's store, archives it in a temporary folder, writes the page, and takes `docs/images/page.png` with
the machine's Chromium, without a network.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.jobs.cli import main as cli

PICTURE = Path(__file__).parents[1] / "images" / "page.png"
ORDERS = 40
_WIDTH, _HEIGHT = 1000, 900
CHROMIUM = "/usr/bin/chromium"


def main() -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as name:
        store, lake, page = (Path(name) / each for each in ("broker-a/store", "lake", "order.html"))
        fill_shop_store(store, orders=ORDERS)
        cli.main(["archive", "--store", str(store), "--lake", str(lake), "--local", "--no-quality", "--quiet"])
        cli.main(["lineage", "--lake", str(lake), "--key", "order-4711", "--html", str(page), "--quiet"])
        text = page.read_text(encoding="utf-8").replace(str(lake), "/data/lake")
        page.write_text(text, encoding="utf-8")
        _take(page)


def _take(page: Path) -> None:
    path = os.environ.get("CHROMIUM", CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.locator("#picture").scroll_into_view_if_needed()
        tab.locator("#picture").screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
