"""Tables that are asked for some entries at a time, as since 5.5. Source: AdminBrokerProcessor (5.5.0)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

V = TypeVar("V")


def page_of(table: Mapping[str, V], first: int | None, count: int | None) -> dict[str, V]:
    """Entries of a table, in its order.

    Args:
        table: all of them.
        first: how many to leave out at the beginning; None for none.
        count: how many at most; None for all.
    """
    begin = max(0, first or 0)
    end = None if count is None or count <= 0 else begin + count
    return dict(islice(table.items(), begin, end))
