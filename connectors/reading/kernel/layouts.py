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


def implement(layout: type, *functions: Function, **renamed: Function) -> None:
    """Register a format's implementations of this module's functions, by their own names or as keyword arguments."""
    for function in functions:
        _IMPLEMENTATIONS[function.__name__, layout] = function
    for name, function in renamed.items():
        _IMPLEMENTATIONS[name, layout] = function


def _by_layout(function: Function) -> Function:
    """Overload a function to call the implementation for the type of its first argument, with the others."""

    @overload(function, jit_options=cast("Any", LINKED_OPTIONS), strict=False)
    def choose(layout: Any, *arguments: Any) -> Function:
        implementation = _IMPLEMENTATIONS[function.__name__, layout.instance_class]

        def call(layout, *arguments):
            return implementation(*arguments)

        return call

    return function


@_by_layout
def classify_span(layout, window, length, position, offset, segment_end, file_end, max_record, verify, parts, row):
    """Return the kind and the size of the span at a position, as in `schemas.layouts`; fill `parts` for a record."""


@_by_layout
def read_records(layout, window, length, origin, limit, max_record, verify, position, parts, row, max_records):
    """Read records up to the first one that is not intact; return its position and the number of records read."""


@_by_layout
def next_landmark(layout, window, begin, length, origin):
    """Return the next position at which a record or filler may begin, or -1."""


@_by_layout
def landmark_size(layout):
    """Return how many bytes `next_landmark` examines from a position on."""


@_by_layout
def ends_bad_range(layout, kind):
    """Return whether `kind`, as `classify_span` returns it, means a record whose position and size are certain."""


@_by_layout
def body_matches_crc(layout, window, position, body, body_length):
    """Return whether a record's body matches its CRC."""


@_by_layout
def read_head(layout, window, position):
    """Return the physical offset and size that a record's head states; the head has `head_size` bytes."""


@_by_layout
def head_size(layout):
    """Return the size of a record's head in bytes."""


@_by_layout
def read_filter_values(layout, window, parts, row):
    """Return the values of a record by which the kernel filters: own offset, store time and queue id."""


@_by_layout
def max_text_size(layout, parts, row, plan):
    """Return the maximum number of bytes that a record adds to any of the outputs."""


@_by_layout
def decode_rows(layout, window, parts, first, count, plan, interners, scratch, out, text):
    """Decode located records; record i of `parts` becomes row i of the outputs."""
