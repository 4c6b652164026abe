"""Input of a task: a range of a log's files, or ranges of queues that are pulled from a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from commitlake.connectors.lake.store_progress import QueueReport
from commitlake.connectors.reading.batches import BatchInspector, DecoderCache, read_split
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.store_identity_check import check_not_truncated

if TYPE_CHECKING:
    from commitlake.pipelines.archive.from_broker.pull_task_input import PulledPart

Part: TypeAlias = "Split | PulledPart"


def read_part(
    part: Part,
    request: Request,
    inspect_batch: BatchInspector,
    on_report: Callable[[QueueReport], None],
    last_decoder: DecoderCache | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read one part of a log, from files or from a broker, and yield its rows in batches.

    Args:
        inspect_batch: called with the records of each batch before it is yielded.
        on_report: called with a report on each pulled range.
        last_decoder: the decoder of the part before.
    """
    if isinstance(part, Split):
        yield from read_split(part, request, inspect_batch, last_decoder)
        # After the last row: a bad range at a file's end may be a file that was cut during this read, and is whole
        # again later.
        check_not_truncated(part)
    else:
        yield from part.read(request, inspect_batch, on_report)
