"""Ranges of the brokers' logs that an audit can compare: archived, and still in their stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commitlake.connectors.formats.registry import ANY_FORMAT
from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.snapshots import StoreRange, take_snapshot
from commitlake.connectors.reading.stores import find_stores


def find_ranges_in_stores(
    path: str, broker: str | None, progress: Mapping[str, StoreProgress], layout: Formats = ANY_FORMAT
) -> tuple[dict[str, StoreRange], Sequence[str]]:
    """Return the range of each broker's log that is archived and still in its store.

    Messages that a store has elsewhere, and the lake does not have, are logged as a warning.

    Args:
        path: the stores, as for `find_stores`.
        broker: name of the store, if the path does not have it.
        progress: archived progress of each store.
        layout: formats of stores to take from the path.

    Returns:
        Ranges by broker, and notes on brokers without a range.

    Raises:
        CommitLogError: if a store cannot be read.
    """
    ranges, notes, there = {}, [], set()
    for store in find_stores(path, broker, formats=layout):
        there.add(store.broker)
        known = progress.get(store.broker)
        start = store.segments[0].base_offset
        if known is None:
            notes.append(f"{store.broker}: nothing of this store is in the lake")
        elif start >= known.end:
            notes.append(f"{store.broker}: its store starts at {start}, but the lake ends at {known.end}")
        else:
            ranges[store.broker] = StoreRange(start, known.end)
            if known.end <= store.segments[-1].base_offset + store.segments[-1].file_size:  # not an older copy
                take_snapshot([store], {store.broker: known.end})
    notes += [f"{name}: in the lake, but not among the given stores" for name in sorted(progress.keys() - there)]
    return ranges, notes
