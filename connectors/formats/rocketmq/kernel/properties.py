"""Properties of a CommitLog record: entries, and those with columns of their own."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.rocketmq.kernel.origin_topics import (
    ORIGINS,
    find_origin_topic,
    may_be_retry_or_dlq_topic,
)
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import lowest_set_bit_index, mask_equal_bytes
from commitlake.connectors.reading.kernel.properties import (
    Grammar,
    copy_values,
    find_name_index,
    intern_name,
    make_property_cursor,
    next_property_entry,
    store_value_span,
)
from commitlake.connectors.reading.kernel.record_walk import PROPERTIES, PROPERTIES_LENGTH, TOPIC, TOPIC_LENGTH
from commitlake.connectors.reading.kernel.strings import copy_span, intern_span
from commitlake.connectors.reading.kernel.utf8 import is_utf8
from commitlake.schemas.layouts.rocketmq import properties as layout

GRAMMAR = Grammar(layout.PROPERTY_SEPARATOR, layout.NAME_VALUE_SEPARATOR, escape=layout.NAME_VALUE_SEPARATOR)
"""Nothing is escaped."""
_SPACE = ord(layout.KEY_SEPARATOR)
_KNOWN_NAMES = len(b.NAMES)
_PGROUP = np.int64(1) << b.NAME_PGROUP
_NONE = np.int64(-1)


@compiled
def _split_keys(window, position, length, used_counts, key_offsets, out_keys):
    """Split a text of keys at spaces, without empty keys."""
    end = position + length
    begin = position
    block = position
    while begin < end:
        at = end
        while block < end:
            mask = mask_equal_bytes(window, block, _SPACE, _SPACE)
            if mask != 0:
                at = min(end, block + lowest_set_bit_index(mask))
                break
            block += 64
        if at > begin:
            target = used_counts[b.KEY_BYTES]
            copy_span(window, begin, at - begin, out_keys, target)
            used_counts[b.KEY_BYTES] = target + at - begin
            item = used_counts[b.KEY_ITEMS] + 1
            key_offsets[item] = target + at - begin
            used_counts[b.KEY_ITEMS] = item
        begin = at + 1
        block = begin


@compiled
def split_properties(
    window,
    record_parts,
    first_row,
    row_count,
    seed,
    wanted_bits,
    names,
    topics,
    tags,
    groups,
    scratch,
    out_codes,
    out_texts,
):
    """Split records' properties into names and values, and write them and the keys to `out_texts`.

    Write the numbers of their tags, original topics and groups to `out_codes`.

    Args:
        window: bytes that contain the properties.
        record_parts: see `walk_records`.
        first_row: the first record.
        row_count: the number of records.
        seed: seed of the hashes.
        wanted_bits: bits, see `buffers`.
        names: interner of property names; it knows `buffers.NAMES`.
        topics: interner of topics.
        tags: interner of tags.
        groups: interner of producer groups.
        scratch: see `buffers.Scratch`.
        out_codes: see `buffers.Columns`; -1 if a record has no tag, origin or producer group.
        out_texts: see `buffers.TextBuffers`; there is room for these records.
    """
    # Unpacked once, because numba would count references within the loop.
    name_counts, name_table, name_starts, name_texts = names
    topic_counts, topic_table, topic_starts, topic_texts = topics
    tag_counts, tag_table, tag_starts, tag_texts = tags
    group_counts, group_table, group_starts, group_texts = groups
    tag_codes, origin_codes, group_codes = out_codes[b.TAGS], out_codes[b.ORIGIN], out_codes[b.PRODUCER_GROUP]
    serials, seen, likely_names, spans, named = scratch
    used, present, unique_offsets, unique_out, list_offsets = (
        out_texts.used, out_texts.present, out_texts.unique_offsets, out_texts.unique, out_texts.list_offsets,
    )  # fmt: skip
    key_offsets, key_text, map_offsets, entry_names = (
        out_texts.key_offsets,
        out_texts.keys,
        out_texts.map_offsets,
        out_texts.names,
    )
    value_offsets, values, not_utf8, priorities = (
        out_texts.value_offsets,
        out_texts.values,
        out_texts.not_utf8,
        out_texts.priorities,
    )
    likely_tag, likely_origin, likely_group = _NONE, _NONE, _NONE
    origin_codes[first_row : first_row + row_count] = -1
    group_codes[first_row : first_row + row_count] = -1
    for row in range(first_row, first_row + row_count):
        position = record_parts[PROPERTIES, row]
        end = position + record_parts[PROPERTIES_LENGTH, row]
        serial = serials[0] + 1
        serials[0] = serial
        first = used[b.ENTRIES]
        entries = np.int64(0)
        unique, keys, tag, priority = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        unique_length, keys_length, tag_length, priority_length = _NONE, _NONE, _NONE, _NONE
        # The spans in `named` are not cleared for each record. Only those whose bit is set in `found` belong to this
        # one.
        found = np.int64(0)
        cursor = make_property_cursor(position)
        while True:
            entry, cursor = next_property_entry(GRAMMAR, window, end, cursor)
            if not entry.is_there:
                break
            begin, separator = entry.begin, entry.separator
            # An entry without a name or without a value is ignored, as in MessageDecoder.string2messageProperties.
            if separator > begin and separator < entry.end - 1:
                value, length = separator + 1, entry.end - separator - 1
                name = intern_name(
                    window, begin, separator - begin, seed, entries, likely_names, name_counts, name_table, name_starts,
                    name_texts,
                )  # fmt: skip
                # First, because most names of a log are an application's own.
                if name >= _KNOWN_NAMES:
                    pass
                elif name == b.NAME_UNIQ_KEY:
                    # The first one belongs to the message itself, see `schemas.layouts.rocketmq.properties`.
                    if unique_length < 0:
                        unique, unique_length = value, length
                elif name == b.NAME_TAGS:
                    tag, tag_length = value, length
                elif name == b.NAME_KEYS:
                    keys, keys_length = value, length
                elif name == b.NAME_PRIORITY:
                    priority, priority_length = value, length
                else:
                    named[0, name], named[1, name] = value, length
                    found |= np.int64(1) << name
                if wanted_bits & b.WANT_ENTRIES:
                    place, entries = find_name_index(name, entries, first, serial, seen, likely_names, entry_names)
                    store_value_span(entry, place, spans)
        # Python decodes this record again, with repaired texts, so nothing of it is kept here.
        if cursor.others != 0 and not is_utf8(window, position, end - position):
            not_utf8[used[b.NOT_UTF8]] = row
            used[b.NOT_UTF8] += 1
            entries = np.int64(0)
            unique_length, keys_length, tag_length, priority_length = _NONE, _NONE, _NONE, _NONE
            found = np.int64(0)
        if wanted_bits & b.WANT_ENTRIES:
            used[b.VALUE_BYTES] = copy_values(
                GRAMMAR, window, spans, entries, first, values, value_offsets, used[b.VALUE_BYTES]
            )
            used[b.ENTRIES] = first + entries
            map_offsets[row + 1] = first + entries
        if wanted_bits & b.WANT_UNIQUE_KEY:
            target = used[b.UNIQUE_BYTES]
            present[b.UNIQUE_KEY, row] = unique_length >= 0
            if unique_length >= 0:
                copy_span(window, unique, unique_length, unique_out, target)
                target += unique_length
                used[b.UNIQUE_BYTES] = target
            unique_offsets[row + 1] = target
        if wanted_bits & b.WANT_KEYS:
            present[b.KEYS, row] = keys_length >= 0
            if keys_length >= 0:
                _split_keys(window, keys, keys_length, used, key_offsets, key_text)
            list_offsets[row + 1] = used[b.KEY_ITEMS]
        if wanted_bits & b.WANT_TAGS:
            if tag_length >= 0:
                likely_tag = intern_span(
                    window, tag, tag_length, seed, likely_tag, tag_counts, tag_table, tag_starts, tag_texts
                )
                tag_codes[row] = likely_tag
            else:
                tag_codes[row] = -1
        if wanted_bits & b.WANT_PRODUCER_GROUP and found & _PGROUP:
            likely_group = intern_span(
                window, named[0, b.NAME_PGROUP], named[1, b.NAME_PGROUP], seed, likely_group, group_counts, group_table,
                group_starts, group_texts,
            )  # fmt: skip
            group_codes[row] = likely_group
        if wanted_bits & b.WANT_ORIGIN and (
            found & ORIGINS or may_be_retry_or_dlq_topic(window, record_parts[TOPIC, row])
        ):
            origin, origin_length = find_origin_topic(
                window, record_parts[TOPIC, row], record_parts[TOPIC_LENGTH, row], named, found
            )
            if origin_length > 0:
                likely_origin = intern_span(
                    window, origin, origin_length, seed, likely_origin, topic_counts, topic_table, topic_starts,
                    topic_texts,
                )  # fmt: skip
                origin_codes[row] = likely_origin
        if wanted_bits & b.WANT_PRIORITY and priority_length >= 0:
            number = used[b.PRIORITIES]
            priorities[0, number] = row
            priorities[1, number] = priority
            priorities[2, number] = priority_length
            used[b.PRIORITIES] = number + 1
