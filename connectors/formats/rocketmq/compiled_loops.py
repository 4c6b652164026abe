"""Compiled loops for RocketMQ's CommitLog, and a small log that set-up reads to compile them."""

from __future__ import annotations

from functools import partial

from commitlake.connectors.formats.rocketmq.decoder import CommitLogDecoder
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG, COMMITLOG_PART_COUNT, STORE_HOST
from commitlake.connectors.log_format.kernel import FormatKernel
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.segment_files import Window
from commitlake.connectors.reading.files.segment_windows import make_head_reader, read_numbers_at
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.kernel.record_starts import find_record_start
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, STORED, NewMessage, serialize_blank, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host


def make_sample_segment(size: int) -> bytes:
    """Return a segment with three messages and a BLANK after them, which is read to compile the loops."""
    host = Host.of("127.0.0.1", 10911)
    data = b""
    for body in (b"first", b"second", b"third"):
        message = NewMessage("topic", body, 0, host, properties=(("KEYS", "a b"), ("TAGS", "tag"), ("city", "Zuerich")))
        data += serialize_message(
            message, queue_offset=0, physical_offset=len(data), store_timestamp=0, store_host=host
        )
    data = data.replace(b"second", b"Second").replace(b"Zuerich", b"Z\xfcrich_", 1)
    return (data + serialize_blank(size - len(data))).ljust(size, b"\0")


def _read_store_times(window: Window, record_parts: Array) -> Array:
    return read_numbers_at(window, record_parts[STORE_HOST] - STORED.size, ">i8")


KERNEL = FormatKernel(
    hop=partial(record_walk.walk_records, COMMITLOG),
    find_border=partial(find_record_start, COMMITLOG),
    part_count=COMMITLOG_PART_COUNT,
    texts=((record_walk.TOPIC, record_walk.TOPIC_LENGTH), (record_walk.PROPERTIES, record_walk.PROPERTIES_LENGTH)),
    store_times=_read_store_times,
    queue_ids=make_head_reader(HEAD, "queue_id"),
    queue_offsets=make_head_reader(HEAD, "queue_offset"),
    decoder=CommitLogDecoder,
)
