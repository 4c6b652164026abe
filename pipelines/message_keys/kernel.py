"""Compiled hashes of keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.kernel.compiled import compiled
from commitlake.connectors.formats.engine.kernel.crc import crc32


def _hash_texts(data: Array, offsets: Array, out: Array) -> None:
    """Compute the CRC-32 of each string.

    Args:
        data: uint8, the concatenated strings.
        offsets: int64, start of each string, and the end.
        out: int64, receives one hash for each string.
    """
    for row in range(len(out)):
        out[row] = np.int64(crc32(data, offsets[row], offsets[row + 1] - offsets[row]))


hash_texts = cast("Callable[[Array, Array, Array], None]", compiled(_hash_texts))
