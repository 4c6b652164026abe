"""The lake of the pages' tests."""

from __future__ import annotations

import pytest

from tests.support.lakes import GrowingLake
from tests.support.shop_days import shop_day


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A shop's day, with groups that are behind; not to be changed."""
    return shop_day(tmp_path_factory.mktemp("shop"))
