"""The compiled side of each layout: what `layouts` says of it, for those who read many records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.files import Window
from commitlake.connectors.formats.engine.layouts import StoreLayout
from commitlake.connectors.formats.rocketmq.queue_formats import QueueFormat

if TYPE_CHECKING:
    from commitlake.connectors.formats.engine.decoder import Decoder


@dataclass(frozen=True)
class LayoutKernel:
    """What differs between layouts for those who read many records.

    Attributes:
        tag: chooses the implementations, see `kernel.layouts`.
        part_count: rows of `parts`.
        texts: of each text that a record may lack on the disk although its sizes are there, the rows of `parts` with
            its place and its length.
        store_times: of records in a window, by their parts, in ms.
        queue_ids: likewise.
        queue_offsets: likewise.
        decoder: finds and decodes the records of a split.
        queues: what its queues are.
        has_key_index: whether RocketMQ's IndexFiles may lie beside it.
    """

    tag: Any
    part_count: int
    texts: tuple[tuple[int, int], ...]
    store_times: Callable[[Window, Array], Array]
    queue_ids: Callable[[Window, Array], Array]
    queue_offsets: Callable[[Window, Array], Array]
    decoder: type[Decoder]
    queues: QueueFormat
    has_key_index: bool


_KERNELS = {
    StoreLayout.COMMITLOG: "commitlake.connectors.formats.rocketmq.reading",
    StoreLayout.JOURNAL: "commitlake.connectors.formats.jmq.reading",
}


@cache
def kernel_of(layout: StoreLayout) -> LayoutKernel:
    """The compiled side of a layout."""
    kernel: LayoutKernel = import_module(_KERNELS[layout]).KERNEL
    return kernel
