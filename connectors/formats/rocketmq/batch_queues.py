"""RocketMQ's BatchConsumeQueues, as columns; see `queue_layouts`.

There is one entry for each record, however many messages the record holds. So the queue offsets do not follow from an
entry's position; they are fields of the entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from commitlake.connectors.log_format.queues import QueueEntries, QueueLayout
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import DEFAULT_FILE_ENTRIES, ENTRY, NO_COMPACTED_OFFSET

ENTRY_DTYPE = np.dtype(ENTRY.numpy_fields)


def written_entry_mask(entries: Array) -> Array:
    """Return a mask of the entries that a broker accepts as written."""
    written: Array = (
        (entries["physical_offset"] >= 0)
        & (entries["size"] > 0)
        & (entries["message_base_offset"] >= 0)
        & (entries["batch_size"] > 0)
    )
    return written


def _filler_entry_mask(entries: Array) -> Array:
    return np.zeros(len(entries), np.bool_)


def message_counts(queue_entries: QueueEntries) -> Array:
    """Return the number of messages in each record; a plain record counts as a batch of one."""
    counts: Array = np.maximum(queue_entries.batch_size, 1)
    return counts


def to_binary_entries(queue_entries: QueueEntries) -> Array:
    """Convert entries given as columns to the binary entries of a BatchConsumeQueue."""
    entries = np.zeros(len(queue_entries), ENTRY_DTYPE)
    entries["physical_offset"] = queue_entries.physical_offset
    entries["size"] = queue_entries.size
    entries["tags_code"] = queue_entries.tags_code
    entries["store_timestamp"] = queue_entries.store_timestamp
    entries["message_base_offset"] = queue_entries.queue_offset
    entries["batch_size"] = message_counts(queue_entries)
    entries["compacted_offset"] = NO_COMPACTED_OFFSET
    return entries


def _describe_entry(entry: Any) -> str:
    return (
        f"offset {entry['physical_offset']}, {entry['size']} bytes, code {entry['tags_code']}, "
        f"{entry['batch_size']} messages from {entry['message_base_offset']} on, {entry['store_timestamp']} ms"
    )


QUEUES = QueueLayout(
    folder="batchconsumequeue",
    topics=None,
    dtype=ENTRY_DTYPE,
    code_field="tags_code",
    default_file_size=DEFAULT_FILE_ENTRIES * ENTRY.size,
    is_aligned=True,
    is_written=written_entry_mask,
    is_filler=_filler_entry_mask,
    refuses_other_names=True,
    fills_gaps=False,
    to_entries=to_binary_entries,
    words=_describe_entry,
)
