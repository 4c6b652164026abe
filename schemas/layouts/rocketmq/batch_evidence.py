"""Evidence in a log for a topic's queue type, if neither topics.json nor the queue folders contain it.

The flag INNER_BATCH alone proves nothing: a client sets it, and no checksum covers it. The offsets that the broker gave
to the records do: in a BatchConsumeQueue, the offset after a batch of three is larger by three; in a ConsumeQueue, by
one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchEvidence:
    """Evidence for the queue type of a topic that has inner batches.

    Attributes:
        batches: number of records with the flag INNER_BATCH.
        steps: number of records whose offset follows the previous one by the number of messages in that batch, minus
            the number of records whose offset follows it by one.
    """

    batches: int = 0
    steps: int = 0

    def joined(self, other: BatchEvidence) -> BatchEvidence:
        """Return the sum of two pieces of evidence."""
        return BatchEvidence(self.batches + other.batches, self.steps + other.steps)

    def shows_batches(self, records: int) -> bool:
        """Return whether the topic's queues are BatchConsumeQueues.

        Args:
            records: number of all records of the topic, with or without the flag.
        """
        return self.steps > 0 or (self.steps == 0 and 0 < self.batches == records)
