"""Columns from which indexes are built."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.reading.kernel.buffers import Interner
from commitlake.connectors.reading.kernel.strings import DISTINCT
from commitlake.connectors.reading.walking import BadRange
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, TRANSACTION_MASK, TransactionType

SEED = np.uint64(secrets.randbits(64))  # random, because a producer who knew the hashes could make topics collide


@dataclass(frozen=True, eq=False)
class Facts:
    """Data of consecutive records for indexes, with the bad ranges between them.

    Attributes:
        start: physical offset of the first byte that was read.
        end: physical offset after the last one.
        topics: names of the topics.
        physical_offset: int64, bytes.
        size: int32, bytes.
        topic: int32, index in `topics`.
        queue_id: int32.
        queue_offset: int64, number of the message in its queue.
        store_timestamp: int64, ms.
        tags_code: int64, the third field of the ConsumeQueue entry.
        sys_flag: int32.
        batch_size: int32, messages in an inner batch by its property INNER_NUM; 0 without this property.
        tags_hash: int32, the hash under which brokers since 5.5 index TAGS; -1 without tags.
        key_ends: int32, end of each record's part of `key_hashes`; the next record's part begins there.
        key_hashes: int32, index hashes of UNIQ_KEY and KEYS, in the order in which brokers enter them.
        multi_dispatch: for rows that are also in other queues: the names of these queues and the offsets there.
        bad: ranges that hold no intact record.
        is_dated: bool, whether `store_timestamp` is exact; None if it is for all records. JMQ stores it as a distance
            from the send time, limited to what fits in its field.
        receive_timestamp: int64, ms, if the format has it.
    """

    start: int
    end: int
    topics: Sequence[str]
    physical_offset: Array
    size: Array
    topic: Array
    queue_id: Array
    queue_offset: Array
    store_timestamp: Array
    tags_code: Array
    sys_flag: Array
    batch_size: Array
    tags_hash: Array
    key_ends: Array
    key_hashes: Array
    multi_dispatch: dict[int, tuple[tuple[str, int], ...]]
    bad: tuple[BadRange, ...]
    is_dated: Array | None = None
    receive_timestamp: Array | None = None

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.physical_offset)

    @property
    def is_queued(self) -> Array:
        """True for each record with a ConsumeQueue entry; half and rolled-back ones of brokers before 4.x have none."""
        kind = self.sys_flag & TRANSACTION_MASK
        queued: Array = (kind == TransactionType.NOT) | (kind == TransactionType.COMMIT)
        return queued

    @property
    def is_batch(self) -> Array:
        """True for each record that is an inner batch, with an entry in a BatchConsumeQueue."""
        batch: Array = (self.sys_flag & INNER_BATCH) != 0
        return batch


def topic_names(topics: Interner) -> list[str]:
    """Return the topics that an interner has numbered, as text."""
    count = int(topics.counts[DISTINCT])
    edges = topics.starts[: count + 1].tolist()
    texts = topics.texts[: edges[-1]].tobytes()
    return [texts[begin:stop].decode("utf-8", "replace") for begin, stop in pairwise(edges)]
