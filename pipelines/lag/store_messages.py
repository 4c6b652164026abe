"""The messages of a store's own log, for counting what is behind where nothing is archived.

The log is read by the compiled reader; where topics are few, by the broker's queues, as `commitlake explain` shows.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.formats.engine.batches import read_split
from commitlake.connectors.formats.engine.filters import narrow
from commitlake.connectors.formats.engine.options import Mode, Options
from commitlake.connectors.formats.engine.plan import Snapshot, take_snapshot
from commitlake.connectors.formats.engine.read_plan import plan_snapshot
from commitlake.connectors.formats.engine.request import Request
from commitlake.connectors.formats.engine.stores import Store
from commitlake.pipelines.lag.counting import Queue, milliseconds, rows_by_queue
from commitlake.pipelines.lag.queues import QueueSpan, Times
from commitlake.schemas.tables.messages import SOURCE
from commitlake.schemas.times import epoch_ms

_SPAN_COLUMNS = ("topic", "queue_id", "queue_offset", "store_timestamp")


class StoreMessages:
    """The messages of one store, as they are when this is made.

    Args:
        store: From `find_stores`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshot: Snapshot = take_snapshot([store])

    @property
    def log_end(self) -> int:
        """Physical offset of the end of what is read."""
        return self._snapshot.ranges[self._store.broker].end

    def spans(self, times: Times, topics: Collection[str] | None = None) -> dict[Queue, QueueSpan]:
        """Return where each queue begins and ends; see `LakeMessages.spans`."""
        found: dict[Queue, tuple[int, int, int | None]] = {}
        until = None if times.until is None else epoch_ms(times.until)
        compared = None if times.compared_at is None else epoch_ms(times.compared_at)
        for batch in self._read(_SPAN_COLUMNS, topics):
            offsets, stored = batch.column("queue_offset").to_numpy(zero_copy_only=False), milliseconds(batch)
            for queue, rows in rows_by_queue(self._store.broker, batch):
                here = rows if until is None else rows[stored[rows] <= until]
                if not len(here):
                    continue
                earlier = here[stored[here] <= compared] if compared is not None else here[:0]
                span = (
                    int(offsets[here].min()),
                    int(offsets[here].max()),
                    int(offsets[earlier].max()) if len(earlier) else None,
                )
                known = found.get(queue)
                found[queue] = span if known is None else _joined(known, span)
        return {
            queue: QueueSpan(first, last + 1, None if earlier is None else earlier + 1)
            for queue, (first, last, earlier) in found.items()
        }

    def batches(
        self, starts: Mapping[Queue, int], columns: Collection[str], until: datetime.datetime | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield messages of some queues, from an offset on among others; see `LakeMessages.batches`."""
        topics = {queue.topic for queue in starts}
        latest = None if until is None else epoch_ms(until)
        for batch in self._read(columns, topics):
            wanted = np.ones(batch.num_rows, bool) if latest is None else milliseconds(batch) <= latest
            yield batch.filter(pa.array(wanted))

    def _read(self, columns: Collection[str], topics: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        if topics is not None and not topics:
            return
        options = Options(
            path=self._store.root,
            mode=Mode.DROPMALFORMED,
            topics=None if topics is None else frozenset(topics),
        )
        narrowing = narrow(options)
        schema = to_arrow_schema(StructType([SOURCE[name] for name in columns]), timezone="UTC")
        request = Request.of(options, narrowing.filters, schema)
        for split in plan_snapshot([self._store], self._snapshot, options, narrowing).splits:
            yield from read_split(split, request)


def _joined(one: tuple[int, int, int | None], other: tuple[int, int, int | None]) -> tuple[int, int, int | None]:
    earlier = [compared for compared in (one[2], other[2]) if compared is not None]
    return min(one[0], other[0]), max(one[1], other[1]), max(earlier, default=None)
