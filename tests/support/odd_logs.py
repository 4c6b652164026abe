"""Logs of odd messages beside sound ones, and the same logs without the odd ones.

Every field has its extreme values, one topic for each oddity. In the plain log, a record of the topic `filler` that is
as long stands in for each odd record, so that the sound records of both logs are the same bytes at the same offsets.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq.journal import NewJournalMessage
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from tests.support import journals
from tests.support.journals import write_journal
from tests.support.lag_places import put_offsets
from tests.support.logs import BROKER_HOST, PRODUCER_HOST, START_MS, new_message, write_store

SEGMENT = 1 << 20
GROUP = "billing"
SOUND = ("orders", "payments", f"%RETRY%{GROUP}", f"%DLQ%{GROUP}")
"""Topics whose rows and figures must not depend on the odd messages."""
FILLER = "filler"
SOUND_MESSAGES = 60
LEAST, MOST = -(1 << 63), (1 << 63) - 1
_NOW = START_MS + 500
INTS = (-(1 << 31), -1, (1 << 31) - 1)
TIMES = (
    *(LEAST, LEAST + 1, -62_135_596_800_001, -62_135_596_800_000, -9_223_372_036_855, -86_400_000, -1, 0, 1),
    *(9_223_372_036_854, 9_223_372_036_855, 9_224_318_016_000, 32_503_680_000_000),
    *(253_402_300_799_999, 253_402_300_800_000, 9_223_372_036_854_775, 9_223_372_036_854_776, MOST - 1, MOST),
)
"""Milliseconds at the ends of the calendars of Python, pandas, Arrow, Spark and Java."""
OFFSETS = {
    "jump": (0, 1, 3),
    "far-jumps": (0, (1 << 62) - 1, 0, (1 << 62) - 1, 0, (1 << 62) - 1, MOST),
    "restart": (5, 6, 0, 1),
    "same": (2, 2, 2),
    "negative": (-1, LEAST, -2),
    "last": (MOST - 1, MOST, 1 << 62),
}
TOPICS = (
    *("orders\0", "orders\0\0", "\0", "orders ", "ORDERS", "órders", "o" * 127, "t" * 255, "payments\n"),
    *("a/b", "..", ".", "../../x", "a'b\"c`d\\e", "{x}", "%s", "*", "topic=1", "\ufeffbom", "\u202ertl", "😀", "=1+1"),
    *(f"%RETRY%{GROUP}\0", f"%DLQ%{GROUP}\0", "%RETRY%", "%DLQ%", "%LMQ%\0", "NULL", "nan", "None", "0", "-1"),
)
PROPERTIES: dict[str, Sequence[tuple[str, str]]] = {
    "nul": (("KEYS", "a\0 a \0"), ("UNIQ_KEY", "u\0"), ("TAGS", "t\0"), ("\0", "\0")),
    "keys": (("KEYS", " ".join(f"k{number}" for number in range(3000))),),
    "spaces": (("KEYS", "   "), ("TAGS", " "), ("UNIQ_KEY", " ")),
    "twice": (("KEYS", "x"), ("KEYS", "y"), ("TAGS", "p"), ("TAGS", "q"), ("UNIQ_KEY", "1"), ("UNIQ_KEY", "2")),
    "numbers": tuple(
        (name, "9" * 400)
        for name in ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "REAL_QID", "INNER_NUM", "PGROUP")
    ),
    "negatives": tuple(
        (name, "-1") for name in ("DELAY", "TIMER_DELIVER_MS", "REAL_QID", "RECONSUME_TIME", "PRIORITY")
    ),
    "times": (("TIMER_OUT_MS", str(MOST)), ("TIMER_DELIVER_MS", str(LEAST)), ("1ST_POP_TIME", str(MOST))),
    "words": (
        ("DELAY", "soon"),
        ("REAL_QID", "first"),
        ("TIMER_OUT_MS", "1e9"),
        ("WAIT", "yes"),
        ("REAL_TOPIC", "\0"),
    ),
    "origins": (
        ("REAL_TOPIC", "orders\0"),
        ("RETRY_TOPIC", "\0"),
        ("ORIGIN_MESSAGE_ID", "zz"),
        ("DLQ_ORIGIN_TOPIC", "\0"),
    ),
    "lights": (("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b,,"), ("INNER_MULTI_QUEUE_OFFSET", f"{MOST},-1,x")),
    "unicode": (("KEYS", "e\u0301 é \ufffd"), ("TAGS", "\u2028"), ("UNIQ_KEY", "😀")),
}
SYSTEM = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster", "TBW102",
)  # fmt: skip
"""Topics whose records a broker reads, and which clients can write nevertheless."""
BODIES = (
    b"", b"\0", b"hello", b"hello", b"hello", b"\xff" * 300, b"{" * 2000, b"1,2,\0", b"d9999999999999999999",
    f"Pub\x01{MOST}\x01region\x01g\x01orders\x01id\x01tag\x01key\x01h\x01-5\x01{LEAST}\x01x\x02".encode(),
    f"SubAfter\x01id\x01{MOST}\x01true\x01k\x011\x01{MOST}\x01g\x02SubBefore\x01{LEAST}\x01r\x01g\x01id\x01x\x01k\x02".encode(),
    json.dumps({"so": MOST, "t": "orders\0", "c": GROUP, "q": -1, "bd": LEAST, "rt": MOST, "it": MOST}).encode(),
)  # fmt: skip
"""Bodies, of which some say impossible things in the broker's own topics."""


Odd = tuple[NewMessage, int, int | None, bytes | None]
"""A message with its store time, its queue offset (None for the next one), and a raw topic (None for its own)."""


def odd_messages() -> Iterator[Odd]:
    """Yield all odd messages."""
    for number, (topic, changes, stored_ms, queue_offset, raw) in enumerate([*_numbers(), *_texts()]):
        message = new_message(number, topic, **{"queue_id": 0, "properties": (), **changes})  # type: ignore[arg-type]
        yield message, stored_ms, queue_offset, raw


_Change = tuple[str, dict[str, object], int, int | None, bytes | None]


def _changed(topic: str, **changes: object) -> _Change:
    return topic, changes, _NOW, None, None


def _numbers() -> Iterator[_Change]:
    for time in TIMES:
        yield "odd-stored", {}, time, None, None
        yield _changed("odd-born", born_timestamp=time)
        yield "odd-both", {"born_timestamp": time}, time, None, None
        yield f"%DLQ%{GROUP}-odd", {"born_timestamp": time}, time, None, None
    for name, offsets in OFFSETS.items():
        yield from ((f"odd-{name}", {}, _NOW, offset, None) for offset in offsets)
    for value in INTS:
        for name in ("queue_id", "flag", "reconsume_times", "prepared_transaction_offset"):
            yield _changed(f"odd-{name}", **{name: value})
    for bit in set(range(32)) - {4, 5}:  # these two change the sizes of the hosts
        yield _changed("odd-flags", sys_flag=(1 << bit) - (1 << 32 if bit == 31 else 0))
    for host in (
        Host.of("255.255.255.255", 65535),
        Host.of("0.0.0.0", 0),
        Host.of("::", 0),
        Host.of("::ffff:1.2.3.4", 1),
    ):
        yield _changed("odd-hosts", born_host=host)


def _texts() -> Iterator[_Change]:
    for count in ("0", "-1", "1", "32", str((1 << 31) - 1), "9" * 40, "x", "\0"):
        yield _changed("odd-batch", sys_flag=INNER_BATCH, properties=(("INNER_NUM", count),))
    for topic in TOPICS:
        yield from (_changed(topic, properties=(("KEYS", key),)) for key in "ab")
    for raw in (b"\xff\xfe", b"odd\xc3", b"\xed\xa0\x80"):
        yield "x" * len(raw), {}, _NOW, None, raw
    for name, pairs in PROPERTIES.items():
        topics = (f"odd-{name}", *SYSTEM, f"%DLQ%{GROUP}-odd", f"%RETRY%{GROUP}-odd")
        yield from (_changed(topic, properties=pairs) for topic in topics)
    for body in BODIES:
        yield from (_changed(topic, body=body) for topic in ("odd-bodies", *SYSTEM))


def sound_messages() -> Iterator[NewMessage]:
    """Yield the messages of sound topics, some of them failed and dead."""
    for number in range(SOUND_MESSAGES):
        topic = SOUND[0] if number % 2 else SOUND[1]
        message = new_message(number, topic, f"body {number}".encode() * 9, queue_id=number % 3)
        pairs = (("KEYS", f"order-{number}"), ("UNIQ_KEY", f"{number:032X}"), ("TAGS", f"tag{number % 3}"))
        yield replace(message, properties=pairs)
        if number % 10 == 0:
            again = (*pairs, ("RETRY_TOPIC", topic), ("ORIGIN_MESSAGE_ID", "0A" * 16))
            for failed in (SOUND[2], SOUND[3]):
                yield replace(message, topic=failed, queue_id=0, properties=again, reconsume_times=1)


class _Queues(Counter[tuple[str, int]]):
    """The next queue offset of each queue."""

    def take(self, topic: str, queue_id: int) -> int:
        """Return the next queue offset, which is then used."""
        self[topic, queue_id] += 1
        return self[topic, queue_id] - 1


Record = Callable[[int], bytes]
"""A record by its physical offset."""


def write_odd_and_plain(folder: Path) -> tuple[Path, Path]:
    """Write the stores `odd/a` and `plain/a`, with offsets of a group in their sound topics; return their folders."""
    queues = _Queues()
    sound = [
        partial(_record, message, queues, START_MS + 1000 * number) for number, message in enumerate(sound_messages())
    ]
    odd = [partial(_odd_record, each, queues) for each in odd_messages()]
    least = len(_record(NewMessage(FILLER, b"", START_MS, PRODUCER_HOST), _Queues(), 0, 0))

    def fill(size: int, offset: int) -> bytes:
        return _record(NewMessage(FILLER, bytes(size - least), START_MS, PRODUCER_HOST), queues, _NOW, offset)

    stores = folder / "odd" / "a", folder / "plain" / "a"
    for store, log in zip(stores, _mixed(sound, odd, fill), strict=True):
        write_store(store, [(0, log.ljust(SEGMENT, b"\0"))])
        put_offsets(store, "consumerOffset.json", {f"{topic}@{GROUP}": {0: 3, 1: 2} for topic in SOUND[:2]})
    return stores


def _journal_changes() -> Iterator[tuple[str, dict[str, object]]]:
    for time in TIMES:
        yield "odd-times", {"send_timestamp": time}
    for topic in TOPICS:
        if len(topic) < 255:
            yield topic, {"business_id": ""}
            yield topic, {"business_id": "\0"}
    for number in (0, 255, 65_535):
        yield "odd-numbers", {"business_tag": number, "priority": number & 255}
    for text in ("\0", "é" * 127, "a\n", "=1"):
        yield "odd-texts", {"app": text, "business_id": text}
    for name in sorted(PROPERTIES.keys() - {"nul", "twice"}):
        yield f"odd-{name}", {"properties": PROPERTIES[name]}
    for body in BODIES:
        yield "odd-bodies", {"body": body}
        yield "odd-bodies", {"body": body, "is_compressed": True}


def write_odd_and_plain_journal(folder: Path) -> tuple[Path, Path]:
    """Write the stores `odd/a` and `plain/a` of JMQ, whose store times follow the producers' clocks."""
    queues = _Queues()
    sound = [
        partial(_journal_record, journals.new_message(number, SOUND[number % 2]), queues)
        for number in range(SOUND_MESSAGES)
    ]
    odd = [
        partial(_journal_record, journals.new_message(number, topic, **change), queues)  # type: ignore[arg-type]
        for number, (topic, change) in enumerate(_journal_changes())
    ]
    for offsets in OFFSETS.values():
        odd += [
            partial(_journal_record, journals.new_message(topic="odd-offsets"), queues, queue_offset=offset & MOST)
            for offset in offsets
        ]
    bare = NewJournalMessage(FILLER, b"", journals.SENT_MS, journals.CLIENT)
    least = len(_journal_record(bare, _Queues(), 0))

    def fill(size: int, offset: int) -> bytes:
        return _journal_record(replace(bare, body=bytes(size - least)), queues, offset)

    stores = folder / "odd" / "a", folder / "plain" / "a"
    for store, log in zip(stores, _mixed(sound, odd, fill), strict=True):
        write_journal(store, [(0, log.ljust(SEGMENT, b"\0"))])
    return stores


def _mixed(sound: Sequence[Record], odd: Sequence[Record], fill: Callable[[int, int], bytes]) -> tuple[bytes, bytes]:
    """Return a log with odd records after each sound one, and the same log with other records in their place."""
    logs, waiting = (bytearray(), bytearray()), list(odd)
    for number, make in enumerate(sound):
        record = make(len(logs[0]))
        for log in logs:
            log.extend(record)
        share = -(-len(waiting) // (len(sound) - number))
        for make_odd in waiting[:share]:
            record = make_odd(len(logs[0]))
            logs[1].extend(fill(len(record), len(logs[1])))
            logs[0].extend(record)
        del waiting[:share]
    return bytes(logs[0]), bytes(logs[1])


def _odd_record(odd: Odd, queues: _Queues, offset: int) -> bytes:
    message, stored_ms, queue_offset, raw = odd
    record = _record(message, queues, stored_ms, offset, queue_offset)
    if raw is None:
        return record
    start = record.rindex(message.topic.encode(), 0, len(record) - len(serialize_properties(message.properties)))
    return record[:start] + raw + record[start + len(raw) :]


def _record(
    message: NewMessage, queues: _Queues, stored_ms: int, offset: int, queue_offset: int | None = None
) -> bytes:
    return serialize_message(
        message,
        queue_offset=queues.take(message.topic, message.queue_id) if queue_offset is None else queue_offset,
        physical_offset=offset,
        store_timestamp=stored_ms,
        store_host=BROKER_HOST,
    )


def _journal_record(message: NewJournalMessage, queues: _Queues, offset: int, queue_offset: int | None = None) -> bytes:
    return journal.serialize_message(
        message,
        queue_id=0,
        queue_offset=queues.take(message.topic, 0) if queue_offset is None else queue_offset,
        journal_offset=offset,
        receive_timestamp=message.send_timestamp + 5,
        store_timestamp=message.send_timestamp + 9,
        server_address=journals.BROKER,
    )
