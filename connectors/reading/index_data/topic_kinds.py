"""Which topics can have queue folders, and their queue types: BatchConsumeQueue or ConsumeQueue.

A broker uses topics.json alone: it enters an inner batch of a simple topic into a ConsumeQueue, as one record, and does
not start on a store whose queues are of another kind than in topics.json. If topics.json lacks a topic, the kind is
found from its queues' folders, and without folders from the queue offsets in its log. The flag INNER_BATCH proves
nothing: a client sets it, and no checksum covers it.
Source: ConsumeQueueStore.load, doFindOrCreateConsumeQueue (5.5.0).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BatchEvidence

_MAX_NAME_BYTES = 255
_NO_NAMES = frozenset({"", ".", ".."})
_KNOWN = 1 << 14


def collect_batch_evidence(entries: QueueEntries, batch_offsets: Array) -> BatchEvidence:
    """Count, for one queue in a chunk of the log, the records that show whether its topic has BatchConsumeQueues.

    Args:
        batch_offsets: Physical offsets of the chunk's records with the flag INNER_BATCH.
    """
    is_batch = np.isin(entries.physical_offset, batch_offsets)
    # A batch of one message takes one queue offset in either kind of queue, so it proves nothing.
    several = is_batch[:-1] & (entries.batch_size[:-1] > 1)
    before, after = entries.queue_offset[:-1], entries.queue_offset[1:]
    by_count, by_one = after == before + entries.batch_size[:-1], after == before + 1
    steps = int(np.count_nonzero(several & by_count)) - int(np.count_nonzero(several & by_one))
    return BatchEvidence(int(np.count_nonzero(is_batch)), steps)


@lru_cache(_KNOWN)
def is_valid_folder_name(topic: str) -> bool:
    """Return whether a topic can be the name of a single folder, which contains the files of its queues."""
    return (
        topic not in _NO_NAMES
        and "/" not in topic
        and topic.isprintable()
        and len(topic.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    )
