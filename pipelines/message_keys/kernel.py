"""Compiled: hashes of keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.kernel.compiled import compiled
from commitlake.connectors.formats.engine.kernel.crc import crc32


def _hash_texts(data: Array, offsets: Array, out: Array) -> None:
    """CRC-32 of each text.

    Args:
        data: uint8, the texts one behind the other.
        offsets: int64, where each begins, and the end.
        out: int64, one less than offsets.
    """
    for row in range(len(out)):
        out[row] = np.int64(crc32(data, offsets[row], offsets[row + 1] - offsets[row]))


hash_texts = cast("Callable[[Array, Array, Array], None]", compiled(_hash_texts))
