"""Compiled: one pass over a task's rows, which profiles each run of one broker, topic, queue and window.

The hash of a row is Spark's `xxhash64` of bigints: each hash is the seed of the next; a null leaves it unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from commitlake.connectors.lake.rows.hashing import SEED, hash_long
from commitlake.connectors.reading.kernel.compile_options import compiled, inlined

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
NO_QUEUE = 1 << 40
"""Queue number of rows without a queue; not an int32."""
LEAST: Any = -(1 << 63)
GREATEST: Any = (1 << 63) - 1
"""Initial values of a maximum and a minimum."""
_MAX_OFFSETS = 1 << 62  # no queue has more, and differences of such numbers fit
MAX_MISSING = 1 << 40
"""Largest number of missing offsets of a window: damaged or forged offsets skip so many that sums would overflow."""
NULL_PHYSICAL, NULL_QUEUE_OFFSET, NULL_SIZE, NULL_CRC, NULL_STORE, NULL_BORN, NULL_BODY_SIZE = (
    1 << bit for bit in range(7)
)
"""Bits for the nulls of a row."""
FIELDS = (
    "messages",
    "bytes",
    "body_bytes",
    "checksum",
    "queue_offsets",
    "negative_values",
    "size_violations",
    "body_size_violations",
    "born_after_store",
    "null_born_timestamp",
    "first_queue_offset",
    "first_physical_offset",
    "min_store_timestamp",
    "min_born_timestamp",
    "min_size",
    "last_queue_offset",
    "last_physical_offset",
    "max_store_timestamp",
    "max_born_timestamp",
    "max_size",
)
"""Rows of the output of `profile_parts`: sums, then minima, then maxima."""
SUMS, LEASTS = 10, 5


@compiled
def _row_hash(physical_offset: Any, queue_offset: Any, size: Any, crc: Any, store_us: Any, nulls: Any) -> Any:
    hashed = np.uint64(SEED)
    if not nulls & NULL_PHYSICAL:
        hashed = hash_long(physical_offset, hashed)
    if not nulls & NULL_QUEUE_OFFSET:
        hashed = hash_long(queue_offset, hashed)
    if not nulls & NULL_SIZE:
        hashed = hash_long(np.int64(size), hashed)
    if not nulls & NULL_CRC:
        hashed = hash_long(np.int64(crc), hashed)
    if not nulls & NULL_STORE:
        hashed = hash_long(store_us // 1000, hashed)
    return hashed


@compiled
def find_part_starts(
    brokers: Ints, topics: Ints, queues: Longs, stores_us: Longs, nulls: Bytes, window_us: int, starts: Longs
) -> int:
    """Find the rows at which broker, topic, queue or time window changes, and return how many they are.

    Args:
        queues: queue ids; `NO_QUEUE` for null.
        window_us: length of a window.
        starts: output, with room for every row.
    """
    found = 0
    begin = end = np.int64(0)  # of the window; an earlier row is in it if begin <= time < end
    timeless = False
    for row in range(len(brokers)):
        is_timeless = (nulls[row] & NULL_STORE) != 0
        if not row_continues_run(row, brokers, topics, queues, stores_us, is_timeless, timeless, begin, end):
            starts[found] = row
            found += 1
            timeless = is_timeless
            begin = window_start_us(stores_us[row], window_us)
            end = begin + window_us
    return found


@compiled
def profile_parts(
    starts: Longs,
    physical_offsets: Longs,
    queue_offsets: Longs,
    taken_offset_counts: Ints,
    sizes: Ints,
    body_sizes: Ints,
    crcs: Ints,
    reconsume_times: Ints,
    queues: Longs,
    stores_us: Longs,
    borns_us: Longs,
    nulls: Bytes,
    min_size: int,
    max_size: int,
    tolerance_us: int,
    part_figures: Longs,
    runs: Longs,
    run_counts: Longs,
) -> int:
    """Compute the counts and sums of each part of the rows; return the number of runs of consecutive queue offsets.

    Args:
        starts: first row of each part.
        physical_offsets: physical offsets; 0 for null, as in all following arrays.
        queue_offsets: (first) queue offset of each row.
        taken_offset_counts: number of queue offsets of each row; 0 if it is in no queue.
        sizes: sizes of the records.
        body_sizes: sizes of the bodies.
        crcs: CRCs of the bodies.
        queues: as for `find_part_starts`.
        min_size: smallest size of a record.
        max_size: largest size of a record.
        tolerance_us: tolerance for birth times after store times.
        part_figures: FIELDS x parts, initialized by row with 0, `GREATEST` and `LEAST`.
        runs: output, 4 x rows: see `schemas.tables.profile.RUN`.
        run_counts: output, per part.
    """
    found = 0
    for part in range(len(starts)):
        begin = starts[part]
        end = starts[part + 1] if part + 1 < len(starts) else len(physical_offsets)
        bytes_, body_bytes, offsets = np.int64(0), np.int64(0), np.int64(0)
        negative, sized, bodied, early, unborn = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        checksum = np.uint64(0)
        q_least, p_least, s_least, b_least, z_least = GREATEST, GREATEST, GREATEST, GREATEST, GREATEST
        q_most, p_most, s_most, b_most, z_most = LEAST, LEAST, LEAST, LEAST, LEAST
        first_run = found
        following = before = np.int64(0)
        for row in range(begin, end):
            bits = nulls[row]
            p, q, size, body_size = (
                physical_offsets[row],
                queue_offsets[row],
                np.int64(sizes[row]),
                np.int64(body_sizes[row]),
            )
            stored, born = stores_us[row], borns_us[row]
            checksum += _row_hash(p, q, sizes[row], crcs[row], stored, bits)
            bytes_ += size
            body_bytes += body_size
            # One comparison for all values: the OR is negative if any of them is.
            negative += (p | q | size | body_size | queues[row] | np.int64(reconsume_times[row])) < 0
            if not bits & NULL_SIZE:
                sized += size < min_size or size > max_size
                bodied += body_size >= size and not bits & NULL_BODY_SIZE
                z_least, z_most = min(z_least, size), max(z_most, size)
            if not bits & NULL_STORE:
                s_least, s_most = min(s_least, stored), max(s_most, stored)
                early += born - stored > tolerance_us and not bits & NULL_BORN
            if bits & NULL_BORN:
                unborn += 1
            else:
                b_least, b_most = min(b_least, born), max(b_most, born)
            if not bits & NULL_PHYSICAL:
                p_least, p_most = min(p_least, p), max(p_most, p)
            if not bits & NULL_QUEUE_OFFSET:
                q_least, q_most = min(q_least, q), max(q_most, q)
            if (
                not bits & (NULL_PHYSICAL | NULL_QUEUE_OFFSET)
                and p >= 0
                and 0 <= q < _MAX_OFFSETS
                and taken_offset_counts[row] > 0
            ):
                if found == first_run or q != following or p <= before:
                    runs[0, found], runs[2, found] = p, q
                    found += 1
                following, before = q + taken_offset_counts[row], p
                offsets += taken_offset_counts[row]
                runs[1, found - 1], runs[3, found - 1] = p, following - 1
        run_counts[part] = found - first_run
        part_figures[0, part], part_figures[1, part], part_figures[2, part] = end - begin, bytes_, body_bytes
        part_figures[3, part], part_figures[4, part] = np.int64(checksum), offsets
        (
            part_figures[5, part],
            part_figures[6, part],
            part_figures[7, part],
            part_figures[8, part],
            part_figures[9, part],
        ) = negative, sized, bodied, early, unborn
        part_figures[10, part], part_figures[11, part], part_figures[12, part] = q_least, p_least, s_least
        part_figures[13, part], part_figures[14, part] = b_least, z_least
        part_figures[15, part], part_figures[16, part], part_figures[17, part] = q_most, p_most, s_most
        part_figures[18, part], part_figures[19, part] = b_most, z_most
    return found


@compiled
def join_offset_runs(group_of_run: Longs, runs: Longs, run_counts: Longs) -> int:
    """Join runs of queue offsets that continue or repeat one another, within each group; return how many remain.

    Args:
        group_of_run: index of the group of each run; runs of a group are consecutive, in the order of their first
            offsets.
        runs: 4 x runs, see `schemas.tables.profile.RUN`.
        run_counts: output, number of runs of each group.
    """
    kept = 0
    for run in range(len(group_of_run)):
        group = group_of_run[run]
        if run_counts[group] > 0:
            last = kept - 1
            follows = runs[0, run] > runs[1, last] and runs[2, run] == runs[3, last] + 1
            # Rows that exist twice: both the ranges of the log and of the queue overlap.
            repeats = runs[0, run] <= runs[1, last] and runs[2, last] <= runs[2, run] <= runs[3, last]
            if follows or repeats:
                for part in (1, 3):
                    runs[part, last] = max(runs[part, last], runs[part, run])
                continue
        for part in range(4):
            runs[part, kept] = runs[part, run]
        run_counts[group] += 1
        kept += 1
    return kept


@compiled
def sum_offset_run_figures(
    run_counts: Longs, runs: Longs, offset_counts: Longs, missing_counts: Longs, restart_counts: Longs
) -> None:
    """Count, for each group of runs of queue offsets, the offsets, the missing ones, and the steps back.

    Args:
        run_counts: number of runs of each group.
        runs: 4 x runs, group by group.
        offset_counts: output, per group.
        missing_counts: output, per group.
        restart_counts: output, per group.
    """
    run = 0
    for group in range(len(run_counts)):
        for place in range(run_counts[group]):
            offset_counts[group] += runs[3, run] - runs[2, run] + 1
            if place:
                jump = runs[2, run] - runs[3, run - 1] - 1
                missing_counts[group] = min(missing_counts[group] + max(jump, 0), MAX_MISSING)
                restart_counts[group] += jump < 0
            run += 1


@inlined
def row_continues_run(
    row: Any,
    brokers: Any,
    topics: Any,
    queues: Any,
    stores_us: Any,
    is_timeless: Any,
    was_timeless: Any,
    window_start: Any,
    window_stop: Any,
) -> Any:
    """Return whether a row has the same broker, topic, queue and time window as the row before it.

    Args:
        row: index of the row.
        brokers: codes of the names.
        topics: likewise.
        queues: queue ids.
        stores_us: store times, in microseconds.
        is_timeless: True if this row has no store time.
        was_timeless: True if the rows of the run have none.
        window_start: start of the run's window, in microseconds.
        window_stop: end of the window, exclusive.
    """
    return (
        row > 0
        and brokers[row] == brokers[row - 1]
        and topics[row] == topics[row - 1]
        and queues[row] == queues[row - 1]
        and is_timeless == was_timeless
        and (was_timeless or window_start <= stores_us[row] < window_stop)
    )


@inlined
def window_start_us(store_us: Any, window_us: Any) -> Any:
    """Return the start of the time window that a time is in, in microseconds."""
    return store_us // window_us * window_us
