"""What rebuilt queues are made of, besides the entries of the log's records."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.facts.queue_layouts import QueueLayout
from commitlake.connectors.formats.rocketmq import batch_queues
from commitlake.connectors.formats.rocketmq.consume_queues import ENTRY_DTYPE as ENTRY
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.schemas.layouts.rocketmq.consumequeue import PRE_BLANK


def layout_of(settings: Settings, *, is_batch: bool) -> QueueLayout:
    """What a queue is."""
    return batch_queues.QUEUES if is_batch else settings.queues


def fillers(count: int) -> Array:
    """Entries that stand for no message, at the head of a queue that begins late."""
    filler = np.array([tuple(PRE_BLANK)], ENTRY)
    return np.broadcast_to(filler, count)
