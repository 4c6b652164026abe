"""Views that cannot be written share the memory of arrays that can."""

from __future__ import annotations

import numpy as np
import pytest

from commitlake.connectors.numpy_arrays import read_only_view


def test_a_view_cannot_be_written_and_shows_later_changes() -> None:
    values = np.arange(3)
    view = read_only_view(values)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 7
    values[0] = 7
    assert view.tolist() == [7, 1, 2]
