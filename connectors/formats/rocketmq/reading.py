"""The compiled side of RocketMQ's CommitLog; see `engine.format_kernel`."""

from __future__ import annotations

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.decoder import Decoder
from commitlake.connectors.formats.engine.files import Window
from commitlake.connectors.formats.engine.format_kernel import FormatKernel
from commitlake.connectors.formats.engine.kernel import hop
from commitlake.connectors.formats.engine.windows import numbers_at
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG
from commitlake.connectors.formats.rocketmq.queue_formats import CONSUME_QUEUES
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, STORED


def _store_times(window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[hop.STORE_HOST] - STORED.size, ">i8")


def _queue_ids(window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[hop.START] + HEAD.offset_of("queue_id"), ">i4")


def _queue_offsets(window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[hop.START] + HEAD.offset_of("queue_offset"), ">i8")


KERNEL = FormatKernel(
    tag=COMMITLOG,
    part_count=hop.PART_COUNT,
    texts=((hop.TOPIC, hop.TOPIC_LENGTH), (hop.PROPERTIES, hop.PROPERTIES_LENGTH)),
    store_times=_store_times,
    queue_ids=_queue_ids,
    queue_offsets=_queue_offsets,
    decoder=Decoder,
    queues=CONSUME_QUEUES,
)
