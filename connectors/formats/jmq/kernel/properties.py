"""Parser of properties in a window, by the rules of `schemas.layouts.jmq.properties`, with two added properties.

A name is numbered in its stored form, and unescaped when its text is made. This is correct for the escapes that JMQ
writes. A record with a name in another form is left for repair, like a record whose texts are not UTF-8.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.jmq.kernel.decimal_text import write_signed
from commitlake.connectors.formats.jmq.kernel.records import APP, APP_LENGTH, BUSINESS_ID, BUSINESS_ID_LENGTH
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import load_be_i32, load_be_i64
from commitlake.connectors.reading.kernel.properties import (
    MAX_ENTRIES,
    Grammar,
    copy_values,
    find_name_index,
    intern_name,
    make_property_cursor,
    next_property_entry,
    store_value_span,
)
from commitlake.connectors.reading.kernel.strings import copy_span, intern_span
from commitlake.connectors.reading.kernel.utf8 import is_utf8
from commitlake.schemas.layouts.jmq import properties as layout
from commitlake.schemas.layouts.jmq.journal import HEAD

MAX_PROPERTIES = layout.MAX_SIZE // 3 + 1
"""Number of properties of one record: each has a name, `=`, a value and a newline, which the last one lacks."""
OWN_NAMES = ("=app", "=receive_timestamp")
"""Names of the added properties, which no record can store, because a name ends at the `=`."""
NAME_APP, NAME_RECEIVE_TIMESTAMP = range(len(OWN_NAMES))

GRAMMAR = Grammar(ord("\n"), ord("="), escape=ord("\\"))
_SENT, _RECEIVE_DELAY = HEAD.offset_of("send_timestamp"), HEAD.offset_of("receive_delay")
assert MAX_PROPERTIES <= MAX_ENTRIES


@compiled
def _receive_timestamp(window, record_start):
    return load_be_i64(window, record_start + _SENT) + load_be_i32(window, record_start + _RECEIVE_DELAY)


@compiled
def split_properties(
    window, record_parts, first_row, row_count, seed, wanted_bits, names, groups, scratch, out_group_codes, out_texts
):
    """Split records' properties into names and values in `out_texts`; application and receive time become properties.

    Args:
        window: bytes that contain the properties.
        record_parts: see `records`.
        first_row: the first record.
        row_count: the number of records.
        seed: seed of the hashes.
        wanted_bits: bits, see `buffers`.
        names: interner of property names; it knows OWN_NAMES.
        groups: interner of producer groups, which are the applications.
        scratch: see `buffers.Scratch`.
        out_group_codes: int32 out, the number of each record's producer group, -1 if it has none.
        out_texts: see `buffers.TextBuffers`; there is room for these records.
    """
    # Unpacked once, because numba would count references within the loop.
    name_counts, name_table, name_starts, name_texts = names
    group_counts, group_table, group_starts, group_texts = groups
    serials, seen, likely_names, spans, _ = scratch
    likely_group = np.int64(-1)
    used, present, not_utf8 = out_texts.used, out_texts.present, out_texts.not_utf8
    list_offsets, key_offsets, key_text = out_texts.list_offsets, out_texts.key_offsets, out_texts.keys
    map_offsets, entry_names, value_offsets, values = (
        out_texts.map_offsets, out_texts.names, out_texts.value_offsets, out_texts.values,
    )  # fmt: skip
    for row in range(first_row, first_row + row_count):
        position = record_parts[h.PROPERTIES, row]
        end = position + record_parts[h.PROPERTIES_LENGTH, row]
        # A new serial makes what earlier records left in `seen` invalid, so that it is never cleared.
        serial = serials[0] + 1
        serials[0] = serial
        first = used[b.ENTRIES]
        entries = np.int64(0)
        is_irregular = False
        cursor = make_property_cursor(position)
        while True:
            entry, cursor = next_property_entry(GRAMMAR, window, end, cursor)
            if not entry.is_there:
                break
            begin, separator = entry.begin, entry.separator
            if separator > begin:
                is_irregular |= entry.has_irregular_name
                if wanted_bits & b.WANT_ENTRIES:
                    name = intern_name(
                        window, begin, separator - begin, seed, entries, likely_names, name_counts, name_table,
                        name_starts, name_texts,
                    )  # fmt: skip
                    place, entries = find_name_index(name, entries, first, serial, seen, likely_names, entry_names)
                    store_value_span(entry, place, spans)
        key, key_length = record_parts[BUSINESS_ID, row], record_parts[BUSINESS_ID_LENGTH, row]
        app, app_length = record_parts[APP, row], record_parts[APP_LENGTH, row]
        # The search for marks has seen all bytes. Only a record with a byte that is not ASCII is worth the check.
        is_text = cursor.others == 0 or is_utf8(window, position, end - position)
        is_text = is_text and is_utf8(window, key, key_length) and is_utf8(window, app, app_length)
        # Python decodes this record again, with repaired texts. Nothing of it may stay in the outputs, whose offsets
        # continue with the next record.
        if is_irregular or not is_text:
            not_utf8[used[b.NOT_UTF8]] = row
            used[b.NOT_UTF8] += 1
            entries = np.int64(0)
            key_length, app_length = np.int64(0), np.int64(0)
        if wanted_bits & b.WANT_PRODUCER_GROUP:
            out_group_codes[row] = -1
            if app_length > 0:
                likely_group = intern_span(
                    window, app, app_length, seed, likely_group, group_counts, group_table, group_starts, group_texts
                )
                out_group_codes[row] = likely_group
        if wanted_bits & b.WANT_ENTRIES:
            target = copy_values(GRAMMAR, window, spans, entries, first, values, value_offsets, used[b.VALUE_BYTES])
            if is_text and not is_irregular:
                if app_length > 0:
                    copy_span(window, app, app_length, values, target)
                    target += app_length
                    entry_names[first + entries] = NAME_APP
                    entries += 1
                    value_offsets[first + entries] = target
                target = write_signed(_receive_timestamp(window, record_parts[h.START, row]), values, target)
                entry_names[first + entries] = NAME_RECEIVE_TIMESTAMP
                entries += 1
                value_offsets[first + entries] = target
            used[b.VALUE_BYTES] = target
            used[b.ENTRIES] = first + entries
            map_offsets[row + 1] = first + entries
        if wanted_bits & b.WANT_KEYS:
            present[b.KEYS, row] = key_length > 0
            if key_length > 0:
                target, item = used[b.KEY_BYTES], used[b.KEY_ITEMS] + 1
                copy_span(window, key, key_length, key_text, target)
                used[b.KEY_BYTES] = target + key_length
                key_offsets[item] = target + key_length
                used[b.KEY_ITEMS] = item
            list_offsets[row + 1] = used[b.KEY_ITEMS]
