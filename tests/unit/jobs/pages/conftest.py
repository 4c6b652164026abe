"""Fixtures of the tests of pages: their lake, and a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browsers import PHONE, WIDE, opened_tab, running_browser
from tests.support.lakes import GrowingLake
from tests.support.shop_days import shop_day


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A day of a shop, with groups that have a lag; for reading only."""
    return shop_day(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, as it is installed on this machine."""
    with running_browser() as browser:
        yield browser


@pytest.fixture(params=[WIDE, PHONE])
def width(request: pytest.FixtureRequest) -> int:
    """A screen's width."""
    width: int = request.param
    return width


@pytest.fixture
def opened(browser: Browser, width: int) -> Iterator[Page]:
    """A tab that fails on any error, and on any request except the page itself."""
    with opened_tab(browser, width) as page:
        yield page
