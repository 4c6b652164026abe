"""Compiled search for the original topic of a message, by the rules of `schemas.layouts.rocketmq.topics`.

A value is a pair of position and length; a length of -1 means that there is none.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel.compile_options import compiled, inlined
from commitlake.connectors.reading.kernel.memory_access import load_le_u64
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, POP_SEPARATORS, RETRY_PREFIX

_NONE = np.int64(-1)
_RETRY, _RETRY_LENGTH = np.uint64(int.from_bytes(RETRY_PREFIX.encode(), "little")), len(RETRY_PREFIX)
_DLQ, _DLQ_LENGTH = np.uint64(int.from_bytes(DLQ_PREFIX.encode(), "little")), len(DLQ_PREFIX)
_RETRY_MASK, _DLQ_MASK = (np.uint64((1 << 8 * length) - 1) for length in (_RETRY_LENGTH, _DLQ_LENGTH))
_PERCENT = np.uint8(ord("%"))
ORIGINS = np.int64(sum(1 << name for name in (b.NAME_REAL_TOPIC, b.NAME_RETRY_TOPIC, b.NAME_DLQ_ORIGIN_TOPIC)))
"""Bits of the property names that contain an original topic."""
_PLUS, _UNDERLINE = (np.uint8(ord(separator)) for separator in POP_SEPARATORS)


@compiled
def _is_retry_topic(window, position, length):
    return length >= _RETRY_LENGTH and load_le_u64(window, position) & _RETRY_MASK == _RETRY


@compiled
def _is_dead_letter_topic(window, position, length):
    return length >= _DLQ_LENGTH and load_le_u64(window, position) & _DLQ_MASK == _DLQ


@compiled
def _skip_group_name(window, position, length, group, group_length):
    """Return position and length of the topic after the group in a POP retry topic's name; length -1 for no topic."""
    if group_length < 0 or length <= group_length + 1:
        return position, _NONE
    for at in range(group_length):
        if window[position + at] != window[group + at]:
            return position, _NONE
    separator = window[position + group_length]
    if separator != _PLUS and separator != _UNDERLINE:
        return position, _NONE
    return position + group_length + 1, length - group_length - 1


@compiled
def _find_pop_topic(window, position, length, group, group_length, dead_group, dead_group_length):
    """Return position and length of the original topic in a POP retry topic's name; of the whole name for others."""
    if length <= 0:
        return position, _NONE
    # Not a retry topic: the property names the original topic itself.
    if not _is_retry_topic(window, position, length):
        return position, length
    position += _RETRY_LENGTH
    length -= _RETRY_LENGTH
    found, found_length = _skip_group_name(window, position, length, group, group_length)
    if found_length < 0:
        found, found_length = _skip_group_name(window, position, length, dead_group, dead_group_length)
    # Without the group, only `+` shows where it ends: it is not valid in names, whereas `_` is common in them.
    if found_length < 0:
        for at in range(length - 1):
            if window[position + at] == _PLUS:
                return position + at + 1, length - at - 1
    return found, found_length


@inlined
def may_be_retry_or_dlq_topic(window, topic):
    """Return whether a stored topic may be a retry or dead-letter topic, judging by its first byte."""
    return window[topic] == _PERCENT


@inlined
def _property_span(value_spans, found_bits, name_number):
    return value_spans[0, name_number], value_spans[1, name_number] if found_bits >> name_number & 1 else _NONE


@compiled
def find_origin_topic(window, own_topic, own_topic_length, value_spans, found_bits):
    """Return position and length of a message's original topic in the record; length -1 if no property names one.

    If the record is in neither a retry topic nor a dead-letter topic, this is the next topic of the message, which is
    only relevant for the kinds that wait in a topic of the broker.

    Args:
        window: bytes that contain the values.
        own_topic: position of the stored topic.
        own_topic_length: size of the stored topic, bytes.
        value_spans: see `buffers.Scratch`.
        found_bits: a bit for each of `buffers.NAMES` that the record has.
    """
    is_retry, is_dead = (
        _is_retry_topic(window, own_topic, own_topic_length),
        _is_dead_letter_topic(window, own_topic, own_topic_length),
    )
    group, group_length = _property_span(value_spans, found_bits, b.NAME_ORIGIN_GROUP)
    # The name of a dead-letter topic contains the group, which helps to split the name of a POP retry topic.
    consumer, consumer_length = own_topic, _NONE
    if is_dead:
        consumer, consumer_length = own_topic + _DLQ_LENGTH, own_topic_length - _DLQ_LENGTH
    origin, length = own_topic, _NONE
    # REAL_TOPIC stays from an earlier delay. In a retry or dead-letter topic it is outdated, so it is not considered.
    if not is_retry and not is_dead:
        value, value_length = _property_span(value_spans, found_bits, b.NAME_REAL_TOPIC)
        origin, length = _find_pop_topic(window, value, value_length, group, group_length, consumer, consumer_length)
    if length < 0:
        value, value_length = _property_span(value_spans, found_bits, b.NAME_RETRY_TOPIC)
        origin, length = _find_pop_topic(window, value, value_length, group, group_length, consumer, consumer_length)
    if length < 0:
        value, value_length = _property_span(value_spans, found_bits, b.NAME_DLQ_ORIGIN_TOPIC)
        origin, length = _find_pop_topic(window, value, value_length, group, group_length, consumer, consumer_length)
    if length < 0 and is_retry:
        origin, length = _find_pop_topic(
            window, own_topic, own_topic_length, group, group_length, consumer, consumer_length
        )
    return origin, length
