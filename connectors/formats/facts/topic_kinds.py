"""Which topics have BatchConsumeQueues (`queue.type=BatchCQ`); the others have ConsumeQueues.

A broker goes by topics.json alone: it enters an inner batch of a simple topic into a ConsumeQueue, as one record, and
does not start on a store that has queues of another kind than topics.json says. Where topics.json does not have a
topic, its queues' folders tell, and without folders the numbers in its log. The flag INNER_BATCH alone tells nothing:
a client sets it, and no checksum covers it. Source: ConsumeQueueStore.load, doFindOrCreateConsumeQueue (5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.facts.entries import QueueEntries
from commitlake.connectors.formats.rocketmq import batch_queues, consume_queues
from commitlake.connectors.formats.rocketmq.topic_configs import TABLE, read_topics
from commitlake.schemas.layouts.rocketmq.batch_evidence import BatchEvidence
from commitlake.schemas.layouts.rocketmq.inner_batch import has_batch_queues
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_PREFIX
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from commitlake.schemas.store_files import folders_in


def _can_hold_batches(topic: str) -> bool:
    """Return whether a topic's queues can be BatchConsumeQueues; those of light queues and of the broker never are."""
    return kind_of(topic) is Kind.NORMAL and not topic.startswith(LIGHT_PREFIX)


@dataclass(frozen=True, slots=True)
class TopicKinds:
    """What a store says of its topics' kinds.

    Attributes:
        batch: Topics of BatchConsumeQueues.
        simple: Topics of ConsumeQueues.
    """

    batch: frozenset[str] = frozenset()
    simple: frozenset[str] = frozenset()

    def is_unknown(self, topic: str) -> bool:
        """Return whether neither topics.json nor a folder tells a topic's kind."""
        return topic not in self.batch and topic not in self.simple and _can_hold_batches(topic)


def read_topic_kinds(root: Path) -> TopicKinds:
    """Return what a store's topics.json says of its topics, and what its folders say of the others.

    Args:
        root: The store's folder.

    Raises:
        UnsafeFileError: for a link among topics.json and the folders, or another file in their place.
    """
    listed = listed_kinds(root)
    in_simple = frozenset(folders_in(root / consume_queues.QUEUES.folder)) - listed.keys()
    in_batch = frozenset(folders_in(root / batch_queues.QUEUES.folder)) - listed.keys()
    batch = {topic for topic, is_batch in listed.items() if is_batch}
    simple = listed.keys() - batch
    possible = {topic for topic in in_batch - in_simple if _can_hold_batches(topic)}
    return TopicKinds(frozenset(batch | possible), frozenset(simple | (in_simple - in_batch)))


def listed_kinds(root: Path) -> Mapping[str, bool]:
    """Return the topics of topics.json, with whether their queues are BatchConsumeQueues."""
    table = read_topics(root).get(TABLE, {})
    return {
        str(topic): isinstance(config, dict) and has_batch_queues(config.get("attributes"))
        for topic, config in table.items()
    }


def evidence_of(entries: QueueEntries, batches: Array) -> BatchEvidence:
    """Return what one queue's records in a chunk of the log show.

    Args:
        entries: The queue's.
        batches: Physical offsets of the chunk's records with the flag INNER_BATCH.
    """
    is_batch = np.isin(entries.physical_offset, batches)
    several = is_batch[:-1] & (entries.batch_size[:-1] > 1)
    before, after = entries.queue_offset[:-1], entries.queue_offset[1:]
    by_count, by_one = after == before + entries.batch_size[:-1], after == before + 1
    steps = int(np.count_nonzero(several & by_count)) - int(np.count_nonzero(several & by_one))
    return BatchEvidence(int(np.count_nonzero(is_batch)), steps)
