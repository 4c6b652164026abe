"""The result of a run that brings HBase to the newest version of `messages`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HBaseUpdate:
    """Result of one run.

    Attributes:
        version: the Delta version that the table now has.
        versions: how many were taken, the ones without rows among them.
        rows: messages put.
        deleted: messages taken away.
        seconds: how long it took.
    """

    version: int
    versions: int
    rows: int
    deleted: int
    seconds: float
