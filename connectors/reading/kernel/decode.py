"""Loop over records that decodes all columns while the records are in the processor's cache.

`locate_and_decode_records` locates some records, drops those that are not wanted, and decodes the rest before it
continues. No record
is fetched from memory twice, and a batch is one call. Its outputs are defined in `buffers`.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.layouts import decode_rows, max_text_size, read_filter_values
from commitlake.connectors.reading.kernel.memory_access import OVERWRITE, PADDING
from commitlake.connectors.reading.kernel.strings import DISTINCT, TEXT_END

CHUNK = 256
"""Number of records that are located before they are decoded: few enough to stay in the cache."""

# Places in `bounds`: the first wanted record, and the first one after all wanted ones.
MIN_OFFSET, END_OFFSET, MIN_STORE_TIME, END_STORE_TIME = range(4)

_NO_LIMIT = np.iinfo(np.int64).max
_ENTRY_SIZE = 4  # minimum text size of a property, as counted by `max_text_size`
_KEY_SIZE = 2  # size of the shortest key and its space


@compiled
def _is_wanted_topic(window, position, length, wanted_topics, topic_offsets):
    for number in range(len(topic_offsets) - 1):
        begin = topic_offsets[number]
        if topic_offsets[number + 1] - begin == length:
            same = True
            for at in range(length):
                if window[position + at] != wanted_topics[begin + at]:
                    same = False
                    break
            if same:
                return True
    return False


@compiled
def _move_wanted_records_first(layout, window, record_parts, first_record, record_count, record_filters):
    """Move the parts of the wanted records to the front, and return the number of wanted records."""
    kept = first_record
    for row in range(first_record, first_record + record_count):
        offset, time, queue_id = read_filter_values(layout, window, record_parts, row)
        if offset < record_filters.bounds[MIN_OFFSET] or offset >= record_filters.bounds[END_OFFSET]:
            continue
        if time < record_filters.bounds[MIN_STORE_TIME] or time >= record_filters.bounds[END_STORE_TIME]:
            continue
        if len(record_filters.queue_ids) > 0:
            found = False
            for number in range(len(record_filters.queue_ids)):
                found |= record_filters.queue_ids[number] == queue_id
            if not found:
                continue
        if len(record_filters.topic_offsets) > 1 and not _is_wanted_topic(
            window,
            record_parts[h.TOPIC, row],
            record_parts[h.TOPIC_LENGTH, row],
            record_filters.topics,
            record_filters.topic_offsets,
        ):
            continue
        if kept != row:
            for part in range(record_parts.shape[0]):
                record_parts[part, kept] = record_parts[part, row]
        kept += 1
    return kept - first_record


@compiled
def _count_free_text_bytes(interner):
    free = len(interner.texts) - PADDING - interner.counts[TEXT_END]
    # The number of free values is expressed in bytes, so that one number is the room of an interner.
    return min(free, _ENTRY_SIZE * (len(interner.starts) - 1 - interner.counts[DISTINCT]))


@compiled
def _count_fitting_records(layout, record_parts, first_record, record_count, column_selection, interners, out_texts):
    """Return how many of the given records certainly fit in all output buffers."""
    wanted = column_selection.wanted
    room = np.int64(_NO_LIMIT)
    if wanted & b.WANT_ENTRIES:
        room = min(room, _ENTRY_SIZE * (len(out_texts.names) - out_texts.used[b.ENTRIES]))
        room = min(room, len(out_texts.values) - OVERWRITE - out_texts.used[b.VALUE_BYTES])
    if wanted & b.WANT_UNIQUE_KEY:
        room = min(room, len(out_texts.unique) - OVERWRITE - out_texts.used[b.UNIQUE_BYTES])
    if wanted & b.WANT_KEYS:
        room = min(room, _KEY_SIZE * (len(out_texts.key_offsets) - 1 - out_texts.used[b.KEY_ITEMS]))
        room = min(room, len(out_texts.keys) - OVERWRITE - out_texts.used[b.KEY_BYTES])
    room = min(
        room,
        _count_free_text_bytes(interners[0]),
        _count_free_text_bytes(interners[1]),
        _count_free_text_bytes(interners[2]),
    )
    room = min(
        room,
        _count_free_text_bytes(interners[3]),
        _count_free_text_bytes(interners[4]),
        _count_free_text_bytes(interners[5]),
    )
    # Each record counts with all of its text in every output. The estimate is too high, but takes one subtraction per
    # record, and nothing is checked while the record is decoded.
    for row in range(first_record, first_record + record_count):
        room -= max_text_size(layout, record_parts, row, column_selection)
        if room < 0:
            return row - first_record
    return record_count


@compiled
def decode_records(layout, window, record_parts, column_selection, interners, scratch, out_columns, out_texts):
    """Decode records that are already located, and return how many fit."""
    count = _count_fitting_records(
        layout, record_parts, 0, record_parts.shape[1], column_selection, interners, out_texts
    )
    decode_rows(layout, window, record_parts, 0, count, column_selection, interners, scratch, out_columns, out_texts)
    return count


@compiled
def locate_and_decode_records(
    layout, window, window_length, window_offset, range_end, segment_end, file_end, max_record_bytes, verifies_crc,
    state, record_parts, faults,
    record_filters,
    column_selection, interners, scratch, out_columns, out_texts,
):  # fmt: skip
    """Locate records until `state[STOP]` is set, and decode those that pass the filters.

    Args:
        layout: see `layouts`.
        window: see `walk_records`.
        window_length: see `walk_records`.
        window_offset: see `walk_records`.
        range_end: see `walk_records`.
        segment_end: see `walk_records`.
        file_end: see `walk_records`.
        max_record_bytes: see `walk_records`.
        verifies_crc: see `walk_records`.
        state: see `walk_records`; the caller empties RECORDS and FAULTS.
        record_parts: int64[parts, ROWS + 1] out.
        faults: int64[room, 3] out.
        record_filters: the filters for records.
        column_selection: the wanted columns.
        interners: one each for names, topics, tags, producer groups, born hosts and store hosts.
        scratch: see `buffers.Scratch`.
        out_columns: see `buffers.Columns`.
        out_texts: see `buffers.TextBuffers`.
    """
    rows = np.int64(0)
    room = record_parts.shape[1] - 1
    state[h.STOP] = h.STOP_ROOM
    while state[h.STOP] == h.STOP_ROOM and rows < room and state[h.FAULTS] < faults.shape[0]:
        state[h.RECORDS] = 0
        # One column more than records: see `walk_records`.
        chunk = record_parts[:, rows : rows + min(CHUNK, room - rows) + 1]
        h.walk_records(
            layout,
            window,
            window_length,
            window_offset,
            range_end,
            segment_end,
            file_end,
            max_record_bytes,
            verifies_crc,
            state,
            chunk,
            faults,
        )
        found = state[h.RECORDS]
        if record_filters.chooses:
            found = _move_wanted_records_first(layout, window, record_parts, rows, found, record_filters)
        fitting = _count_fitting_records(layout, record_parts, rows, found, column_selection, interners, out_texts)
        decode_rows(
            layout, window, record_parts, rows, fitting, column_selection, interners, scratch, out_columns, out_texts
        )
        rows += fitting
        # The hop is ahead of the decoder. Set it back to the first record without room, so that the next batch begins
        # there.
        if fitting < found:
            h.discard_findings_after(window_offset + record_parts[h.START, rows], state, faults)
            break
    state[h.RECORDS] = rows
