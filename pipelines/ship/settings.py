"""Settings of an agent."""

from __future__ import annotations

from dataclasses import dataclass

PART_BYTES = 16 << 20
"""Largest part. An agent needs twice this memory."""
FULL_PART_BYTES = 8 << 20
"""Parts of this size are not merged: servers copy parts of at least 5 MiB when a file is made of them."""
MERGED_COUNT = 8
"""Number of small parts of about the same size that are merged; each byte is sent again once per power of it."""


@dataclass(frozen=True, slots=True)
class ShipSettings:
    """Settings of the agent that ships a store's files.

    Attributes:
        broker: name of the store.
        part_bytes: largest part.
        full_part_bytes: size from which parts are not merged.
        merged_count: number of small parts that are merged.
        save_bytes: number of new bytes after which the manifest is written, also within a round.
        has_other_files: whether queues, indexes and small files are shipped, too.
    """

    broker: str
    part_bytes: int = PART_BYTES
    full_part_bytes: int = FULL_PART_BYTES
    merged_count: int = MERGED_COUNT
    save_bytes: int = 64 << 20
    has_other_files: bool = True
