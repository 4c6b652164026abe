"""Small CommitLog that set-up reads so that its loops are compiled."""

from __future__ import annotations

from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_blank, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host


def sample_segment(size: int) -> bytes:
    """Return a segment of three messages and a BLANK; see `Format.sample_segment`."""
    host = Host.of("127.0.0.1", 10911)
    data = b""
    for body in (b"first", b"second", b"third"):
        message = NewMessage("topic", body, 0, host, properties=(("KEYS", "a b"), ("TAGS", "tag"), ("city", "Zuerich")))
        data += serialize_message(
            message, queue_offset=0, physical_offset=len(data), store_timestamp=0, store_host=host
        )
    data = data.replace(b"second", b"Second").replace(b"Zuerich", b"Z\xfcrich_", 1)
    return (data + serialize_blank(size - len(data))).ljust(size, b"\0")
