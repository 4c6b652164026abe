"""Messages whose headers and properties hold what no client sends: records of a log, and what a producer says."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import NamedTuple

from broker_lite.delivery import rewrites, timers, transactions
from schemas.layouts import properties as props
from schemas.layouts.commitlog import HEAD, PROPERTIES_LENGTH, STORED, TAIL, TOPIC_LENGTH
from schemas.layouts.dialect import ROCKETMQ, Magic
from schemas.layouts.inner_batch import INNER_NUM
from schemas.layouts.light_queues import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from schemas.layouts.properties import MAX_SIZE
from schemas.layouts.sysflag import BORN_HOST_V6, INNER_BATCH, STORE_HOST_V6, TRANSACTION_MASK, TransactionType
from schemas.layouts.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)

INTERPRETED = (
    props.KEYS, props.TAGS, props.UNIQ_KEY, props.DELAY, props.REAL_TOPIC, props.REAL_QID, props.RETRY_TOPIC,
    props.ORIGIN_MESSAGE_ID, props.TRAN_MSG, "PGROUP", props.WAIT, props.PRIORITY, INNER_NUM, MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET, "INNER_BASE", rewrites.TRANSACTION_ID, rewrites.CHECK_TIMES, props.TIMER_OUT,
    rewrites.TIMER_ENQUEUED, rewrites.TIMER_DEQUEUED, timers.DELIVER_MS, timers.DELAY_MS, timers.DELAY_SECONDS,
    timers.CANCELLED_KEY, transactions.IMMUNITY_SECONDS, "TRAN_PREPARED_QUEUE_OFFSET", "MIN_OFFSET", "MAX_OFFSET",
    "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "CLUSTER", "MSG_REGION", "TRACE_ON", "BUYER_ID",
    "__SHARDINGKEY", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "PUSH_REPLY_TIME", "MSG_TYPE",
    "TIMER_ENGINE_TYPE", "TIMER_ROLL_TIMES", "DUP_INFO", "EXTEND_UNIQ_INFO", "POP_CK", "CRC32", "__CRC32#",
)  # fmt: skip
"""Names that the broker, its clients or a reader give a meaning."""
NUMBERS = (
    "0", "1", "3", "18", "19", "-1", "+1", "-0", "007", "127", "128", "255", "256", "32767", "32768", "65535", "65536",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616", "9" * 20, "9" * 400,
    "9" * 5000, "-" + "9" * 5000, "0" * 5000 + "1", "1_000", " 5", "5 ", "0x10", "1.0", "1e3", "1e400", "nan", "inf",
    "\u0661\u0662", "\u00b2", "\uff11", "--1", "+", "-", "1,2,3", "0,", ",", "9" * 19 + "," + "9" * 20,
)  # fmt: skip
TEXTS = (
    "", "a", "true", "TRUE", "false", "orders", "null", "%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a/b,%LMQ%..", "%LMQ%", "*",
    "../../etc/passwd", "/", ".", "..", "a b  c", " ", "k" * 300, "k" * 30_000, "k " * 2000, "\u5b57" * 100, "\x00",
    "a\x00b", "\x1b[31m", "\u202e", "\U0001f600", SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, TRACE_TOPIC,
    f"{RETRY_PREFIX}g", f"{DLQ_PREFIX}g", "polygenelubricants", "0" * 32, "7F00000100002A9F0000000000001F2C",
)  # fmt: skip
TOPICS = (
    *(b"orders",) * 8, b"payments", SCHEDULE_TOPIC.encode(), TIMER_TOPIC.encode(), HALF_TOPIC.encode(),
    OP_TOPIC.encode(), TRACE_TOPIC.encode(), f"{RETRY_PREFIX}g".encode(), f"{DLQ_PREFIX}g".encode(), b"x" * 127,
    b"TBW102", b"rmq_sys_x", b"a.b", b"%LMQ%a",
)  # fmt: skip
ODD_TOPICS = (b"\xff\xfe", b"a\x00b", b"..", b".", b"../../../x", b"a/b", b"y" * 255, "\u5b57".encode() * 20, b" ")
_INT32 = (0, 1, -1, 7, 127, 255, 65535, 65536, (1 << 31) - 1, -(1 << 31))
_INT64 = (0, 1, -1, (1 << 31), (1 << 53), (1 << 62), (1 << 63) - 1, -(1 << 63), 253_402_300_800_000)
_ODD_QUEUE_OFFSETS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, (1 << 56) + 1)
START_MS = 1_700_000_000_000
_QUEUED = (TransactionType.NOT, TransactionType.COMMIT)
_codes = [field.code for layout in (HEAD, STORED, TAIL) for field in layout.fields]
_HEAD, _STORED, _TAIL = HEAD.struct, STORED.struct, TAIL.struct
_HOSTS = ((b"\x0a\0\0\1", 10911), (b"\xff\xff\xff\xff", -1), (b"\0\0\0\0", (1 << 31) - 1))
_V6_HOSTS = ((b"\0" * 15 + b"\1", 10911), (b"\xff" * 16, -(1 << 31)))


class Sent(NamedTuple):
    """What a producer says of a message: ext fields of a send in its short form, and the body."""

    fields: dict[str, str]
    body: bytes


class HostileMessages:
    """Makes records one behind the other, and sends; a third of all have nothing strange.

    Attributes:
        has_zero: whether topic or properties of the last record hold a zero.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._numbers: Counter[tuple[bytes, int]] = Counter()
        self._count = 0
        self.has_zero = False

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def properties(self) -> list[tuple[str, str]]:
        """Pairs, of which some have a value that means something, with text that is no such value."""
        chance = self._chance
        pairs = [("UNIQ_KEY", f"U{self._count:031d}"), ("KEYS", f"order-{self._count}")]
        if self._is(0.35):
            return pairs
        for _ in range(1 + int(chance.random() * 4)):
            name = chance.choice(INTERPRETED) if self._is(0.95) else chance.choice(TEXTS)
            pairs.append((name, chance.choice(NUMBERS if self._is(0.6) else TEXTS)))
        if self._is(0.3):
            chance.shuffle(pairs)
        return pairs

    def stored_properties(self) -> bytes:
        """The same as a record has them, and sometimes with separators and bytes where none may be."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in self.properties())
        data = text.encode("utf-8", "surrogatepass")
        if self._is(0.1):
            at = int(self._chance.random() * (len(data) + 1))
            data = data[:at] + self._chance.choice((b"\x01", b"\x02", b"\x00", b"\xff\xc0", b"\x02\x01")) + data[at:]
        if self._is(0.3):
            data = data.rstrip(b"\x02")
        return data[:MAX_SIZE]

    def record(self, physical_offset: int) -> bytes:
        """One record that is intact, at its place in a log."""
        chance = self._chance
        self._count += 1
        is_strange = self._is(0.3)
        topic = chance.choice(ODD_TOPICS if is_strange and self._is(0.2) else TOPICS)
        magic = Magic.V2 if len(topic) > 127 or self._is(0.05) else Magic.V1
        sys_flag = chance.choice((0, 0, 0, 1, 2, 4, 8, 12, INNER_BATCH, INNER_BATCH, 0x101, 0x201, 0x701, 0x40))
        if is_strange and self._is(0.2):
            sys_flag = chance.choice(_INT32) & ~(BORN_HOST_V6 | STORE_HOST_V6)
        hosts = []
        for bit in (BORN_HOST_V6, STORE_HOST_V6):
            is_v6 = self._is(0.1)
            sys_flag |= bit if is_v6 else 0
            address, port = chance.choice(_V6_HOSTS if is_v6 else _HOSTS)
            hosts.append(address + struct.pack(">i", port))
        queue_id = chance.choice(_INT32) if is_strange and self._is(0.2) else int(chance.random() * 4)
        properties = self.stored_properties()
        self.has_zero = b"\0" in topic + properties
        body = chance.randbytes(int(chance.random() * 60))
        topic_length = TOPIC_LENGTH[magic].struct.pack(len(topic))
        size = _HEAD.size + _STORED.size + _TAIL.size + sum(map(len, hosts)) + len(body)
        size += len(topic_length) + len(topic) + PROPERTIES_LENGTH.size + len(properties)
        return b"".join(
            (
                _HEAD.pack(
                    size, magic, ROCKETMQ.body_crc(body), queue_id, self._odd(is_strange, _INT32, 0),
                    self._queue_offset(topic, queue_id, sys_flag, is_strange), physical_offset, sys_flag,
                    self._odd(is_strange, _INT64, START_MS + self._count),
                ),
                hosts[0],
                _STORED.pack(self._odd(is_strange, _INT64, START_MS + 1000 + self._count)),
                hosts[1],
                _TAIL.pack(self._odd(is_strange, _INT32, 0), self._odd(is_strange, _INT64, 0), len(body)),
                body,
                topic_length,
                topic,
                PROPERTIES_LENGTH.struct.pack(len(properties)),
                properties,
            )
        )  # fmt: skip

    def _odd(self, is_strange: bool, values: tuple[int, ...], usual: int) -> int:
        return self._chance.choice(values) if is_strange and self._is(0.2) else usual

    def _queue_offset(self, topic: bytes, queue_id: int, sys_flag: int, is_strange: bool) -> int:
        """The next of the queue; one that no queue can have, now and then."""
        if is_strange and self._is(0.1):
            return self._chance.choice(_ODD_QUEUE_OFFSETS)
        if sys_flag & TRANSACTION_MASK not in _QUEUED:
            return 0
        self._numbers[topic, queue_id] += 1
        return self._numbers[topic, queue_id] - 1

    def sent(self) -> Sent:
        """A send of a client that says what it likes."""
        chance = self._chance
        self._count += 1
        is_strange = self._is(0.3)
        fields = {
            "a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": str(int(chance.random() * 4)),
            "f": str(chance.choice((0, 0, 1, 4, 8, 12, 128, 0x701, 16, 32))), "g": str(START_MS), "h": "0",
            "i": "".join(f"{name}\x01{value}\x02" for name, value in self.properties()), "j": "0", "k": "false",
            "m": "false",
        }  # fmt: skip
        if is_strange:
            for _ in range(1 + int(chance.random() * 2)):
                fields[chance.choice("bdefghjlm")] = chance.choice(NUMBERS if self._is(0.7) else TEXTS)
        return Sent(fields, chance.randbytes(int(chance.random() * 60)))
