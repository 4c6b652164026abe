"""RocketMQ's ConsumeQueues, as columns, and for look-ups of records; see `queue_layouts`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from commitlake.connectors.log_format.queues import AFTER_ALL, BEFORE_ALL, QueueEntries, QueueFormat, QueueLayout
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.commitlog import MIN_RECORD_SIZE
from commitlake.schemas.layouts.rocketmq.consumequeue import DEFAULT_FILE_SIZE, ENTRY, PRE_BLANK, parse_entry

ENTRY_DTYPE = np.dtype(ENTRY.numpy_fields)


def written_entry_mask(entries: Array) -> Array:
    """Return a mask of the entries that a broker accepts as written."""
    written: Array = (entries["physical_offset"] >= 0) & (entries["size"] > 0)
    return written


def filler_entry_mask(entries: Array) -> Array:
    """Return a mask of the filler entries that a broker writes before the first message of a queue created late."""
    filler: Array = (
        (entries["physical_offset"] == PRE_BLANK.physical_offset)
        & (entries["size"] == PRE_BLANK.size)
        & (entries["tags_code"] == PRE_BLANK.tags_code)
    )
    return filler


def to_binary_entries(queue_entries: QueueEntries) -> Array:
    """Convert entries given as columns to the binary entries of a ConsumeQueue."""
    entries = np.empty(len(queue_entries), ENTRY_DTYPE)
    entries["physical_offset"] = queue_entries.physical_offset
    entries["size"] = queue_entries.size
    entries["tags_code"] = queue_entries.tags_code
    return entries


def _describe_entry(entry: Any) -> str:
    return f"offset {entry['physical_offset']}, {entry['size']} bytes, code {entry['tags_code']}"


QUEUES = QueueLayout(
    folder="consumequeue",
    topics=None,
    dtype=ENTRY_DTYPE,
    code_field="tags_code",
    default_file_size=DEFAULT_FILE_SIZE,
    is_aligned=True,
    is_written=written_entry_mask,
    is_filler=filler_entry_mask,
    refuses_other_names=True,
    fills_gaps=False,
    to_entries=to_binary_entries,
    words=_describe_entry,
)


def _entry_sort_key(data: bytes) -> int:
    """Return the offset by which an entry is sorted: filler comes first, and entries that the broker rejects last."""
    if len(data) < ENTRY.size:
        return AFTER_ALL
    entry = parse_entry(data)
    if entry == PRE_BLANK:
        return BEFORE_ALL
    return entry.physical_offset if entry.is_valid else AFTER_ALL


CONSUME_QUEUES = QueueFormat(
    name="ConsumeQueue",
    folder="consumequeue",
    entry=ENTRY,
    offset_field="physical_offset",
    place_of=_entry_sort_key,
    min_record_size=MIN_RECORD_SIZE,
    topics=re.compile(r"[%|a-zA-Z0-9_-]+"),
    no_queues="%LMQ%",
)
