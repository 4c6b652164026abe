"""Progress of the writes to a store."""

from __future__ import annotations

from typing import NamedTuple


class LogProgress(NamedTuple):
    """Progress of the log, as needed for flushes and checkpoints.

    Attributes:
        log_end: physical offset of the end of the last record.
        store_timestamp: store time of the last record, ms; 0 if there is none.
        last_record: physical offset of the last record; 0 if there is none.
    """

    log_end: int = 0
    store_timestamp: int = 0
    last_record: int = 0
