"""Queues of a store's own files: their first and end offsets, and the first message since a time."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.engine.batches import read_split
from commitlake.connectors.formats.engine.errors import IndexMismatchError
from commitlake.connectors.formats.engine.filters import narrow
from commitlake.connectors.formats.engine.options import Mode, ReadOptions
from commitlake.connectors.formats.engine.plan import take_snapshot
from commitlake.connectors.formats.engine.read_plan import plan_snapshot
from commitlake.connectors.formats.engine.request import Request
from commitlake.connectors.formats.engine.stores import Store
from commitlake.pipelines.lag.counting import COLUMNS, BacklogCounter, Queue, milliseconds, numbers, rows_by_queue
from commitlake.pipelines.lag.messages import Count
from commitlake.pipelines.lag.queues import QueueSpan, Times
from commitlake.pipelines.lag.store_messages import StoreMessages
from commitlake.pipelines.offsets.lake_queues import FirstMessage
from commitlake.schemas.tables.messages import SOURCE
from commitlake.schemas.times import epoch_ms


class StoreQueues:
    """Reads queues from a store's log and the entries of its queues.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def spans(self, topics: Collection[str], until: datetime.datetime | None = None) -> dict[Queue, QueueSpan]:
        """Return the first and end offsets of the queues of topics; see `LakeQueues.spans`."""
        return self._measure(Times(until=until), topics, lambda: ())

    def first_since(
        self, topics: Collection[str], since: datetime.datetime, floors: Mapping[Queue, int]
    ) -> dict[Queue, FirstMessage]:
        """Return the first message since a time for each queue that has one; see `LakeQueues.first_since`.

        Segments without such messages are not read. A store has no missing messages before the first one.
        """
        since_ms = epoch_ms(since)
        options = ReadOptions(
            path=self._store.root, mode=Mode.DROPMALFORMED, topics=frozenset(topics), starting_timestamp=since_ms
        )
        narrowing = narrow(options)
        plan = plan_snapshot([self._store], take_snapshot([self._store]), options, narrowing)
        schema = arrow_schema(SOURCE.only(COLUMNS))
        request = Request.of(options, narrowing.filters, schema)
        found: dict[Queue, int] = {}
        for split in plan.splits:
            for batch in read_split(split, request):
                offsets, physical = numbers(batch, "queue_offset"), numbers(batch, "physical_offset")
                is_since = milliseconds(batch) >= since_ms
                for queue, rows in rows_by_queue(self._store.broker, batch):
                    here = rows[is_since[rows] & (physical[rows] >= floors.get(queue, 0))]
                    if len(here):
                        found[queue] = min(int(np.min(offsets[here])), found.get(queue, int(offsets[here[0]])))
        return {queue: FirstMessage(offset, offset - 1) for queue, offset in found.items() if queue.topic in topics}

    def reaches(self, at: datetime.datetime) -> bool:
        """Return whether the log up to a time is available: it is for any time up to now."""
        return at <= datetime.datetime.now(datetime.UTC)

    def count(self, topics: Collection[str], counts: Sequence[BacklogCounter]) -> dict[Queue, QueueSpan]:
        """Feed messages to counters, and return the first and end offsets of the queues of topics."""
        return self._measure(Times(), topics, lambda: counts)

    def _measure(
        self, times: Times, topics: Collection[str], counts: Callable[[], Sequence[Count]]
    ) -> dict[Queue, QueueSpan]:
        """Measure by the entries of queues; if an entry does not match the log, by the log itself."""
        try:
            return StoreMessages(self._store).measure(times, topics, counts())
        except IndexMismatchError:
            for count in counts():
                if isinstance(count, BacklogCounter):
                    count.begin_again({})
            return StoreMessages(self._store, use_indexes=False).measure(times, topics, counts())
