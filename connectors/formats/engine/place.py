"""Where the kernel looks: said by `walk`, and understood by every hop that it calls."""

from __future__ import annotations

from typing import NamedTuple

from commitlake.connectors.formats.engine.files import Window


class Place(NamedTuple):
    """Where the kernel looks: arguments of `kernel.hop` after the first, in its order."""

    window: Window
    length: int
    origin: int
    limit: int
    segment_end: int
    file_end: int
    max_record_bytes: int
    verify: bool
