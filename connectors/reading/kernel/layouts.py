"""Functions that every log format implements for the kernel, called by common names.

The loops of the kernel take a layout, a named tuple with a type of its own, and call these functions with it. The
implementation is chosen by that type when a loop is compiled, once for each layout, so the choice costs nothing at run
time. A layout's modules register their implementations when they are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba.extending import overload

from commitlake.connectors.reading.kernel.compile_options import LINKED_OPTIONS

Function = Callable[..., Any]

_IMPLEMENTATIONS: dict[tuple[str, type], Function] = {}


def register_implementations(layout: type, *functions: Function, **renamed: Function) -> None:
    """Register the functions that implement this module's functions for a format, by name or as keyword arguments."""
    for function in functions:
        _IMPLEMENTATIONS[function.__name__, layout] = function
    for name, function in renamed.items():
        _IMPLEMENTATIONS[name, layout] = function


def _dispatch_by_layout(function: Function) -> Function:
    """Overload a function so that the type of its first argument selects the implementation to call."""

    @overload(function, jit_options=cast("Any", LINKED_OPTIONS), strict=False)
    def choose_implementation(layout: Any, *arguments: Any) -> Function:
        implementation = _IMPLEMENTATIONS[function.__name__, layout.instance_class]

        def call_implementation(layout, *arguments):
            return implementation(*arguments)

        return call_implementation

    return function


@_dispatch_by_layout
def classify_span(
    layout,
    window,
    window_length,
    position,
    offset,
    segment_end,
    file_end,
    max_record_bytes,
    verifies_crc,
    record_parts,
    row,
):
    """Return kind and size of the bytes at a position: record, filler, zeros or damage; locate a record's parts."""


@_dispatch_by_layout
def read_records(
    layout,
    window,
    window_length,
    window_offset,
    range_end,
    max_record_bytes,
    verifies_crc,
    position,
    record_parts,
    row,
    max_records,
):
    """Read records up to the first one that is not intact; return its position and the number of records read."""


@_dispatch_by_layout
def next_possible_start(layout, window, search_start, window_length, window_offset):
    """Return the next position at which a record or filler may begin, or -1."""


@_dispatch_by_layout
def start_mark_size(layout):
    """Return how many bytes from a position on `next_possible_start` needs to recognize a record or filler there."""


@_dispatch_by_layout
def ends_bad_range(layout, span_kind):
    """Return True for a record that is certainly valid, at which a bad range before it ends."""


@_dispatch_by_layout
def body_matches_crc(layout, window, position, body, body_length):
    """Return whether a record's body matches its CRC."""


@_dispatch_by_layout
def read_record_head(layout, window, position):
    """Return the physical offset and the size that a record states in its fixed-length fields."""


@_dispatch_by_layout
def record_head_size(layout):
    """Return the size in bytes of the fixed-length fields at a record's start."""


@_dispatch_by_layout
def read_filter_values(layout, window, record_parts, row):
    """Return the values of a record by which the kernel filters: its physical offset, store time and queue id."""


@_dispatch_by_layout
def max_text_size(layout, record_parts, row, column_selection):
    """Return the maximum number of bytes that a record adds to any of the outputs."""


@_dispatch_by_layout
def decode_rows(
    layout, window, record_parts, first_row, row_count, column_selection, interners, scratch, out_columns, out_texts
):
    """Decode located records, and write record i of `record_parts` to row i of the output arrays."""
