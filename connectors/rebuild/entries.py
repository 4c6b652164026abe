"""Columns of facts as the entries that queues are made of."""

from __future__ import annotations

import numpy as np

from connectors.facts.consume_queues import ENTRY_DTYPE as ENTRY
from connectors.facts.entries import QueueEntries
from connectors.facts.kernel import Array
from connectors.rebuild.settings import Settings
from schemas.layouts import batchconsumequeue, consumequeue

BATCH_ENTRY = np.dtype(batchconsumequeue.ENTRY.numpy_fields)


def entry_size(settings: Settings, *, is_batch: bool) -> int:
    """Bytes of an entry."""
    return BATCH_ENTRY.itemsize if is_batch else settings.queues.entry_size


def to_batch_entries(columns: QueueEntries) -> Array:
    """The entries of a BatchConsumeQueue."""
    entries = np.zeros(len(columns), BATCH_ENTRY)
    entries["physical_offset"] = columns.physical_offset
    entries["size"] = columns.size
    entries["tags_code"] = columns.tags_code
    entries["store_timestamp"] = columns.store_timestamp
    entries["message_base_offset"] = columns.queue_offset
    entries["batch_size"] = np.maximum(columns.batch_size, 1)  # a single message is one of one
    entries["compacted_offset"] = batchconsumequeue.NO_COMPACTED_OFFSET
    return entries


def fillers(count: int) -> Array:
    """Entries that stand for no message, at the head of a queue that begins late."""
    filler = np.array([tuple(consumequeue.PRE_BLANK)], ENTRY)
    return np.broadcast_to(filler, count)
