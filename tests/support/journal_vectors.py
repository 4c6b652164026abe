"""Records of a journal, byte by byte, written by hand from the table of fields."""

from __future__ import annotations

from commitlake.schemas.layouts.jmq.journal import NewJournalMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host

CLIENT, SERVER = Host.of("10.0.0.1", 50123), Host.of("10.0.0.2", 50088)
SENT = 1_700_000_000_123
RECORD = bytes.fromhex(
    "0000006c 12340200 00000000 00000000 00000100 00000000 0000000a 000001c3"
    "cb0a0000 02c3a800 00018bcf e5687b00 00000500 00000900 000000b7 8ee54000"
    "00000948 656c6c6f 204a4d51 0a6f7264 65725f70 61696404 73686f70 0a6f7264"
    "65722d31 30303100 036b3d76"
)
SMALLEST = bytes.fromhex(
    "00000048 12340000 00000000 00000000 006c0000 00000000 0000000a 000001c3"
    "cb0a0000 02c3a800 00018bcf e5687b00 00000000 00000000 00000000 00000000"
    "00000000 00000000"
)
MESSAGE = NewJournalMessage(
    "order_paid", b"Hello JMQ", SENT, CLIENT, "shop", "order-1001", is_ordered=True, properties=(("k", "v"),)
)
EMPTY = NewJournalMessage("", b"", SENT, CLIENT)

VECTORS = {
    "full": (RECORD, MESSAGE, {"queue_id": 1, "queue_offset": 0, "journal_offset": 0}, (SENT + 5, SENT + 9)),
    "smallest": (SMALLEST, EMPTY, {"queue_id": 0, "queue_offset": 0, "journal_offset": 108}, (SENT, SENT)),
}


def serialize(message: NewJournalMessage, received: int = SENT, stored: int = SENT, **place: int) -> bytes:
    """Serialize a message, by default as the first of the journal."""
    values = {"queue_id": 0, "queue_offset": 0, "journal_offset": 0} | place
    return serialize_message(
        message, receive_timestamp=received, store_timestamp=stored, server_address=SERVER, **values
    )
