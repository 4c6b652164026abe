"""Position at which the kernel reads; set by `walk`, and passed to every hop."""

from __future__ import annotations

from typing import NamedTuple

from commitlake.connectors.formats.engine.files import Window


class HopArguments(NamedTuple):
    """Position at which the kernel reads: arguments of `kernel.hop` after the first, in its order."""

    window: Window
    length: int
    origin: int
    limit: int
    segment_end: int
    file_end: int
    max_record_bytes: int
    verify: bool
