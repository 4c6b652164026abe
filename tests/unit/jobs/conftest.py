"""Fixtures of the tests of jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.lakes import GrowingLake

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run each test in a new folder, also its home folder, so that no settings from outside apply."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in [name for name in os.environ if name.startswith("COMMITLAKE_")]:
        monkeypatch.delenv(name)
    return folder


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A day of a shop, with groups that have a lag; for reading only."""
    from tests.support.shop_days import shop_day

    return shop_day(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, as it is installed on this machine."""
    from tests.support.browsers import running_browser

    with running_browser() as browser:
        yield browser


@pytest.fixture(params=["wide", "phone"])
def width(request: pytest.FixtureRequest) -> int:
    """A screen's width."""
    from tests.support.browsers import PHONE, WIDE

    return {"wide": WIDE, "phone": PHONE}[request.param]


@pytest.fixture
def opened(browser: Browser, width: int) -> Iterator[Page]:
    """A tab that fails on any error, and on any request except the page itself."""
    from tests.support.browsers import opened_tab

    with opened_tab(browser, width) as page:
        yield page
