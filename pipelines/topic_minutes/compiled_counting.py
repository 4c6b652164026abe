"""Compiled loops that count messages by group and write the sketches of small groups.

A group is one broker, topic, queue, kind, minute and tag.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.pipelines.quality.compiled_profiling import row_continues_run, window_start_us

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Doubles = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

NULL_STORE, NULL_BORN = 1, 2
"""Bits for null columns of a row."""
MARK_WAITED, MARK_RECHECKED, MARK_COMMITTED = 1, 2, 4
"""Bits for marks of a row: stored later on purpose, a half message stored again, a committed transaction."""

FIELDS = (
    "first_physical_offset",
    "last_physical_offset",
    "messages",
    "bytes",
    "body_bytes",
    "busiest_second",
    "busiest_second_messages",
    "max_size",
    "latency_messages",
    "latency_ms",
    "max_latency_ms",
    "wait_messages",
    "wait_ms",
    "max_wait_ms",
    "clock_skew_messages",
    "max_clock_skew_ms",
    "reconsumed",
    "rechecked",
    "committed",
)
"""Rows of the array that `sum_groups` fills."""

_MINUTE_US = 60_000_000
_SECOND_US = 1_000_000


@compiled
def assign_groups(
    brokers: Ints,
    topics: Ints,
    queues: Longs,
    kinds: Ints,
    tags: Ints,
    stores_us: Longs,
    nulls: Bytes,
    run_of_tag: Longs,
    group_of_tag: Longs,
    groups: Longs,
    first_rows: Longs,
) -> int:
    """Give each row the number of its group: rows of the same broker, topic, queue, kind, minute and tag.

    A stretch is a run of rows of one broker, topic, queue, kind and minute; each tag in it is a group. A minute that
    occurs again later begins another stretch, so two groups may have the same key.

    Args:
        brokers: numbers of the names.
        kinds: numbers of the names.
        tags: numbers from 0; rows without a tag have a number of their own, and so have tags that are not named.
        run_of_tag: -1 for each tag number; changed.
        group_of_tag: one value for each tag number; changed.
        groups: output, the number of each row's group.
        first_rows: output, the first row of each group; needs the size of the number of rows.

    Returns:
        The number of groups.
    """
    found = 0
    stretch = np.int64(-1)
    begin = end = np.int64(0)
    timeless = False
    for row in range(len(brokers)):
        is_timeless = (nulls[row] & NULL_STORE) != 0
        same = row_continues_run(row, brokers, topics, queues, stores_us, is_timeless, timeless, begin, end)
        if not (same and kinds[row] == kinds[row - 1]):
            stretch += 1
            timeless = is_timeless
            begin = window_start_us(stores_us[row], _MINUTE_US)
            end = begin + _MINUTE_US
        tag = tags[row]
        if run_of_tag[tag] != stretch:
            run_of_tag[tag] = stretch
            group_of_tag[tag] = found
            first_rows[found] = row
            found += 1
        groups[row] = group_of_tag[tag]
    return found


@compiled
def order_by_group(groups: Longs, starts: Longs, order: Longs) -> None:
    """Compute the order of rows by group that keeps the rows of a group in their order.

    Args:
        groups: the number of each row's group.
        starts: where the rows of each group begin in `order`; changed to where they end.
        order: output, one value for each row.
    """
    for row in range(len(groups)):
        group = groups[row]
        order[starts[group]] = row
        starts[group] += 1


@compiled
def sum_groups(
    starts: Longs,
    order: Longs,
    physical_offsets: Longs,
    sizes: Ints,
    body_sizes: Ints,
    reconsume_times: Ints,
    stores_us: Longs,
    borns_us: Longs,
    nulls: Bytes,
    row_bits: Bytes,
    second_counts: Longs,
    sums: Longs,
    size_values: Doubles,
    latency_values: Doubles,
    latency_starts: Longs,
    wait_values: Doubles,
    wait_starts: Longs,
) -> None:
    """Compute the counts of each group, and collect the values for its sketches of sizes and latencies.

    Args:
        starts: where the rows of each group begin in `order`, and the end of the last.
        order: rows, group by group.
        physical_offsets: physical offsets; here and below, null is 0.
        body_sizes: bytes of the bodies.
        row_bits: bits of each row.
        second_counts: working memory for 60 numbers.
        sums: output, FIELDS x groups.
        size_values: output, one place for each row: sizes.
        latency_values: output, one place for each row: latencies in milliseconds.
        latency_starts: output: where the latencies of each group begin, and the end of the last.
        wait_values: output, one place for each row: time from born to stored, for copies stored later on purpose.
        wait_starts: output: where the times of each group begin, and the end of the last.
    """
    latencies = waits = np.int64(0)
    for group in range(len(starts) - 1):
        latency_starts[group], wait_starts[group] = latencies, waits
        begin, end = starts[group], starts[group + 1]
        first, last = physical_offsets[order[begin]], physical_offsets[order[begin]]
        bytes_, body_bytes, max_size = np.int64(0), np.int64(0), np.int64(0)
        latency_ms, max_latency, wait_ms, max_wait = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        skewed, max_skew = np.int64(0), np.int64(0)
        again, rechecked, committed = np.int64(0), np.int64(0), np.int64(0)
        timeless = (nulls[order[begin]] & NULL_STORE) != 0
        minute = stores_us[order[begin]] // _MINUTE_US * _MINUTE_US
        second_counts[:] = 0
        for place in range(begin, end):
            row = order[place]
            size = np.int64(sizes[row])
            first, last = min(first, physical_offsets[row]), max(last, physical_offsets[row])
            bytes_ += size
            body_bytes += np.int64(body_sizes[row])
            max_size = max(max_size, size)
            size_values[place] = max(size, np.int64(0))
            again += reconsume_times[row] > 0
            rechecked += (row_bits[row] & MARK_RECHECKED) != 0
            committed += (row_bits[row] & MARK_COMMITTED) != 0
            if not timeless:
                second_counts[(stores_us[row] - minute) // _SECOND_US] += 1
            if nulls[row] == 0:
                took_ms = (stores_us[row] - borns_us[row]) // 1000
                if took_ms < 0:
                    skewed += 1
                    max_skew = max(max_skew, -took_ms)
                elif row_bits[row] & MARK_WAITED:
                    wait_values[waits] = took_ms
                    waits += 1
                    wait_ms += took_ms
                    max_wait = max(max_wait, took_ms)
                else:
                    latency_values[latencies] = took_ms
                    latencies += 1
                    latency_ms += took_ms
                    max_latency = max(max_latency, took_ms)
        busiest = 0
        for second in range(60):
            if second_counts[second] > second_counts[busiest]:
                busiest = second
        sums[0, group], sums[1, group], sums[2, group], sums[3, group], sums[4, group] = (
            first, last, end - begin, bytes_, body_bytes,
        )  # fmt: skip
        sums[5, group], sums[6, group] = minute + busiest * _SECOND_US, second_counts[busiest]
        sums[7, group] = max_size
        sums[8, group], sums[9, group], sums[10, group] = latencies - latency_starts[group], latency_ms, max_latency
        sums[11, group], sums[12, group], sums[13, group] = waits - wait_starts[group], wait_ms, max_wait
        sums[14, group], sums[15, group] = skewed, max_skew
        sums[16, group], sums[17, group], sums[18, group] = again, rechecked, committed
    latency_starts[len(starts) - 1], wait_starts[len(starts) - 1] = latencies, waits


@compiled
def write_small_sketches(values: Words, starts: Longs, k: int, positions: Longs, sketch_words: Words) -> None:
    """Serialize KLL sketches of groups with at most `k` values, in the binary format of the datasketches library.

    Such a sketch contains its values unchanged, in reverse order. The size of each part is a multiple of 8 bytes.

    Args:
        values: doubles of at least 0 as words; their order as words is the same.
        starts: where the values of each group begin, and the end of the last.
        k: size parameter of the sketches.
        positions: where the sketch of each group begins in `sketch_words`, and the end of the last; groups without
            values, or with more than `k`, are left out.
        sketch_words: output, words.
    """
    for group in range(len(starts) - 1):
        begin, end = starts[group], starts[group + 1]
        count = end - begin
        if count == 0 or count > k:
            continue
        place = positions[group]
        # Family 15 (KLL), m = 8: preamble length, version, family, flags, k (2 bytes), m, a byte of 0.
        if count == 1:
            sketch_words[place] = np.uint64(0x0008_0000_040F_0202) | np.uint64(k) << np.uint64(32)
            sketch_words[place + 1] = values[begin]
            continue
        sketch_words[place] = np.uint64(0x0008_0000_000F_0105) | np.uint64(k) << np.uint64(32)
        sketch_words[place + 1] = np.uint64(count)
        # The smallest k, the number of levels, a byte of 0, and where level 0 begins.
        sketch_words[place + 2] = np.uint64(k) | np.uint64(1) << np.uint64(16) | np.uint64(k - count) << np.uint64(32)
        least = greatest = values[begin]
        for number in range(count):
            value = values[end - 1 - number]
            least, greatest = min(least, value), max(greatest, value)
            sketch_words[place + 5 + number] = value
        sketch_words[place + 3], sketch_words[place + 4] = least, greatest
