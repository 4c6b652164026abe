"""Queue types of topics: BatchConsumeQueues (`queue.type=BatchCQ`) or ConsumeQueues.

A broker uses topics.json alone: it enters an inner batch of a simple topic into a ConsumeQueue, as one record, and does
not start on a store whose queues are of another kind than in topics.json. If topics.json lacks a topic, the kind is
found from its queues' folders, and without folders from the queue offsets in its log. The flag INNER_BATCH proves
nothing: a client sets it, and no checksum covers it.
Source: ConsumeQueueStore.load, doFindOrCreateConsumeQueue (5.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.facts.entries import QueueEntries
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BatchEvidence
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_PREFIX
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of


def can_hold_batches(topic: str) -> bool:
    """Return whether a topic's queues can be BatchConsumeQueues; those of light queues and of the broker never are."""
    return kind_of(topic) is Kind.NORMAL and not topic.startswith(LIGHT_PREFIX)


@dataclass(frozen=True, slots=True)
class TopicKinds:
    """Queue types of a store's topics.

    Attributes:
        batch: Topics of BatchConsumeQueues.
        simple: Topics of ConsumeQueues.
    """

    batch: frozenset[str] = frozenset()
    simple: frozenset[str] = frozenset()

    def is_unknown(self, topic: str) -> bool:
        """Return whether neither topics.json nor a folder determines a topic's type."""
        return topic not in self.batch and topic not in self.simple and can_hold_batches(topic)


def evidence_of(entries: QueueEntries, batches: Array) -> BatchEvidence:
    """Return the evidence in one queue's records of a chunk of the log.

    Args:
        batches: Physical offsets of the chunk's records with the flag INNER_BATCH.
    """
    is_batch = np.isin(entries.physical_offset, batches)
    several = is_batch[:-1] & (entries.batch_size[:-1] > 1)
    before, after = entries.queue_offset[:-1], entries.queue_offset[1:]
    by_count, by_one = after == before + entries.batch_size[:-1], after == before + 1
    steps = int(np.count_nonzero(several & by_count)) - int(np.count_nonzero(several & by_one))
    return BatchEvidence(int(np.count_nonzero(is_batch)), steps)
