"""The entries of properties, found in bytes by either format's grammar."""

from __future__ import annotations

import numpy as np
import pytest

from commitlake.connectors.formats.jmq.kernel.properties import GRAMMAR as JMQ
from commitlake.connectors.formats.rocketmq.kernel.properties import GRAMMAR as ROCKETMQ
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.kernel.properties import Cursor, Grammar, make_property_cursor, next_property_entry

BEFORE = b"x=\x01\n\x02"
"""Bytes before the properties, with marks that are none of theirs."""


def typed(cursor: Cursor) -> Cursor:
    """Return a cursor with the kernel's types, which are plain numbers in values that it returns to Python."""
    block, marks, others, begin, escaped = cursor
    return Cursor(np.int64(block), np.uint64(marks), np.uint64(others), np.int64(begin), np.int64(escaped))


def entries_of(grammar: Grammar, data: bytes) -> list[tuple[bytes, bytes | None, bool, bool]]:
    """Return each entry's name, value, and flags for escapes and for an irregular name."""
    window = np.frombuffer(BEFORE + data + b"\n=\\\x01\x02" + bytes(PADDING), np.uint8)
    end = len(BEFORE) + len(data)
    cursor = make_property_cursor(len(BEFORE))
    found: list[tuple[bytes, bytes | None, bool, bool]] = []
    while True:
        entry, cursor = next_property_entry(grammar, window, end, typed(cursor))
        if not entry.is_there:
            return found
        has_value = entry.separator >= 0
        name = window[entry.begin : entry.separator if has_value else entry.end].tobytes()
        value = window[entry.separator + 1 : entry.end].tobytes() if has_value else None
        found.append((name, value, bool(entry.has_escapes), bool(entry.has_irregular_name)))


@pytest.mark.parametrize(
    ("grammar", "data", "expected"),
    [
        (ROCKETMQ, b"", []),
        (JMQ, b"", []),
        (ROCKETMQ, b"a\x011\x02", [(b"a", b"1", False, False)]),
        (ROCKETMQ, b"a\x011", [(b"a", b"1", False, False)]),  # the last mark may be missing
        (JMQ, b"a=1\nb=2", [(b"a", b"1", False, False), (b"b", b"2", False, False)]),
        (JMQ, b"a=1\n", [(b"a", b"1", False, False)]),
        (ROCKETMQ, b"a\x011\x012\x02", [(b"a", b"1\x012", False, False)]),  # a second separator is the value's
        (JMQ, b"a=1=2", [(b"a", b"1=2", False, False)]),
        (
            ROCKETMQ,
            b"a\x02\x02\x01\x02",
            [(b"a", None, False, False), (b"", None, False, False), (b"", b"", False, False)],
        ),
        (JMQ, b"a\n\n=", [(b"a", None, False, False), (b"", None, False, False), (b"", b"", False, False)]),
        (ROCKETMQ, b"a\x01\\\x02", [(b"a", b"\\", False, False)]),  # which escapes nothing there
        (JMQ, b"a=\\\nb\\=", [(b"a", b"\\\nb\\=", True, False)]),
        (JMQ, b"a\\=b=1", [(b"a\\=b", b"1", False, False)]),
        (JMQ, b"a\\b=1\nc=2", [(b"a\\b", b"1", False, True), (b"c", b"2", False, False)]),
        (JMQ, b"a=\\\\\nb=1", [(b"a", b"\\\\", True, False), (b"b", b"1", False, False)]),
        (JMQ, b"a=1\\", [(b"a", b"1\\", True, False)]),
        (JMQ, b"a\\", [(b"a\\", None, False, True)]),
    ],
)
def test_entries_end_at_their_separators(grammar: Grammar, data: bytes, expected: list[object]) -> None:
    assert entries_of(grammar, data) == expected


@pytest.mark.parametrize(("grammar", "separator", "end"), [(ROCKETMQ, b"\x01", b"\x02"), (JMQ, b"=", b"\n")])
@pytest.mark.parametrize("length", [56, *range(60, 68), 127, 128, 129, 300])
def test_entries_may_extend_across_blocks_of_64_bytes(
    grammar: Grammar, separator: bytes, end: bytes, length: int
) -> None:
    value = b"v" * length
    data = b"name" + separator + value + end + b"k" + separator + b"1"
    assert entries_of(grammar, data) == [(b"name", value, False, False), (b"k", b"1", False, False)]


@pytest.mark.parametrize("length", range(56, 68))
def test_an_escape_may_extend_into_the_next_block(length: int) -> None:
    value = b"v" * length + b"\\\nw"
    assert entries_of(JMQ, b"a=" + value + b"\nb=1") == [(b"a", value, True, False), (b"b", b"1", False, False)]


def test_non_ascii_bytes_are_noted_only_within_the_properties() -> None:
    text = "a\x01ü\x02".encode()
    window = np.frombuffer(text + "ö".encode() + bytes(PADDING), np.uint8)
    _, cursor = next_property_entry(ROCKETMQ, window, len(text), typed(make_property_cursor(0)))
    assert cursor.others != 0
    _, cursor = next_property_entry(ROCKETMQ, window, 1, typed(make_property_cursor(0)))
    assert cursor.others == 0
