"""Profiles a task's rows in one pass, without a Python object for each row.

`schemas.tables.profile` describes a profile. Computing it takes a twentieth of the task's time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlake.pipelines.quality import kernel
from commitlake.pipelines.quality.merging import combine
from commitlake.pipelines.quality.parts import QUEUE, SUMS, WindowParts
from commitlake.pipelines.quality.task_rows import Rows
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.rocketmq import commitlog
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.tables.profile import BORN_TOLERANCE_MS, WINDOW_SECONDS

_WINDOW_US = WINDOW_SECONDS * 1_000_000
_MIN_RECORD_SIZE = min(commitlog.MIN_RECORD_SIZE, journal.MIN_RECORD_SIZE)
_EXTREMES = [kernel.GREATEST] * kernel.LEASTS + [kernel.LEAST] * kernel.LEASTS


def profile_rows(table: pa.Table) -> pa.Table:
    """Profile rows of `messages`.

    Args:
        table: columns of `messages` without the partition; times in microseconds, strings plain or as dictionaries. Any
            order is allowed; the order by topic, queue and queue offset of data files is fastest.

    Returns:
        A table of `PROFILE`, one row per broker, topic, queue and window, in this order.

    Raises:
        ProfileError: if the table lacks a column.
    """
    return combine(_parts(Rows(table))).to_table()


def _parts(rows: Rows) -> WindowParts:
    """Return profiles of the consecutive groups of rows in the table."""
    brokers, broker_names = rows.codes("broker")
    topics, topic_names = rows.codes("topic")
    queues, stores, nulls = rows.queues(), rows.numbers("store_timestamp"), rows.null_bits()
    starts = np.empty(rows.count, np.int64)
    starts = starts[: kernel.part_starts(brokers, topics, queues, stores, nulls, _WINDOW_US, starts)]
    out = np.zeros((len(kernel.FIELDS), len(starts)), np.int64)
    out[kernel.SUMS :] = np.array(_EXTREMES)[:, None]
    runs, run_counts = np.empty((4, rows.count), np.int64), np.zeros(len(starts), np.int64)
    taken, _ = rows.inner_counts()
    found = kernel.profile_parts(
        starts,
        rows.numbers("physical_offset"),
        rows.numbers("queue_offset"),
        taken,
        rows.numbers("size"),
        rows.numbers("body_size"),
        rows.numbers("body_crc"),
        rows.numbers("reconsume_times"),
        queues,
        stores,
        rows.numbers("born_timestamp"),
        nulls,
        _MIN_RECORD_SIZE,
        DEFAULT_MAX_RECORD_BYTES,
        BORN_TOLERANCE_MS * 1000,
        out,
        runs,
        run_counts,
    )
    zeros = np.zeros(len(starts), np.int64)
    values = dict.fromkeys((*SUMS, *QUEUE), zeros) | dict(zip(kernel.FIELDS, out, strict=True))
    for name, marked in rows.marks().items():
        values[name] = np.add.reduceat(marked, starts, dtype=np.int64)
    for name, hashes in rows.checksums().items():
        values[name] = np.add.reduceat(hashes, starts) if len(starts) else hashes
    windows, timeless = stores[starts] // _WINDOW_US * _WINDOW_US, nulls[starts] & kernel.NULL_STORE != 0
    return WindowParts(
        keys=[
            broker_names.take(_indices(brokers[starts])).cast(pa.string()),
            topic_names.take(_indices(topics[starts])).cast(pa.string()),
            pa.array(queues[starts], mask=queues[starts] == kernel.NO_QUEUE).cast(pa.int32()),
            pa.array(windows, mask=timeless).cast(pa.timestamp("us", "UTC")),
        ],
        values=values,
        runs=runs[:, :found],
        run_counts=run_counts,
        known=np.ones(len(starts), bool),
    )


def _indices(codes: np.ndarray[tuple[int], np.dtype[np.int32]]) -> pa.Array:
    return pa.array(codes, mask=codes < 0)
