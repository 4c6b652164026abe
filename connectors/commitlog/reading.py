"""The compiled side of RocketMQ's CommitLog; see `kernels`."""

from __future__ import annotations

from connectors.commitlog.arrow import Array
from connectors.commitlog.decoder import Decoder
from connectors.commitlog.files import Window
from connectors.commitlog.kernel import hop
from connectors.commitlog.kernel.commitlog import COMMITLOG
from connectors.commitlog.kernels import LayoutKernel
from connectors.commitlog.queue_formats import CONSUME_QUEUES
from connectors.commitlog.windows import numbers_at
from schemas.layouts.commitlog import HEAD, STORED


def _store_times(window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[hop.STORE_HOST] - STORED.size, ">i8")


def _queue_ids(window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[hop.START] + HEAD.offset_of("queue_id"), ">i4")


def _queue_offsets(window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[hop.START] + HEAD.offset_of("queue_offset"), ">i8")


KERNEL = LayoutKernel(
    tag=COMMITLOG,
    part_count=hop.PART_COUNT,
    texts=((hop.TOPIC, hop.TOPIC_LENGTH), (hop.PROPERTIES, hop.PROPERTIES_LENGTH)),
    store_times=_store_times,
    queue_ids=_queue_ids,
    queue_offsets=_queue_offsets,
    decoder=Decoder,
    queues=CONSUME_QUEUES,
    has_key_index=True,
)
