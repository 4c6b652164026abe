"""KLL sketches of groups of numbers, and quantiles of merged sketches.

The format is that of Apache DataSketches. A compiled loop writes sketches of up to `SKETCH_K` values, byte for byte
like the library: for a small group, the calls of the library would take longer than all other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from datasketches import kll_doubles_sketch

from commitlake.connectors.arrays import Array
from commitlake.pipelines.topic_minutes.kernel import write_small_sketches
from commitlake.schemas.tables.topic_minutes import SKETCH_K

_WORD = 8
_HEADER_WORDS = 5  # before the values: see `kernel.write_small_sketches`


def sketch_groups(values: Array, starts: Array) -> pa.Array:
    """Create a sketch of each group.

    Args:
        values: doubles of at least 0, group by group.
        starts: int64, where the values of each group begin, and the end of the last.

    Returns:
        Binary array; null for groups without values.
    """
    counts = np.diff(starts)
    words = np.where(counts == 1, 2, counts + _HEADER_WORDS)
    words[(counts == 0) | (counts > SKETCH_K)] = 0
    places = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(words, out=places[1:])
    small = np.empty(int(places[-1]), np.uint64)
    write_small_sketches(values.view(np.uint64), starts, SKETCH_K, places, small)
    data, offsets = _with_large(small.view(np.uint8), places * _WORD, values, starts)
    buffers = [pa.array(counts > 0).buffers()[1], pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)


def _with_large(small: Array, offsets: Array, values: Array, starts: Array) -> tuple[Array, Array]:
    """Insert the sketches of large groups, created by the library, between those of the small ones."""
    pieces, added = [], np.zeros(len(offsets), np.int64)
    done = 0
    for group in np.flatnonzero(np.diff(starts) > SKETCH_K).tolist():
        sketch = kll_doubles_sketch(SKETCH_K)
        sketch.update(values[starts[group] : starts[group + 1]])
        written = np.frombuffer(sketch.serialize(), np.uint8)
        pieces += [small[done : offsets[group]], written]
        done = int(offsets[group])
        added[group + 1] = len(written)
    if not pieces:
        return small, offsets
    return np.concatenate([*pieces, small[done:]]), offsets + np.cumsum(added)


def merge_sketches(sketches: Iterable[bytes | None]) -> kll_doubles_sketch:
    """Merge serialized sketches; null stands for a sketch without values."""
    merged = kll_doubles_sketch(SKETCH_K)
    for data in sketches:
        if data is not None:
            merged.merge(kll_doubles_sketch.deserialize(data))
    return merged


def quantiles(sketches: Iterable[bytes | None], ranks: Sequence[float]) -> list[float | None]:
    """Return quantiles of the values of the given sketches, by nearest rank; None if there are no values."""
    merged = merge_sketches(sketches)
    return [None] * len(ranks) if merged.is_empty() else list(merged.get_quantiles(ranks, True))
