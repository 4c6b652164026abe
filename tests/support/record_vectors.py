"""Records of a CommitLog, byte by byte."""

from __future__ import annotations

from typing import Any

from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.logs import BROKER_HOST, PRODUCER_HOST

V1_RECORD = bytes.fromhex(
    "000000b6 daa320a7 69c865ed 00000003 00000000 00000000 00000005 00000000"
    "00000000 00000000 0000018b cfe5687b c0a8010a 0000c3cb 0000018b cfe569c8"
    "0a000001 00002a9f 00000000 00000000 00000000 0000000e 48656c6c 6f20526f"
    "636b6574 4d510954 6f706963 54657374 00444b45 5953016f 72646572 2d313030"
    "3102554e 49515f4b 45590143 30413830 31304131 46393031 38423441 41433230"
    "30303030 30303130 30303002 54414753 01546167 4102"
)
V2_TOPIC = "%RETRY%" + 122 * "g"
V2_RECORD = (
    bytes.fromhex(
        "000000e5 daa320ab 0cdc1683 00000000 00000000 00000000 00000000 00000000"
        "000000b6 00000000 0000018b cfe5687b c0a8010a 0000c3cb 0000018b cfe569c8"
        "0a000001 00002a9f 00000001 00000000 00000000 00000001 7800812552455452 5925"
    )
    + 122 * b"g"
    + bytes.fromhex("0007 54414753 01 74 02")
)
V6_RECORD = bytes.fromhex(
    "0000007e daa320a7 77065916 00000000 00000000 00000000 00000000 00000000"
    "00000000 00000030 0000018b cfe5687b 20010db8 00000000 00000000 00000001"
    "0000c3cb 0000018b cfe569c8 20010db8 00000000 00000000 00000002 00002a9f"
    "00000000 00000000 00000000 00000002 76360254 36000754 41475301 7402"
)
BORN, STORED = 1_700_000_000_123, 1_700_000_000_456
VECTORS = {
    "V1": (
        V1_RECORD,
        NewMessage(
            "TopicTest", b"Hello RocketMQ", BORN, PRODUCER_HOST, queue_id=3,
            properties=(("KEYS", "order-1001"), ("UNIQ_KEY", "C0A8010A1F9018B4AAC2000000010000"), ("TAGS", "TagA")),
        ),
        {"queue_offset": 5, "physical_offset": 0, "store_host": BROKER_HOST},
        "0A00000100002A9F0000000000000000",
    ),
    "V2": (
        V2_RECORD,
        NewMessage(V2_TOPIC, b"x", BORN, PRODUCER_HOST, reconsume_times=1, properties=(("TAGS", "t"),)),
        {"queue_offset": 0, "physical_offset": 182, "store_host": BROKER_HOST},
        "0A00000100002A9F00000000000000B6",
    ),
    "IPv6": (
        V6_RECORD,
        NewMessage("T6", b"v6", BORN, Host.of("2001:db8::1", 50123), properties=(("TAGS", "t"),)),
        {"queue_offset": 0, "physical_offset": 0, "store_host": Host.of("2001:db8::2", 10911)},
        "20010DB8000000000000000000000002" + "00002A9F" + "0000000000000000",
    ),
}  # fmt: skip


def serialize(message: NewMessage, **place: Any) -> bytes:
    """Serialize a message that was stored at `STORED`."""
    return serialize_message(message, store_timestamp=STORED, **place)
