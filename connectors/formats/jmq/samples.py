"""Small sample journal and consume log, which the set-up reads so that the loops for them are compiled."""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.schemas.layouts.jmq.consumption import FOLDER, Consumption, DeliveryOutcome, serialize_consumption
from commitlake.schemas.layouts.jmq.journal import NewJournalMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segments import segment_name


def sample_segment(size: int) -> bytes:
    """Return a segment of three messages, and zeros; see `Format.sample_files`."""
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


def sample_consume_file() -> Mapping[str, bytes]:
    """Return a small sample file of the consume log, by its path in a store."""
    host = Host.of("127.0.0.1", 50088)
    record = serialize_consumption(Consumption("topic", 0, 0, 0, "app", DeliveryOutcome.CONSUMED, 0, 1, host))
    return {f"{FOLDER}/{segment_name(0)}": record}
