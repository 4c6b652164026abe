"""Compiled functions that find runs of consecutive rows with one broker, topic, queue and window of store time."""

from __future__ import annotations

from typing import Any

from commitlake.connectors.formats.engine.kernel.compiled import inlined


@inlined
def goes_on(
    row: Any,
    brokers: Any,
    topics: Any,
    queues: Any,
    stores_us: Any,
    is_timeless: Any,
    was_timeless: Any,
    begin: Any,
    end: Any,
) -> Any:
    """Return whether a row belongs to the same run as the row before it.

    Args:
        row: index of the row.
        brokers: codes of the names.
        topics: likewise.
        queues: queue ids.
        stores_us: store times, in microseconds.
        is_timeless: True if this row has no store time.
        was_timeless: True if the rows of the run have none.
        begin: start of the run's window, in microseconds.
        end: end of the window, exclusive.
    """
    return (
        row > 0
        and brokers[row] == brokers[row - 1]
        and topics[row] == topics[row - 1]
        and queues[row] == queues[row - 1]
        and is_timeless == was_timeless
        and (was_timeless or begin <= stores_us[row] < end)
    )


@inlined
def window_begin(store_us: Any, window_us: Any) -> Any:
    """Return the start of a time's window, in microseconds."""
    return store_us // window_us * window_us
