"""Tables that are asked for some entries at a time, as since 5.5. Source: AdminBrokerProcessor (5.5.0)."""

from __future__ import annotations

from collections.abc import Sequence


def page_of(names: Sequence[str], first: int | None, count: int | None) -> Sequence[str]:
    """Return the names of a table's entries that are asked for, in its order.

    Args:
        names: of all entries.
        first: how many to leave out at the beginning; None for none.
        count: how many at most; None for all.
    """
    begin = max(0, first or 0)
    return names[begin:] if count is None or count <= 0 else names[begin : begin + count]
