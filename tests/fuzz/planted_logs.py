"""Segments full of hostile records: fields are drawn for all records at once, texts from a pool of fresh ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.layouts.commitlog import HEAD, PROPERTIES_LENGTH, STORED, TAIL, TOPIC_LENGTH, serialize_blank
from schemas.layouts.dialect import ROCKETMQ, Magic
from schemas.layouts.properties import MAX_SIZE
from schemas.layouts.sysflag import BORN_HOST_V6, INNER_BATCH, STORE_HOST_V6, TRANSACTION_MASK, TransactionType
from tests.fuzz.hostile_messages import INT32, INT64, START_MS, HostileTexts

_MAX_SHORT_TOPIC = 127
_SYS_FLAGS = (0, 0, 0, 1, 2, 4, 8, 12, INNER_BATCH, INNER_BATCH, 0x101, 0x201, 0x701, 0x40)
_QUEUE_OFFSETS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, (1 << 56) + 1)
_HOSTS = ((b"\x0a\0\0\1", 10911), (b"\xff\xff\xff\xff", -1), (b"\0\0\0\0", (1 << 31) - 1))
_V6_HOSTS = ((b"\0" * 15 + b"\1", 10911), (b"\xff" * 16, -(1 << 31)))
_ADDRESSES = [address + struct.pack(">i", port) for address, port in (*_HOSTS, *_V6_HOSTS)]
_BODIES = 512
_MAX_BODY_BYTES = 60
_MAX_POOL = 20_000
"""Distinct topics' and properties' texts of one log; a larger log has each of them several times."""
_BLANK_BYTES = 8

Ints = npt.NDArray[np.int64]


class PlantedLog:
    """Makes the segments of one log; a third of its records have nothing strange."""

    def __init__(self, chance: random.Random, count: int, segment_bytes: int) -> None:
        """Draw everything about `count` records.

        Args:
            chance: source of all that is random.
            count: number of records.
            segment_bytes: size of a segment.
        """
        self._random = np.random.default_rng(chance.getrandbits(64))
        self._count = count
        self._segment_bytes = segment_bytes
        self._is_strange = self._is(0.3)
        texts = HostileTexts(chance)
        self._draw_topics(texts)
        self._draw_properties(texts)
        bodies = [chance.randbytes(chance.randrange(_MAX_BODY_BYTES)) for _ in range(_BODIES)]
        self._body = self._random.integers(0, _BODIES, count)
        self._bodies, self._body_crc = bodies, np.array([ROCKETMQ.body_crc(body) for body in bodies])[self._body]
        self._draw_flags_and_hosts()
        self._draw_queues()

    def segments(self) -> list[bytes]:
        """Return the segments' bytes, each of `segment_bytes`."""
        columns = self._columns()
        sizes = self._sizes
        ends = np.cumsum(sizes)
        out: list[bytes] = []
        first = 0
        while first < self._count:
            base = len(out) * self._segment_bytes
            before = ends[first - 1] if first else 0
            stop = int(np.searchsorted(ends, before + self._segment_bytes - _BLANK_BYTES, side="right"))
            self._head["physical_offset"][first:stop] = base + ends[first:stop] - sizes[first:stop] - before
            heads = self._head[first:stop].view(f"V{HEAD.size}").tolist()
            data = b"".join(chain.from_iterable(zip(heads, *(column[first:stop] for column in columns), strict=True)))
            if stop < self._count:
                data += serialize_blank(self._segment_bytes - len(data))
            out.append(data.ljust(self._segment_bytes, b"\0"))
            first = stop
        return out

    def _is(self, share: float) -> npt.NDArray[np.bool_]:
        """Return for each record whether it is one of this share."""
        return self._random.random(self._count) < share

    def _pick(self, values: Sequence[int]) -> Ints:
        return np.array(values, np.int64)[self._random.integers(0, len(values), self._count)]

    def _odd(self, values: Sequence[int], usual: Ints | int, share: float = 0.2) -> Ints:
        """Return the usual values, and one of `values` for a share of the strange records."""
        return np.where(self._is_strange & self._is(share), self._pick(values), usual)

    def _draw_topics(self, texts: HostileTexts) -> None:
        self._topics = texts.topics
        self._topic = self._odd(range(texts.usual_topics, len(texts.topics)), self._pick(range(texts.usual_topics)))
        self._topic[-1] = 0  # A last record with zeros in its text could be one that is not whole yet.
        is_long = np.array([len(topic) > _MAX_SHORT_TOPIC for topic in texts.topics])[self._topic]
        self._is_v2 = is_long | self._is(0.05)

    def _draw_properties(self, texts: HostileTexts) -> None:
        pool = [texts.stored_properties(number) for number in range(min(self._count, _MAX_POOL))]
        self._properties = list(map(pool.__getitem__, self._random.integers(0, len(pool), self._count).tolist()))
        numbered = np.flatnonzero(self._is(0.5)).tolist()
        for number in numbered:
            head = b"UNIQ_KEY\x01U%031d\x02KEYS\x01order-%d\x02" % (number, number)
            self._properties[number] = (head + self._properties[number])[:MAX_SIZE]
        self._properties[-1] = b"KEYS\x01last\x02"

    def _draw_flags_and_hosts(self) -> None:
        sys_flag = self._odd([value & ~(BORN_HOST_V6 | STORE_HOST_V6) for value in INT32], self._pick(_SYS_FLAGS))
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
        self._queue_id = self._odd(INT32, self._pick(range(4)))
        transaction = self._sys_flag & TRANSACTION_MASK
        is_queued = (transaction == TransactionType.NOT) | (transaction == TransactionType.COMMIT)
        is_odd = self._is_strange & self._is(0.1)
        counted = np.flatnonzero(is_queued & ~is_odd)
        keys = np.unique(self._queue_id, return_inverse=True)[1] * len(self._topics) + self._topic
        order = np.argsort(keys[counted], kind="stable")
        ordered = keys[counted][order]
        starts = np.searchsorted(ordered, ordered)
        self._queue_offset = np.zeros(self._count, np.int64)
        self._queue_offset[counted[order]] = np.arange(len(order)) - starts
        self._queue_offset[is_odd] = self._pick(_QUEUE_OFFSETS)[is_odd]

    def _columns(self) -> list[list[bytes]]:
        """Return the parts of all records behind their heads; the heads lack only their place in the log."""
        addresses = [list(map(_ADDRESSES.__getitem__, hosts.tolist())) for hosts in self._hosts]
        bodies = list(map(self._bodies.__getitem__, self._body.tolist()))
        versions = {
            is_v2: [TOPIC_LENGTH[magic].pack(len(topic)) + topic for topic in self._topics]
            for is_v2, magic in ((False, Magic.V1), (True, Magic.V2))
        }
        both = [*versions[False], *versions[True]]
        topics = list(map(both.__getitem__, (self._topic + self._is_v2 * len(self._topics)).tolist()))
        lengths = _lengths(self._properties)
        property_lengths = _rows(lengths.astype(">i2"), PROPERTIES_LENGTH.size)
        numbers = START_MS + np.arange(self._count)
        stored = np.zeros(self._count, STORED.numpy_fields)
        stored["store_timestamp"] = self._odd(INT64, numbers + 1000)
        tail = np.zeros(self._count, TAIL.numpy_fields)
        tail["reconsume_times"] = self._odd(INT32, 0)
        tail["prepared_transaction_offset"] = self._odd(INT64, 0)
        tail["body_length"] = _lengths(bodies)
        fixed = HEAD.size + STORED.size + TAIL.size + PROPERTIES_LENGTH.size
        self._sizes = fixed + sum(map(_lengths, (*addresses, bodies, topics)), lengths)
        head = np.zeros(self._count, HEAD.numpy_fields)
        head["total_size"], head["magic"] = self._sizes, np.where(self._is_v2, Magic.V2, Magic.V1)
        head["body_crc"], head["queue_id"], head["flag"] = self._body_crc, self._queue_id, self._odd(INT32, 0)
        head["queue_offset"], head["sys_flag"] = self._queue_offset, self._sys_flag
        head["born_timestamp"] = self._odd(INT64, numbers)
        self._head = head
        return [
            addresses[0], _rows(stored, STORED.size), addresses[1], _rows(tail, TAIL.size), bodies, topics,
            property_lengths, self._properties,
        ]  # fmt: skip


def _lengths(texts: Sequence[bytes]) -> Ints:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _rows(table: npt.NDArray[Any], size: int) -> list[bytes]:
    """Return the bytes of each row."""
    rows: list[bytes] = table.view(f"V{size}").tolist()
    return rows
