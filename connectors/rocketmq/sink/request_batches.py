"""Division of rows into requests: by topic and queue, in order, as many per request as the limits allow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.producers.sending import EncodedMessage
from commitlake.connectors.rocketmq.sink.prepared_rows import PreparedRows, RowTarget

BATCH_PROPERTIES = "WAIT\x01true\x02"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits for the size of one request.

    Attributes:
        max_bytes: largest size of bodies and properties together; a larger row is sent alone.
        max_messages: maximum number of rows.
    """

    max_bytes: int = 1 << 20
    max_messages: int = 1000


@dataclass(frozen=True, eq=False, slots=True)
class RowParcel:
    """The rows that are sent in one request.

    Attributes:
        target: topic or queue to send to.
        rows: numbers of the rows, in order.
    """

    target: RowTarget
    rows: Array

    def split_in_half(self) -> list[RowParcel]:
        """Split the request into two requests with half of the rows each."""
        middle = len(self.rows) // 2
        return [RowParcel(self.target, self.rows[:middle]), RowParcel(self.target, self.rows[middle:])]


def divide_into_requests(rows: PreparedRows, limits: BatchLimits) -> Iterator[list[RowParcel]]:
    """Yield the requests in which rows are sent, in order, one or more for each broker, topic and queue.

    Args:
        rows: the rows; those with an error are left out.
        limits: limits of one request.
    """
    sizes = np.diff(_arrow_offsets(rows.items))
    is_sound = np.ones(len(sizes), np.bool_)
    is_sound[list(rows.errors)] = False
    is_alone = rows.is_single | (sizes > limits.max_bytes)
    for number, target in enumerate(rows.targets):
        chosen = np.flatnonzero(is_sound & (rows.target_numbers == number))
        if len(chosen):
            edges = _request_boundaries(sizes[chosen], is_alone[chosen], limits)
            yield [RowParcel(target, chosen[begin:end]) for begin, end in itertools.pairwise(edges)]


def encode_request(rows: PreparedRows, request_rows: RowParcel) -> EncodedMessage:
    """Return the given rows as an encoded request."""
    topic = request_rows.target.topic
    # One row is sent as a plain message, which may have a delay or compression, and a larger size than a batch.
    if len(request_rows.rows) == 1:
        row = int(request_rows.rows[0])
        body, properties = rows.bodies[row].as_py(), rows.properties[row].as_py()
        return EncodedMessage(topic, body, properties, (), int(rows.sys_flags[row]), int(rows.flags[row]))
    items = rows.items
    first, count = int(request_rows.rows[0]), len(request_rows.rows)
    # Rows of one target are usually consecutive, and are then copied only once, into the request.
    chosen = (
        items.slice(first, count)
        if request_rows.rows[-1] - first == count - 1
        else items.take(pa.array(request_rows.rows))
    )
    offsets = _arrow_offsets(chosen)
    data = chosen.buffers()[2]
    body = b"" if data is None else bytes(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    return EncodedMessage(topic, body, BATCH_PROPERTIES, (), is_batch=True)


def _request_boundaries(sizes: Array, alone_mask: Array, limits: BatchLimits) -> list[int]:
    """Return the indexes at which the rows for one broker, topic and queue are divided into requests."""
    ends = np.cumsum(sizes)
    alone = np.flatnonzero(alone_mask)
    edges, begin, count = [0], 0, len(sizes)
    while begin < count:
        if alone_mask[begin]:
            begin += 1
        else:
            before = int(ends[begin - 1]) if begin else 0
            by_bytes = int(np.searchsorted(ends, before + limits.max_bytes, "right"))
            next_alone = int(np.searchsorted(alone, begin))
            until = int(alone[next_alone]) if next_alone < len(alone) else count
            # At least one row each time, or the loop would not end.
            begin = max(begin + 1, min(by_bytes, begin + limits.max_messages, until))
        edges.append(begin)
    return edges


def _arrow_offsets(column: pa.Array) -> Array:
    """Return the offsets buffer of a large binary column as an array."""
    buffer = column.buffers()[1]
    # A slice shares the buffer of the whole column.
    found: Array = np.frombuffer(buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    return found
