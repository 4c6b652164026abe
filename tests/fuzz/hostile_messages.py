"""Messages with headers and properties that no client sends: records of a log, and requests of a producer."""

from __future__ import annotations

import random
from typing import NamedTuple

from commitlake.broker_lite.delivery import message_rewrites, timer_messages, transactions
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.light_queues import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from commitlake.schemas.layouts.rocketmq.properties import MAX_SIZE
from commitlake.schemas.layouts.rocketmq.topics import (
    CHECK_TIMES,
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from commitlake.schemas.remoting.batch import BatchItem

INTERPRETED = (
    props.KEYS, props.TAGS, props.UNIQ_KEY, props.DELAY, props.REAL_TOPIC, props.REAL_QID, props.RETRY_TOPIC,
    props.ORIGIN_MESSAGE_ID, props.TRAN_MSG, "PGROUP", props.WAIT, props.PRIORITY, INNER_NUM, MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET, "INNER_BASE", message_rewrites.TRANSACTION_ID, CHECK_TIMES, props.TIMER_OUT,
    message_rewrites.TIMER_ENQUEUED, message_rewrites.TIMER_DEQUEUED, timer_messages.DELIVER_MS,
    timer_messages.DELAY_MS, timer_messages.DELAY_SECONDS, timer_messages.CANCELLED_KEY, transactions.IMMUNITY_SECONDS,
    "TRAN_PREPARED_QUEUE_OFFSET", "MIN_OFFSET", "MAX_OFFSET",
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
    "\u0661\u0662", "\u00b2", "\uff11", "--1", "+", "-", "1,2,3", "0,", "0,0", ",", "9" * 19 + "," + "9" * 20,
)  # fmt: skip
TEXTS = (
    "", "a", "true", "TRUE", "false", "orders", "null", "%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a/b,%LMQ%..", "%LMQ%", "*",
    "%LMQ%a,%LMQ%a", "%LMQ%a,,", ",".join(f"%LMQ%{number:x}" for number in range(100)),
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
INT32 = (0, 1, -1, 7, 127, 255, 65535, 65536, (1 << 31) - 1, -(1 << 31))
_TIMES = (9_223_372_036_854, 9_223_372_036_855, -9_223_372_036_855, 253_402_300_799_999, -62_135_596_800_000)
"""At both sides of the last ms that 64 bits of nanoseconds hold; the last and the first ms that the lake holds."""
INT64 = (0, 1, -1, (1 << 31), (1 << 53), (1 << 62), (1 << 63) - 1, -(1 << 63), 253_402_300_800_000, *_TIMES)
START_MS = 1_700_000_000_000
LONG = 1000
"""Characters of a value that makes a message cost more than all others."""
_SENT_FLAGS = ("0", "0", "1", "4", "8", "12", "128", str(0x701), "16", "32")
_POOL = 4096
_INNER_NUM = INNER_NUM.encode()


class Sent(NamedTuple):
    """A producer's request: ext fields of a send in its short form, and the body."""

    fields: dict[str, str]
    body: bytes


class HostileTexts:
    """Makes properties, and requests of a producer; a third of them have only usual values."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0
        self._pool: list[bytes] = []

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def value(self) -> str:
        """Return a number or a text; a long one is drawn less often, because it costs as much as a hundred others."""
        value = self._chance.choice(NUMBERS if self._is(0.6) else TEXTS)
        return value if len(value) < LONG or self._is(0.3) else self.value()

    def properties(self, number: int) -> list[tuple[str, str]]:
        """Return pairs, most with some whose values brokers interpret, and which may be invalid."""
        chance = self._chance
        pairs = [("UNIQ_KEY", f"U{number:031d}"), ("KEYS", f"order-{number}")]
        if self._is(0.35):
            return pairs
        for _ in range(1 + int(chance.random() * 4)):
            name = chance.choice(INTERPRETED) if self._is(0.95) else chance.choice(TEXTS)
            pairs.append((name, self.value()))
        if self._is(0.3):
            chance.shuffle(pairs)
        return pairs

    def stored_properties(self, number: int) -> bytes:
        """Return properties as in a record, sometimes with separators and bytes at wrong places."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in self.properties(number))
        data = text.encode("utf-8", "surrogatepass")
        if self._is(0.1):
            at = int(self._chance.random() * (len(data) + 1))
            data = data[:at] + self._chance.choice((b"\x01", b"\x02", b"\x00", b"\xff\xc0", b"\x02\x01")) + data[at:]
        if self._is(0.3):
            data = data.rstrip(b"\x02")
        return data[:MAX_SIZE]

    def _text(self) -> bytes:
        """Return properties; at least one in four is new, the others are used again."""
        self._count += 1
        if len(self._pool) < _POOL or self._is(0.25):
            text = self.stored_properties(self._count)
            self._pool[self._count % _POOL : self._count % _POOL + 1] = [text]
            return text
        return self._pool[int(self._chance.random() * _POOL)]

    def item(self) -> BatchItem:
        """Return one message of a batch."""
        chance = self._chance
        flag = chance.choice(INT32) if self._is(0.05) else 0
        text = self._text()
        if self._is(0.999):  # Few, because one of them makes a broker refuse the whole batch.
            text = text.replace(_INNER_NUM, b"INNER_NUX")
        return BatchItem(flag, chance.randbytes(int(chance.random() * 60)), text)

    def sent_batch(self, topic: str) -> dict[str, str]:
        """Return the fields of a batch's send; one in five is as strange as those of a message."""
        if self._is(0.2):
            return self.sent().fields | {"b": topic, "m": "true"}
        return self._fields("UNIQ_KEY\x01U\x02") | {"b": topic, "m": "true"}

    def sent(self) -> Sent:
        """Return a send with arbitrary fields."""
        chance = self._chance
        fields = self._fields(str(self._text(), "utf-8", "replace"))
        if self._is(0.3):
            for _ in range(1 + int(chance.random() * 2)):
                fields[chance.choice("bdefghjlm")] = self.value()
        return Sent(fields, chance.randbytes(int(chance.random() * 60)))

    def _fields(self, text: str) -> dict[str, str]:
        chance = self._chance
        return {
            "a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0123"[int(chance.random() * 4)],
            "f": _SENT_FLAGS[int(chance.random() * len(_SENT_FLAGS))], "g": str(START_MS), "h": "0", "i": text,
            "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
