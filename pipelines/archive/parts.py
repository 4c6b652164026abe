"""What a task of an archive run reads: a range of a log's files, or ranges of queues that are pulled from a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from commitlake.connectors.formats.engine.batches import Look, read_split
from commitlake.connectors.formats.engine.request import Request
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.truncation import check_not_truncated
from commitlake.connectors.lake.queue_reports import QueueReport

if TYPE_CHECKING:
    from commitlake.pipelines.archive.from_broker.part import PulledPart

Part: TypeAlias = "Split | PulledPart"


def read_part(
    part: Part, request: Request, look: Look, done: Callable[[QueueReport], None]
) -> Iterator[pa.RecordBatch]:
    """Give the rows of one part.

    Args:
        part: which one.
        request: columns and mode.
        look: is shown the records of each batch, before it is given.
        done: is told of each range of a queue that was pulled.

    Raises:
        CommitLogError: for what cannot be read.
        RocketMQError: if a broker cannot be asked.
    """
    if isinstance(part, Split):
        yield from read_split(part, request, look)
        check_not_truncated(part)
    else:
        yield from part.read(request, look, done)
