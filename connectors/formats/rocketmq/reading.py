"""Compiled loops for RocketMQ's CommitLog; see `connectors.log_format.kernel`."""

from __future__ import annotations

from functools import partial

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.rocketmq.decoder import CommitLogDecoder
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG, COMMITLOG_PART_COUNT, STORE_HOST
from commitlake.connectors.log_format.kernel import FormatKernel
from commitlake.connectors.reading.files.segment_files import Window
from commitlake.connectors.reading.files.windows import head_field, numbers_at
from commitlake.connectors.reading.kernel import hop
from commitlake.connectors.reading.kernel.borders import find_border
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, STORED


def _store_times(window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[STORE_HOST] - STORED.size, ">i8")


KERNEL = FormatKernel(
    hop=partial(hop.hop, COMMITLOG),
    find_border=partial(find_border, COMMITLOG),
    part_count=COMMITLOG_PART_COUNT,
    texts=((hop.TOPIC, hop.TOPIC_LENGTH), (hop.PROPERTIES, hop.PROPERTIES_LENGTH)),
    store_times=_store_times,
    queue_ids=head_field(HEAD, "queue_id"),
    queue_offsets=head_field(HEAD, "queue_offset"),
    decoder=CommitLogDecoder,
)
