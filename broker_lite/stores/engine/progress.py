"""How far a store has been written."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """What whoever puts a store on the disk must know.

    Attributes:
        log_end: physical offset behind the last record.
        store_timestamp: of the last record, ms; 0 where there is none.
        last_record: physical offset of the last record; 0 where there is none.
    """

    log_end: int = 0
    store_timestamp: int = 0
    last_record: int = 0
