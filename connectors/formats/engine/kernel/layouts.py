"""What differs from layout to layout, under one name each.

The loops of the kernel take a layout, a named tuple whose type tells which one it is, and call these functions with it.
Which implementation that is, is settled when a loop is compiled, once for each layout: nothing is asked at run time.
A layout's modules register their implementations when they are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba.extending import overload

from commitlake.connectors.formats.engine.kernel.compiled import LINKED_OPTIONS

Function = Callable[..., Any]

_IMPLEMENTATIONS: dict[tuple[str, type], Function] = {}


def implement(layout: type, *functions: Function, **renamed: Function) -> None:
    """Register a layout's implementations, by their own names or others."""
    for function in functions:
        _IMPLEMENTATIONS[function.__name__, layout] = function
    for name, function in renamed.items():
        _IMPLEMENTATIONS[name, layout] = function


def _by_layout(function: Function) -> Function:
    """Let the type of the first argument choose who answers; the others are handed on to the implementation."""

    @overload(function, jit_options=cast("Any", LINKED_OPTIONS), strict=False)
    def choose(layout: Any, *arguments: Any) -> Function:
        implementation = _IMPLEMENTATIONS[function.__name__, layout.instance_class]

        def call(layout, *arguments):
            return implementation(*arguments)

        return call

    return function


@_by_layout
def examine(layout, window, length, position, offset, segment_end, file_end, max_record, verify, parts, row):
    """(what stands at a position, its size): what `schemas.layouts` says of it, and the parts of a record."""


@_by_layout
def take_records(layout, window, length, origin, limit, max_record, verify, position, parts, row, room):
    """Take intact records one after the other; where the first begins that is not taken, and how many there are."""


@_by_layout
def next_landmark(layout, window, begin, length, origin):
    """The next position that may be one of a record or a filler, or -1."""


@_by_layout
def landmark_reach(layout):
    """How many bytes `next_landmark` looks at from a position on."""


@_by_layout
def ends_bad_range(layout, kind):
    """Whether what `examine` found is a record whose place and size are beyond doubt."""


@_by_layout
def agrees(layout, window, position, body, body_length):
    """Whether a record's body agrees with its CRC."""


@_by_layout
def head_of(layout, window, position):
    """What a record says of its own offset and of its size; there are `head_size` bytes of it."""


@_by_layout
def head_size(layout):
    """Bytes of a record's head."""


@_by_layout
def filtered_by(layout, window, parts, row):
    """A record's own offset, store time and queue id."""


@_by_layout
def text_size(layout, parts, row, plan):
    """How many bytes a record may add to any of the outputs."""


@_by_layout
def decode(layout, window, parts, first, count, plan, interners, scratch, out, text):
    """Decode these records into the rows with the same numbers."""
