"""Compiled loops for JMQ's journal, and a small journal and consume log that set-up reads to compile them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from commitlake.connectors.formats.jmq.decoder import JournalDecoder
from commitlake.connectors.formats.jmq.kernel.records import (
    APP,
    APP_LENGTH,
    BUSINESS_ID,
    BUSINESS_ID_LENGTH,
    JOURNAL,
    JOURNAL_PART_COUNT,
)
from commitlake.connectors.log_format.kernel import FormatKernel
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.segment_files import Window
from commitlake.connectors.reading.files.segment_windows import make_head_reader, read_numbers_at
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.kernel.record_starts import find_record_start
from commitlake.schemas.layouts.jmq.consume_records import FOLDER, Consumption, DeliveryOutcome, serialize_consumption
from commitlake.schemas.layouts.jmq.journal import HEAD, NewJournalMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import segment_name


def make_sample_segment(size: int) -> bytes:
    """Return a segment with three messages and zeros after them, which is read to compile the loops."""
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


def make_sample_consume_file() -> Mapping[str, bytes]:
    """Return a small consume log, by its path in a store, which is read to compile the loops."""
    host = Host.of("127.0.0.1", 50088)
    record = serialize_consumption(Consumption("topic", 0, 0, 0, "app", DeliveryOutcome.CONSUMED, 0, 1, host))
    return {f"{FOLDER}/{segment_name(0)}": record}


def _compute_store_times(window: Window, record_parts: Array) -> Array:
    starts = record_parts[record_walk.START]
    sent = read_numbers_at(window, starts + HEAD.offset_of("send_timestamp"), ">i8")
    times: Array = sent + read_numbers_at(window, starts + HEAD.offset_of("store_delay"), ">i4")
    return times


KERNEL = FormatKernel(
    hop=partial(record_walk.walk_records, JOURNAL),
    find_border=partial(find_record_start, JOURNAL),
    part_count=JOURNAL_PART_COUNT,
    texts=(
        (record_walk.TOPIC, record_walk.TOPIC_LENGTH),
        (APP, APP_LENGTH),
        (BUSINESS_ID, BUSINESS_ID_LENGTH),
        (record_walk.PROPERTIES, record_walk.PROPERTIES_LENGTH),
    ),
    store_times=_compute_store_times,
    queue_ids=make_head_reader(HEAD, "queue_id"),
    queue_offsets=make_head_reader(HEAD, "queue_offset"),
    decoder=JournalDecoder,
)
