"""A lake of dead letters whose bodies have several shapes, and texts that a spreadsheet would take for formulas."""

from __future__ import annotations

import pytest

from tests.support.dead_letters import BODIES, hostile_letter
from tests.support.lakes import GrowingLake


@pytest.fixture(scope="package")
def dead_letters(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """The lake."""
    growing = GrowingLake(tmp_path_factory.mktemp("letters"))
    growing.write([hostile_letter(number) for number in range(len(BODIES))])
    growing.archive()
    return growing
