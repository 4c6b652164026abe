"""What a log shows of a topic's kind of queues, where neither topics.json nor the queues' folders say it.

The flag INNER_BATCH alone shows nothing: a client sets it, and no checksum covers it. The numbers that the broker gave
to the records do: in a BatchConsumeQueue, the record after a batch of three has a number that is larger by three; in a
ConsumeQueue, by one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchEvidence:
    """What the log shows of a topic that has inner batches.

    Attributes:
        batches: Records with the flag INNER_BATCH.
        steps: Records whose number is larger by the count of messages in the batch before, less those whose number is
            larger by one.
    """

    batches: int = 0
    steps: int = 0

    def joined(self, other: BatchEvidence) -> BatchEvidence:
        """Return the evidence of both."""
        return BatchEvidence(self.batches + other.batches, self.steps + other.steps)

    def shows_batches(self, records: int) -> bool:
        """Return whether the topic's queues are BatchConsumeQueues.

        Args:
            records: All that the topic has, with the flag or without.
        """
        return self.steps > 0 or (self.steps == 0 and 0 < self.batches == records)
