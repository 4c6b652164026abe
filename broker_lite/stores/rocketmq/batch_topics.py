"""Detection of topics with BatchConsumeQueues from the log, if neither topics.json nor queue folders show the type.

The queues of such a topic are created as ConsumeQueues while the log is read. After that the offsets of the records
decide (see `schemas.layouts.rocketmq.batch_evidence`): a single record with the flag of an inner batch, which any
producer can send to a topic of single messages, decides nothing.
"""

from __future__ import annotations

from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch
from commitlake.schemas.layouts.rocketmq.batch_evidence import BatchEvidence


class BatchTopics:
    """Evidence for the queue type of topics, from one reading of the log."""

    def __init__(self) -> None:
        self._evidence: dict[str, BatchEvidence] = {}
        self._records: dict[str, int] = {}
        self._last: dict[tuple[str, int], Dispatch] = {}
        self._queue_counts: dict[str, int] = {}

    def note(self, record: Dispatch) -> None:
        """Add a record; the records of a queue come in the order of the log."""
        topic, queue = record.topic, (record.topic, record.queue_id)
        last = self._last.get(queue)
        steps = 0
        if last is not None and last.is_inner_batch and last.message_count > 1:
            step = record.queue_offset - last.queue_offset
            steps = int(step == last.message_count) - int(step == 1)
        added = BatchEvidence(int(record.is_inner_batch), steps)
        self._evidence[topic] = self._evidence.get(topic, BatchEvidence()).joined(added)
        self._records[topic] = self._records.get(topic, 0) + 1
        self._queue_counts[topic] = max(self._queue_counts.get(topic, 0), record.queue_id + 1)
        self._last[queue] = record

    def decide(self) -> dict[str, tuple[bool, int]]:
        """Return for each topic whether its queues are BatchConsumeQueues, and its number of queues."""
        return {
            topic: (evidence.shows_batches(self._records[topic]), self._queue_counts[topic])
            for topic, evidence in self._evidence.items()
        }
