"""Small journal that set-up reads so that its loops are compiled."""

from __future__ import annotations

from commitlake.schemas.layouts.jmq.journal import NewJournalMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host


def sample_segment(size: int) -> bytes:
    """Return a segment of three messages, and zeros; see `Format.sample_segment`."""
    host = Host.of("127.0.0.1", 50088)
    data = b""
    for number, body in enumerate((b"first", b"second", b"third")):
        message = NewJournalMessage("topic", body, 0, host, "app", "key", properties=(("city", "Zuerich"),))
        data += serialize_message(
            message,
            queue_id=0,
            queue_offset=number,
            journal_offset=len(data),
            receive_timestamp=0,
            store_timestamp=0,
            server_address=host,
        )
    data = data.replace(b"second", b"Second").replace(b"Zuerich", b"Z\xfcrich_", 1)
    return data.ljust(size, b"\0")
