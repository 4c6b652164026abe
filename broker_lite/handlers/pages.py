"""Pages of a table, which clients request since 5.5. Source: AdminBrokerProcessor (5.5.0)."""

from __future__ import annotations

from collections.abc import Sequence


def page_of(names: Sequence[str], first: int | None, count: int | None) -> Sequence[str]:
    """Return the names on the requested page of a table, in its order.

    Args:
        names: names of all entries.
        first: number of entries to skip; None for 0.
        count: maximum number of entries; None for all.
    """
    begin = max(0, first or 0)
    return names[begin:] if count is None or count <= 0 else names[begin : begin + count]
