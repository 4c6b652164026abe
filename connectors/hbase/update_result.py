"""The result of a run that brings HBase to the newest version of `messages`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HBaseUpdate:
    """Result of a run that has brought HBase to a version of `messages`.

    Attributes:
        version: the Delta version that the table now has.
        versions: number of versions applied, including those without rows.
        rows: number of messages put.
        deleted: number of messages deleted.
        seconds: duration of the run.
    """

    version: int
    versions: int
    rows: int
    deleted: int
    seconds: float
