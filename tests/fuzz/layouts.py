"""Targets for formats of files: mutated samples give a value, or the layout's error."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq import queue_file as jmq_message_id
from commitlake.schemas.layouts.jmq import queue_file as jmq_queue
from commitlake.schemas.layouts.jmq.checkpoint import (
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from commitlake.schemas.layouts.jmq.consume_records import (
    Consumption,
    DeliveryOutcome,
    parse_consumption,
    serialize_consumption,
)
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue, ConsumerPosition, parse_offsets, serialize_offsets
from commitlake.schemas.layouts.jmq.queue_file import MessageIdParts
from commitlake.schemas.layouts.rocketmq import batchconsumequeue, consumequeue, indexfile
from commitlake.schemas.layouts.rocketmq.checkpoint import parse_checkpoint
from commitlake.schemas.layouts.rocketmq.commitlog import parse_message
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.layouts.rocketmq.properties import parse_properties
from commitlake.schemas.remoting.batch import parse_batch
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import Target
from tests.support import journals, logs

Parse = Callable[[bytes], object]


class Parsed(Target):
    """Bytes that are parsed."""

    def __init__(self, chance: random.Random, cases: Sequence[tuple[Mutator, Parse]]) -> None:
        self._chance = chance
        self._cases = cases

    def try_one(self) -> None:
        """Parse mutated bytes: the result is a value, or an error of the layout."""
        mutator, parse = self._chance.choice(self._cases)
        data = mutator.next()
        try:
            parse(data)
        except LayoutError:
            return


class Layouts(Parsed):
    """Records, entries of indexes and small files of RocketMQ's stores; records of BoltMQ's."""

    def __init__(self, chance: random.Random) -> None:
        sent = logs.records(logs.messages(12))
        boltmq = logs.records(logs.messages(4), dialect=BOLTMQ)
        entry = consumequeue.ENTRY
        queue = b"".join(entry.pack(number * 100, 100, number) for number in range(4))
        words = (b"\x01", b"\x02", b"KEYS", *logs.MAGICS)
        cases: list[tuple[Mutator, Parse]] = [
            (Mutator(chance, [*sent, sent[0] + sent[1], *boltmq], words), _parse_records),
            (Mutator(chance, [queue, bytes(60)]), _parse_entries),
            (Mutator(chance, [b"KEYS\x01a b\x02TAGS\x01t\x02", b""], words), parse_properties),
            (Mutator(chance, [bytes(64), bytes(4096)]), parse_checkpoint),
            (Mutator(chance, [sent[3][:60], bytes(80)]), parse_batch),
            (Mutator(chance, [b"7F00000100002A9F0000000000001F2C"]), _parse_id),
        ]
        super().__init__(chance, cases)


def _parse_records(data: bytes) -> None:
    position = 0
    while (parsed := parse_message(data, position)) is not None:
        assert 0 < parsed[1] <= len(data) - position
        position += parsed[1]


def _parse_entries(data: bytes) -> None:
    data = data.ljust(64, b"\0")  # readers read them whole
    consumequeue.parse_entry(data)
    batchconsumequeue.parse_entry(data)
    indexfile.parse_header(data)
    indexfile.parse_entry(data, 0)


def _parse_id(data: bytes) -> None:
    parse_message_id(str(data, "latin-1"))


class JmqLayouts(Parsed):
    """The same for JMQ's stores."""

    def __init__(self, chance: random.Random) -> None:
        sent = journals.records(journals.messages(12, max_body=600))
        queue = b"".join(jmq_queue.serialize_entry(jmq_queue.JmqQueueEntry(number * 100, 100)) for number in range(4))
        consumed = serialize_consumption(
            Consumption("orders", 1, 2, 3, "mail", DeliveryOutcome.FAILED, journals.SENT_MS, 1, journals.CLIENT)
        )
        offsets = serialize_offsets({ConsumedQueue("orders", "mail", 1): ConsumerPosition(3, 5, journals.SENT_MS)}, 1)
        checkpoint = serialize_journal_checkpoint(JournalCheckpoint(100, 50, journals.SENT_MS, 2))
        words = (b"\x12\x34", b"=", b"\\", b"\n", b'"')
        cases: list[tuple[Mutator, Parse]] = [
            (Mutator(chance, [*sent, sent[0] + sent[1]], words), _parse_journal),
            (Mutator(chance, [queue, bytes(44)]), _parse_journal_entries),
            (Mutator(chance, [consumed, consumed + consumed]), parse_consumption),
            (Mutator(chance, [offsets], words), parse_offsets),
            (Mutator(chance, [checkpoint, b""]), parse_journal_checkpoint),
            (Mutator(chance, [b"orders/1/25@broker-a"], (b"/", b"@")), _parse_place),
        ]
        super().__init__(chance, cases)


def _parse_journal(data: bytes) -> None:
    position = 0
    while (parsed := journal.parse_message(data, position)) is not None:
        assert 0 < parsed[1] <= len(data) - position
        position += parsed[1]


def _parse_journal_entries(data: bytes) -> None:
    data = data.ljust(2 * jmq_queue.ENTRY.size, b"\0")
    jmq_queue.count_valid_entries(data[: len(data) // jmq_queue.ENTRY.size * jmq_queue.ENTRY.size])
    jmq_queue.parse_entry(data)


def _parse_place(data: bytes) -> MessageIdParts:
    return jmq_message_id.parse_message_id(str(data, "latin-1"))
