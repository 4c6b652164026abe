"""Sizes of the journal whose read plans are tested."""

from __future__ import annotations

FILE_BYTES = 1 << 14
COUNT = 600
RARE = "rare"
