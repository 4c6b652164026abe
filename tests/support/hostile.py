"""Logs whose bodies mislead a reader: they contain records with correct offsets, and BLANKs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.commitlog import FIXED_SIZE, NewMessage, serialize_blank, serialize_message
from tests.support.logs import BROKER_HOST, PRODUCER_HOST, START_MS

TOPIC = "orders"
PROPERTIES = (("TAGS", "x"),)
BEHIND_BODY = 1 + len(TOPIC) + 2 + len("TAGS\x01x\x02")
BEFORE_BODY = 88

Body = Callable[[int], bytes]
"""A body, by the physical offset of its first byte."""


def store_record(body: Body, offset: int, number: int = 0, dialect: Dialect = ROCKETMQ) -> bytes:
    """Return a record at a physical offset."""
    message = NewMessage(TOPIC, body(offset + BEFORE_BODY), START_MS, PRODUCER_HOST, properties=PROPERTIES)
    return serialize_message(
        message, queue_offset=number, physical_offset=offset, store_timestamp=START_MS + number,
        store_host=BROKER_HOST, dialect=dialect,
    )  # fmt: skip


def fake_record(offset: int, beyond: int, topic: str = "fake", dialect: Dialect = ROCKETMQ) -> bytes:
    """Return a record that is valid at an offset, and whose properties cover a number of following bytes."""
    message = NewMessage(topic, b"evil", START_MS, PRODUCER_HOST)
    data = bytearray(
        serialize_message(
            message,
            queue_offset=0,
            physical_offset=offset,
            store_timestamp=START_MS,
            store_host=BROKER_HOST,
            dialect=dialect,
        )
    )
    data[-2:] = beyond.to_bytes(2, "big")
    data[:4] = (len(data) + beyond).to_bytes(4, "big")
    return bytes(data)


FAKE_SIZE = len(fake_record(0, 0))


class HostileLog:
    """A segment in which some bodies contain fake records, also across several records.

    Attributes:
        starts: physical offsets at which records begin.
        fakes: physical offsets at which records within bodies begin.
    """

    def __init__(
        self,
        chance: random.Random,
        size: int,
        max_body: int,
        share: float = 0.5,
        dialects: Sequence[Dialect] = (ROCKETMQ,),
    ) -> None:
        """Fill `data`, except the space for a BLANK, with records and fakes of these dialects in turn."""
        self._chance = chance
        self._dialects = dialects
        self._size = size
        self._next_fake = 0
        self.starts: list[int] = []
        self.fakes: list[int] = []
        out: list[bytes] = []
        offset = 0
        while True:
            fakes, ahead = len(self.fakes), self._next_fake
            body = self._hostile if chance.random() < share else self._plain
            length = chance.randrange(1, max_body)
            record = store_record(
                lambda at, body=body, length=length: body(at, length),  # type: ignore[misc]
                offset,
                len(out),
                dialects[len(out) % len(dialects)],
            )
            if offset + len(record) + 8 > size:
                del self.fakes[fakes:]
                self._next_fake = ahead
                break
            self.starts.append(offset)
            out.append(record)
            offset += len(record)
        self.end = offset
        self.data = b"".join(out)

    def _plain(self, _: int, length: int) -> bytes:
        return self._chance.randbytes(length)

    def _hostile(self, offset: int, length: int) -> bytes:
        """Return a body with fakes; the last one may extend beyond it, and the next ones begin at its end."""
        body = bytearray(self._chance.randbytes(length))
        end = offset + length
        at = self._next_fake if offset <= self._next_fake else offset + self._chance.randrange(length)
        while at + FAKE_SIZE <= end:
            kind = self._chance.randrange(6)
            if kind == 0:
                blank = serialize_blank(self._size - at, self._dialects[-1])[:8]
                body[at - offset : at - offset + 8] = blank
                at += 8 + self._chance.randrange(200)
                continue
            left = end - at - FAKE_SIZE
            beyond = {
                1: left + BEHIND_BODY,  # ends with the record
                2: left + BEHIND_BODY + BEFORE_BODY + self._chance.randrange(300),  # in the next body
                3: self._chance.randrange(left + 1),
            }.get(kind, 0)
            fake = fake_record(at, beyond, dialect=self._dialects[len(self.fakes) % len(self._dialects)])
            body[at - offset : at - offset + len(fake)] = fake
            self.fakes.append(at)
            at += len(fake) + beyond
            if kind == 3 and self._chance.random() < 0.5:  # a gap in the sequence of fakes
                at += self._chance.randrange(50)
        self._next_fake = at
        return bytes(body)

    def closed(self) -> bytes:
        """Return the segment as a broker closes it."""
        return (self.data + serialize_blank(self._size - len(self.data), self._dialects[0])).ljust(self._size, b"\0")

    def open(self) -> bytes:
        """Return the segment as it is while a broker writes it."""
        return self.data.ljust(self._size, b"\0")


assert BEFORE_BODY == FIXED_SIZE - 2 + 16  # two IPv4 hosts, and without the properties' length
