"""Draw the pictures of the page for analysts: what its five analyses show of the demo's shop.

    python -m docs.generate.analysis_pictures

It runs `commitlake demo` in a temporary folder, then the code of the page in a Spark session, and takes a picture of
each `figure` with the machine's Chromium, without a network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright
from plotly.graph_objects import Figure

from commitlake.jobs.arguments.runner import get_spark_session
from commitlake.jobs.cli import main as cli
from docs.generate.page_picture import CHROMIUM

DOCS = Path(__file__).parents[1]
_PAGE, _HEADING = DOCS / "how-to" / "analysts.md", "## Five analyses"
_ORDERS = 4000
_WIDTH, _HEIGHT = 900, 360


def main() -> None:
    """Draw the pictures."""
    with tempfile.TemporaryDirectory() as name:
        cli.main(["demo", "--dir", f"{name}/demo", "--orders", str(_ORDERS), "--quiet"])
        spark = get_spark_session("pictures")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        for number, code in enumerate(_read_analyses(), start=1):
            names: dict[str, object] = {"spark": spark}
            exec(code.replace("/data/lake", f"{name}/demo/lake"), names)  # noqa: S102 (this project's own page)
            figure = names["figure"]
            assert isinstance(figure, Figure)
            page = Path(name) / f"{number}.html"
            figure.update_layout(template="plotly_white", margin={"l": 60, "r": 20, "t": 20, "b": 50})
            figure.write_html(page, include_plotlyjs=True, config={"displayModeBar": False})
            _take(page, DOCS / "images" / f"analysis-{number}.png")
        spark.stop()


def _read_analyses() -> Iterator[str]:
    """Yield the code of each analysis on the page."""
    section = _PAGE.read_text(encoding="utf-8").split(_HEADING, 1)[1].split("\n## ", 1)[0]
    for block in section.split("```python\n")[1:]:
        yield block.split("```", 1)[0]


def _take(page: Path, picture: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_selector(".main-svg")
        tab.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
