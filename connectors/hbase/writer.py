"""Writes and deletes batches of messages in calls of bounded size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from commitlake.connectors.hbase.cells import FAMILY, Cell, MessageCells, to_cells
from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.keys import BY_KEY, BY_UNIQUE_KEY

CALL_BYTES = 4 << 20
"""Size of cells at which a call is sent, regardless of the number of messages."""


def write_messages(client: Client, batches: Iterable[pa.RecordBatch], salt_count: int) -> int:
    """Write messages and their index entries; writing the same messages again changes nothing.

    Args:
        client: the table's client; its options set the number of messages per call.
        batches: batches with columns of `messages`.
        salt_count: the table's number of salts.

    Returns:
        The number of messages.

    Raises:
        HBaseError: if a batch is not a table of messages, or if HBase did not take them in time; some may have been
            written.
        HBaseRefusedError: if HBase refuses the request.
    """
    return _send_batches(client, batches, salt_count, client.write)


def delete_messages(client: Client, batches: Iterable[pa.RecordBatch], salt_count: int) -> int:
    """Delete messages and the index entries that point to them.

    Args:
        batches: the columns that make up the keys: broker, physical_offset, topic, store_timestamp, unique_key, keys.
        salt_count: the table's number of salts.

    Returns:
        The number of messages. Until its next major compaction, HBase hides deleted cells even if they are put again.

    Raises:
        HBaseError: if a batch is not a table of messages, or if HBase did not do it in time.
        HBaseRefusedError: if HBase refuses the request.
    """
    return _send_batches(client, batches, salt_count, _make_delete_function(client))


def delete_entries_by_key(client: Client, batch: pa.RecordBatch, salt_count: int) -> None:
    """Delete the index entries of unique keys and business keys; the messages stay.

    Args:
        batch: as for `delete_messages`.
        salt_count: the table's number of salts.

    Raises:
        HBaseError: if HBase did not do it in time.
        HBaseRefusedError: if HBase refuses the request.
    """
    waiting: dict[int, list[Cell]] = defaultdict(list)
    for message in to_cells(batch, salt_count):
        waiting[message.timestamp_ms] += [cell for cell in message.cells if cell.key[1:2] in (BY_UNIQUE_KEY, BY_KEY)]
    _send_cells(waiting, _make_delete_function(client))


def _make_delete_function(client: Client) -> Callable[[Sequence[Cell], int], None]:
    def delete(cells: Sequence[Cell], timestamp_ms: int) -> None:
        if cells:
            client.delete([cell.key for cell in cells], FAMILY, timestamp_ms + 1)  # includes erased messages

    return delete


def _send_batches(
    client: Client,
    batches: Iterable[pa.RecordBatch],
    salt_count: int,
    send_cells: Callable[[Sequence[Cell], int], None],
) -> int:
    waiting: dict[int, list[Cell]] = defaultdict(list)  # by timestamp, because each call has only one
    messages = total = size = 0
    for batch in batches:
        for message in to_cells(batch, salt_count):
            waiting[message.timestamp_ms] += message.cells
            messages += 1
            size += _count_cell_bytes(message)
            if messages >= client.options.batch_rows or size >= CALL_BYTES:
                _send_cells(waiting, send_cells)
                total += messages
                messages = size = 0
    _send_cells(waiting, send_cells)
    return total + messages


def _count_cell_bytes(message: MessageCells) -> int:
    return sum(len(cell.key) + len(cell.value) for cell in message.cells)


def _send_cells(cells_by_timestamp: dict[int, list[Cell]], send_cells: Callable[[Sequence[Cell], int], None]) -> None:
    for timestamp_ms, cells in cells_by_timestamp.items():
        send_cells(cells, timestamp_ms)
    cells_by_timestamp.clear()
