"""Hostile records of a JMQ journal, some of them damaged in one field."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.jmq.journal import (
    APP_LENGTH,
    BODY_LENGTH,
    BUSINESS_ID_LENGTH,
    COMPRESSED,
    HEAD,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH,
    Magic,
    body_crc,
    serialize_filler,
)
from commitlake.schemas.layouts.jmq.properties import MAX_SIZE
from tests.fuzz.drawn_logs import Columns, DrawnLog, Ints, chosen, lengths, rows
from tests.fuzz.hostile_messages import (
    INT32,
    INT64,
    INTERPRETED,
    NUMBERS,
    ODD_TOPICS,
    START_MS,
    TEXTS,
    TOPICS,
    HostileTexts,
)

_TOPICS = (*TOPICS, *ODD_TOPICS)
_NAMES = (*INTERPRETED, "jmq.app", "jmq.receive_timestamp", "_jmq.app", "__jmq.receive_timestamp", "_SYS_MSG_PRIORITY_")
_SHORT_TEXTS = [text for text in (each.encode("utf-8", "replace") for each in (*TEXTS, *NUMBERS)) if len(text) < 256]
_QUEUE_OFFSETS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, (1 << 56) + 1, 1 << 32, 1000)
_ADDRESSES = (0, 0x0A000001, 0xFFFFFFFF, 0x7F000001)
_SEPARATORS = (b"=", b"\\", b"\n", b"\0", b"\xff\xc0", b"\\\\=", b"\n\n", b"\xff" * 3000)
_BODIES = 512
_LARGE_BODY_BYTES = 1 << 20
_DAMAGED_FIELDS = ("total_size", "magic", "journal_offset", "body_crc")


class PlantedJournal(DrawnLog):
    """Records of a journal.

    Attributes:
        is_damaged: for each record, whether a field of it is wrong.
    """

    def __init__(self, chance: random.Random, count: int, segment_bytes: int, damaged_share: float) -> None:
        """Prepare the draw; a share of the records, and never the last, is damaged."""
        super().__init__(chance, count, segment_bytes)
        self.is_damaged = self._is(damaged_share)
        self.is_damaged[-1] = False

    def _end_of_segment(self, bytes_left: int) -> bytes:
        return serialize_filler(bytes_left)

    def _draw(self) -> tuple[npt.NDArray[Any], str, Columns]:
        chance = self._chance
        flags = self._vary(range(256), self._pick((0, 0, COMPRESSED, 2)))
        bodies, crcs = self._draw_bodies(flags)
        topic = self._vary(range(len(TOPICS), len(_TOPICS)), self._pick(range(len(TOPICS))))
        topic[-1] = 0  # A last record with zeros in its text could be one that is still being written.
        texts = HostileTexts(chance)
        pool = [self._properties(texts) for _ in range(self._pool_size())]
        properties = chosen(pool, self._random.integers(0, len(pool), self._count))
        properties[-1] = b"city=Berlin"
        apps = chosen(_SHORT_TEXTS, self._vary(range(len(_SHORT_TEXTS)), 1))
        ids = [b"order-%d" % number for number in range(self._count)]
        for number in np.flatnonzero(self._is(0.1)).tolist():
            ids[number] = chance.choice(_SHORT_TEXTS)
        ids[-1] = b"last"
        topics = chosen(_TOPICS, topic)
        parts: list[list[bytes]] = []
        for layout, column in (
            (BODY_LENGTH, bodies), (TOPIC_LENGTH, topics), (APP_LENGTH, apps), (BUSINESS_ID_LENGTH, ids),
            (PROPERTIES_LENGTH, properties),
        ):  # fmt: skip
            parts += [self._length_column(layout, column), column]
        head = np.zeros(self._count, HEAD.numpy_fields)
        numbers = START_MS + np.arange(self._count)
        queue_id = self._vary((0, 5, 127, 128, 254, 255), self._pick(range(4)))
        is_odd = self._is_strange & self._is(0.1)
        queue_offset = self._numbers_of_queues(queue_id * len(_TOPICS) + topic, ~is_odd)
        values: dict[str, Ints | int] = {
            "total_size": HEAD.size + sum(map(lengths, parts)), "magic": Magic.MESSAGE, "sys_flag": flags,
            "business_tag": self._vary((1, 0x7FFF, 0x8000, 0xFFFF), 0), "priority": self._vary((1, 127, 128, 255), 0),
            "queue_id": queue_id, "queue_offset": np.where(is_odd, self._pick(_QUEUE_OFFSETS), queue_offset),
            "client_ip": self._pick(_ADDRESSES), "client_port": self._pick((0, 50123, 65535)),
            "server_ip": self._pick(_ADDRESSES), "server_port": self._pick((0, 50088, 65535)),
            "send_timestamp": self._vary(INT64, numbers), "receive_delay": self._vary(INT32, 5),
            "store_delay": self._vary(INT32, 9), "body_crc": crcs,
        }  # fmt: skip
        for name, column_values in values.items():
            head[name] = column_values
        self._damage_lengths(parts)
        return head, "journal_offset", parts

    def _draw_bodies(self, flags: Ints) -> tuple[list[bytes], Ints]:
        """Return bodies and their checksums; most of those that are flagged as compressed are."""
        chance = self._chance
        plain = [chance.randbytes(chance.randrange(60)) for _ in range(_BODIES)]
        packed = [zlib.compress(body) for body in plain[:-4]]
        packed += [zlib.compress(bytes(_LARGE_BODY_BYTES)), zlib.compress(b""), b"", b"\x78\x9c"]
        is_packed = ((flags & COMPRESSED) > 0) ^ self._is(0.02)
        body = self._random.integers(0, _BODIES, self._count) + np.where(is_packed, _BODIES, 0)
        return chosen(plain + packed, body), np.array([body_crc(each) for each in plain + packed])[body]

    def _properties(self, texts: HostileTexts) -> bytes:
        """Return properties, sometimes with separators and bytes at wrong places."""
        chance = self._chance
        lines = [("city", "Berlin")]
        while chance.random() < 0.6:
            lines.append((chance.choice(_NAMES if chance.random() < 0.9 else TEXTS), texts.value()))
        chance.shuffle(lines)
        data = "\n".join(f"{name}={value}" for name, value in lines).encode("utf-8", "surrogatepass")
        if chance.random() < 0.2:
            at = chance.randrange(len(data) + 1)
            data = data[:at] + chance.choice(_SEPARATORS) + data[at:]
        if chance.random() < 0.0005:
            data = chance.choice((b"\xff", b"=", b"\\", b"\n", b"\0", b"a=b\n")) * MAX_SIZE
        return b"" if chance.random() < 0.1 else data[:MAX_SIZE]

    def _length_column(self, layout: Layout, column: list[bytes]) -> list[bytes]:
        table = np.zeros(self._count, layout.numpy_fields)
        table[layout.fields[0].name] = lengths(column)
        return rows(table)

    def _damage_lengths(self, parts: list[list[bytes]]) -> None:
        """Change one length of half of the damaged records; `_heads` changes a field of the others."""
        numbers = np.flatnonzero(self.is_damaged & self._is(0.5)).tolist()
        self._has_odd_length = np.zeros(self._count, np.bool_)
        self._has_odd_length[numbers] = True
        for number in numbers:
            column = parts[2 * self._chance.randrange(len(parts) // 2)]
            column[number] = self._changed(column[number])

    def _heads(self, head: npt.NDArray[Any], first: int) -> list[bytes]:
        data = rows(head)
        stretch = slice(first, first + len(head))
        for number in np.flatnonzero(self.is_damaged[stretch] & ~self._has_odd_length[stretch]).tolist():
            name = self._chance.choice(_DAMAGED_FIELDS)
            start = HEAD.offset_of(name)
            size = head.dtype[name].itemsize
            record = data[number]
            data[number] = record[:start] + self._changed(record[start : start + size]) + record[start + size :]
        return data

    def _changed(self, field: bytes) -> bytes:
        """Return other bytes for a field: a number at a limit, or one with a changed bit."""
        size = len(field)
        limits = (bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), b"\x80" + bytes(size - 1))
        other = self._chance.choice(limits)
        if other == field or self._chance.random() < 0.5:
            bit = 1 << self._chance.randrange(8 * size)
            other = (int.from_bytes(field, "big") ^ bit).to_bytes(size, "big")
        return other
