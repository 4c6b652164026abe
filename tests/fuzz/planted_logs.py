"""Hostile records of a CommitLog: fields are drawn for all records at once, texts from a pool of fresh ones."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Magic
from commitlake.schemas.layouts.rocketmq.commitlog import (
    HEAD,
    PROPERTIES_LENGTH,
    STORED,
    TAIL,
    TOPIC_LENGTH,
    serialize_blank,
)
from commitlake.schemas.layouts.rocketmq.properties import MAX_SIZE
from commitlake.schemas.layouts.rocketmq.sysflag import (
    BORN_HOST_V6,
    INNER_BATCH,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TransactionType,
)
from tests.fuzz.drawn_logs import Columns, DrawnLog, chosen, lengths, rows
from tests.fuzz.hostile_messages import INT32, INT64, ODD_TOPICS, START_MS, TOPICS, HostileTexts

_TOPICS = (*TOPICS, *ODD_TOPICS)
_MAX_SHORT_TOPIC = 127
_SYS_FLAGS = (0, 0, 0, 1, 2, 4, 8, 12, INNER_BATCH, INNER_BATCH, 0x101, 0x201, 0x701, 0x40)
_QUEUE_OFFSETS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, (1 << 56) + 1)
_HOSTS = ((b"\x0a\0\0\1", 10911), (b"\xff\xff\xff\xff", -1), (b"\0\0\0\0", (1 << 31) - 1))
_V6_HOSTS = ((b"\0" * 15 + b"\1", 10911), (b"\xff" * 16, -(1 << 31)))
_ADDRESSES = [address + struct.pack(">i", port) for address, port in (*_HOSTS, *_V6_HOSTS)]
_BODIES = 512
_MAX_BODY_BYTES = 60
_BLANK_BYTES = 8


class PlantedLog(DrawnLog):
    """Records of RocketMQ's CommitLog."""

    def _end_of_segment(self, bytes_left: int) -> bytes:
        return serialize_blank(bytes_left)[:_BLANK_BYTES]

    def _draw(self) -> tuple[npt.NDArray[Any], str, Columns]:
        self._draw_topics()
        self._draw_flags_and_hosts()
        self._draw_queues()
        return self._head_and_parts()

    def _draw_topics(self) -> None:
        self._topic = self._vary(range(len(TOPICS), len(_TOPICS)), self._pick(range(len(TOPICS))))
        self._topic[-1] = 0  # A last record with zeros in its text could be one that is still being written.
        is_long = np.array([len(topic) > _MAX_SHORT_TOPIC for topic in _TOPICS])[self._topic]
        self._is_v2 = is_long | self._is(0.05)

    def _draw_properties(self) -> list[bytes]:
        texts = HostileTexts(self._chance)
        pool = [texts.stored_properties(number) for number in range(self._pool_size())]
        found = chosen(pool, self._random.integers(0, len(pool), self._count))
        for number in np.flatnonzero(self._is(0.5)).tolist():
            head = b"UNIQ_KEY\x01U%031d\x02KEYS\x01order-%d\x02" % (number, number)
            found[number] = (head + found[number])[:MAX_SIZE]
        found[-1] = b"KEYS\x01last\x02"
        return found

    def _draw_flags_and_hosts(self) -> None:
        sys_flag = self._vary([value & ~(BORN_HOST_V6 | STORE_HOST_V6) for value in INT32], self._pick(_SYS_FLAGS))
        self._hosts = []
        for bit in (BORN_HOST_V6, STORE_HOST_V6):
            is_v6 = self._is(0.1)
            sys_flag |= np.where(is_v6, bit, 0)
            v4 = self._pick(range(len(_HOSTS)))
            v6 = self._pick(range(len(_HOSTS), len(_ADDRESSES)))
            self._hosts.append(np.where(is_v6, v6, v4))
        self._sys_flag = sys_flag

    def _draw_queues(self) -> None:
        """Number the messages of each queue; now and then one has a number that no queue can have."""
        self._queue_id = self._vary(INT32, self._pick(range(4)))
        transaction = self._sys_flag & TRANSACTION_MASK
        is_queued = (transaction == TransactionType.NOT) | (transaction == TransactionType.COMMIT)
        is_odd = self._is_strange & self._is(0.1)
        queues = np.unique(self._queue_id, return_inverse=True)[1] * len(_TOPICS) + self._topic
        self._queue_offset = self._numbers_of_queues(queues, is_queued & ~is_odd)
        self._queue_offset[is_odd] = self._pick(_QUEUE_OFFSETS)[is_odd]

    def _head_and_parts(self) -> tuple[npt.NDArray[Any], str, Columns]:
        """Return the heads, which lack only their place in the log, and the parts of all records after them."""
        chance = self._chance
        pool = [chance.randbytes(chance.randrange(_MAX_BODY_BYTES)) for _ in range(_BODIES)]
        body = self._random.integers(0, _BODIES, self._count)
        bodies, properties = chosen(pool, body), self._draw_properties()
        addresses = [chosen(_ADDRESSES, hosts) for hosts in self._hosts]
        topics = chosen(
            [TOPIC_LENGTH[magic].pack(len(topic)) + topic for magic in (Magic.V1, Magic.V2) for topic in _TOPICS],
            self._topic + self._is_v2 * len(_TOPICS),
        )
        numbers = START_MS + np.arange(self._count)
        stored = np.zeros(self._count, STORED.numpy_fields)
        stored["store_timestamp"] = self._vary(INT64, numbers + 1000)
        tail = np.zeros(self._count, TAIL.numpy_fields)
        tail["reconsume_times"] = self._vary(INT32, 0)
        tail["prepared_transaction_offset"] = self._vary(INT64, 0)
        tail["body_length"] = lengths(bodies)
        property_lengths = np.zeros(self._count, PROPERTIES_LENGTH.numpy_fields)
        property_lengths["properties_length"] = lengths(properties)
        columns = [
            addresses[0], rows(stored), addresses[1], rows(tail), bodies, topics, rows(property_lengths), properties,
        ]  # fmt: skip
        head = np.zeros(self._count, HEAD.numpy_fields)
        head["total_size"] = HEAD.size + sum(map(lengths, columns))
        head["magic"] = np.where(self._is_v2, Magic.V2, Magic.V1)
        head["body_crc"] = np.array([ROCKETMQ.body_crc(each) for each in pool])[body]
        head["queue_id"], head["flag"] = self._queue_id, self._vary(INT32, 0)
        head["queue_offset"], head["sys_flag"] = self._queue_offset, self._sys_flag
        head["born_timestamp"] = self._vary(INT64, numbers)
        return head, "physical_offset", columns
