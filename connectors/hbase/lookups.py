"""Look-ups that HBase answers in milliseconds: by message id, unique key, business key, or topic and time.

    with Client(HBaseOptions.of_address("hbase-thrift:9090")) as client:
        table = read_all(look_up(client, Selection(keys=["order-4711"]), limit=100))

Rows have the columns of `messages` and are in the order of `query`: store time, broker, offset. `keys` lists the costs
of each look-up. Conditions that are not part of a key (queue, kind, broker) filter the rows found by key.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from commitlake.connectors.hbase.cells import ARROW_SCHEMA, REFERENCE, VALUE, parse_row, to_batch
from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.keys import (
    BY_KEY,
    BY_UNIQUE_KEY,
    encode_time,
    entry_prefix,
    key_hash,
    message_sort_key,
    offset_prefix,
    prefix_end,
    topic_prefix,
)
from commitlake.connectors.hbase.tables import open_existing_table
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import epoch_us

BATCH_ROWS = 1000
_LEAST_PAGE = 8
_PAGE = 500
_Row = dict[str, Any]
_Sorted = Iterator[tuple[bytes, _Row]]


def find_messages(client: Client, selection: Selection, limit: int = 0) -> Iterator[pa.RecordBatch]:
    """Return matching messages, ordered by store time, broker and offset, nulls last.

    Args:
        selection: has an id, a key or a topic.
        limit: maximum number of rows; 0 for all.

    Yields:
        At most `BATCH_ROWS` rows at a time.

    Raises:
        HBaseError: if there is no id, no key and no topic, or if there is no such table, or if HBase did not answer in
            time.
        UsageError: for a condition that HBase cannot check.
    """
    rows = _MessageLookUp(client, open_existing_table(client).salts, selection, limit).find_rows()
    rows = islice(rows, limit) if limit else rows
    while part := list(islice(rows, BATCH_ROWS)):
        yield to_batch(part)


def join_batches(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the batches of a result as one table, which has the columns of `messages` even if it is empty."""
    return pa.Table.from_batches(batches, ARROW_SCHEMA)


def _row_sort_key(row: _Row) -> tuple[bool, int, str, int]:
    time = row.get("store_timestamp")
    return time is None, time or 0, row["broker"], row["physical_offset"]


class _MessageLookUp:
    """A search for the messages of a selection in one HBase table."""

    def __init__(self, client: Client, salts: int, wanted: Selection, limit: int) -> None:
        self._client = client
        self._salts = salts
        self._wanted = wanted
        self._limit = limit
        wanted.refuse_conditions("HBase", "groups", "is_by_birth", "where")
        self._values = [(column, frozenset(values)) for column, values in wanted.column_values]
        self._keys = frozenset(wanted.keys)
        self._start = None if wanted.start is None else epoch_us(wanted.start)
        self._end = None if wanted.end is None else epoch_us(wanted.end)
        self._first = b"" if self._start is None else encode_time(self._start)

    def find_rows(self) -> Iterator[_Row]:
        wanted = self._wanted
        if wanted.ids:
            return self._find_by_message_ids(wanted.ids)
        if wanted.keys:
            return self._merge_matching_rows([self._find_by_key(BY_KEY, key) for key in dict.fromkeys(wanted.keys)])
        if wanted.topics:
            topics = dict.fromkeys(wanted.topics)
            return self._merge_matching_rows(
                [self._find_by_topic(salt, topic) for topic in topics for salt in range(self._salts)]
            )
        raise HBaseError(
            "HBase finds messages only by message id, key or topic, and none of them is given: give one, or query the "
            "lake instead"
        )

    def _find_by_message_ids(self, message_ids: Sequence[str]) -> Iterator[_Row]:
        """Return the messages with one of the given ids, each message once."""
        if len(message_ids) == 1:
            return self._find_by_message_id(message_ids[0])
        rows = (row for message_id in message_ids for row in self._find_by_message_id(message_id))
        found = {(row["broker"], row["physical_offset"]): row for row in rows}
        return iter(sorted(found.values(), key=_row_sort_key))

    def _find_by_message_id(self, message_id: str) -> Iterator[_Row]:
        found = False
        for row in self._find_by_offset_id(message_id):
            found = True
            yield row
        if not found:
            yield from self._merge_matching_rows([self._find_by_key(BY_UNIQUE_KEY, message_id)], unique_key=message_id)

    def _find_by_offset_id(self, message_id: str) -> Iterator[_Row]:
        try:
            offset = parse_message_id(message_id).physical_offset
        except LayoutError:
            return
        prefix = offset_prefix(self._salts, offset)
        found: list[tuple[bytes, _Row]] = []
        for page in self._client.scan(prefix, prefix_end(prefix), page_rows=_PAGE):
            found += self._fetch_messages([row.cells[REFERENCE] for row in page])
        rows = sorted((key, row) for key, row in found if row.get("msg_id") == message_id.upper())
        yield from self._merge_matching_rows([iter(rows)])

    def _merge_matching_rows(self, sorted_streams: Sequence[_Sorted], unique_key: str | None = None) -> Iterator[_Row]:
        """Merge sorted streams of rows, and yield the selected rows, each once."""
        last = b""
        for key, row in heapq.merge(*sorted_streams, key=lambda pair: pair[0]):
            if key != last and self._is_selected(row) and unique_key in (None, row.get("unique_key")):
                yield row
            last = key

    def _is_selected(self, row: _Row) -> bool:
        """Return whether a message is selected; its keys are compared, too, because hashes may collide."""
        time = row.get("store_timestamp")
        return (
            all(row.get(column) in values for column, values in self._values)
            and (not self._keys or not self._keys.isdisjoint(row.get("keys", ())))
            and (self._start is None or (time is not None and time >= self._start))
            and (self._end is None or (time is not None and time < self._end))
        )

    def _find_by_key(self, entry_kind: bytes, key: str) -> _Sorted:
        prefix = entry_prefix(self._salts, entry_kind, key_hash(key))
        for page in self._client.scan(
            *self._time_range_of_prefix(prefix), page_rows=_PAGE, first_page_rows=self._first_page_row_count(1)
        ):
            yield from self._fetch_messages([row.cells[REFERENCE] for row in page])

    def _find_by_topic(self, salt: int, topic: str) -> _Sorted:
        start, stop = self._time_range_of_prefix(topic_prefix(salt, topic))
        first = self._first_page_row_count(self._salts * len(self._wanted.topics))
        for page in self._client.scan(start, stop, page_rows=_PAGE, first_page_rows=first):
            yield from ((message_sort_key(row.key), parse_row(row.cells[VALUE])) for row in page)

    def _time_range_of_prefix(self, prefix: bytes) -> tuple[bytes, bytes]:
        """Return the range of keys with a prefix and a wanted time; it excludes messages without a time."""
        if self._end is not None:
            return prefix + self._first, prefix + encode_time(self._end)
        return prefix + self._first, prefix_end(prefix) if self._start is None else prefix + encode_time(None)

    def _first_page_row_count(self, stream_count: int) -> int:
        """Return how many rows to read first from each stream, given the number of streams and the limit."""
        return min(_PAGE, max(_LEAST_PAGE, 2 * self._limit // stream_count)) if self._limit else _PAGE

    def _fetch_messages(self, keys: Sequence[bytes]) -> list[tuple[bytes, _Row]]:
        """Return the messages to which index entries point, in order; those that have just expired are left out."""
        found = self._client.get(keys, VALUE)
        return [(message_sort_key(key), parse_row(found[key])) for key in keys if key in found]
