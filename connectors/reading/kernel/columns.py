"""Columns of fixed size decoded from a window: integers and hosts.

Every function takes the positions of the wanted records, and reads only what was requested.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import load_be_i32, load_be_i64
from commitlake.connectors.reading.kernel.strings import intern_span
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE


@compiled
def gather_i32(window, positions, field_offset, bit_mask, out):
    """Set out[i] to the int32 at positions[i] + field_offset, with only the bits of `bit_mask`."""
    for row in range(len(positions)):
        out[row] = load_be_i32(window, positions[row] + field_offset) & np.int32(bit_mask)


@compiled
def gather_i64(window, positions, field_offset, out):
    """Set out[i] to the int64 at positions[i] + field_offset."""
    for row in range(len(positions)):
        out[row] = load_be_i64(window, positions[row] + field_offset)


@compiled
def intern_hosts(window, positions, field_offset, sys_flags, v6_bit, seed, hosts, out):
    """Write the number of each record's host among the distinct hosts; a bit of its sysFlag marks an IPv6 address."""
    counts, table, starts, texts = hosts
    likely = np.int64(-1)
    for row in range(len(positions)):
        size = V6_SIZE if sys_flags[row] & v6_bit else V4_SIZE
        position = positions[row] + field_offset
        likely = intern_span(window, position, size, seed, likely, counts, table, starts, texts)
        out[row] = likely


@compiled
def intern_spans(window, positions, lengths, seed, interner, out):
    """Write to `out` the number of each value at `positions` among the distinct values in `interner`."""
    counts, table, starts, texts = interner
    likely = np.int64(-1)
    for row in range(len(positions)):
        likely = intern_span(window, positions[row], lengths[row], seed, likely, counts, table, starts, texts)
        out[row] = likely
