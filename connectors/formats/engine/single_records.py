"""Single positions of a segment, for planning and for descriptions of bad ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from commitlake.connectors.formats.engine.files import SegmentFile
from commitlake.connectors.formats.engine.splits import Split
from commitlake.schemas.layouts.rocketmq.scan import ScanFinding, SpanKind

_FIRST_READ_BYTES = 4096


def examine_at(file: SegmentFile, split: Split, offset: int, max_record_bytes: int) -> tuple[ScanFinding, memoryview]:
    """Return the finding at a physical offset, and the bytes that begin there; for a record, all of its bytes.

    Args:
        file: the open segment.
        split: any range of it.
        offset: the physical offset.
        max_record_bytes: larger sizes are faults.
    """
    bounds, rules = split.bounds(max_record_bytes), split.format.rules
    view = _read(file, split, offset, _FIRST_READ_BYTES)
    finding = rules.examine(view, 0, offset, bounds)
    if finding.kind is SpanKind.MORE and len(view) >= rules.head_bytes:
        view = _read(file, split, offset, rules.size_of(view))
        finding = rules.examine(view, 0, offset, bounds)
    return finding, view


def message_at(file: SegmentFile, split: Split, offset: int, max_record_bytes: int) -> Any:
    """Return the record at a physical offset, as a message of its format; None if there is no valid one."""
    finding, view = examine_at(file, split, offset, max_record_bytes)
    if finding.kind is not SpanKind.RECORD:
        return None
    found = split.format.rules.parse(view)
    return None if found is None else found[0]


def _read(file: SegmentFile, split: Split, offset: int, size: int) -> memoryview:
    window = np.empty(max(0, min(size, split.file_end - offset)), np.uint8)
    return window.data[: file.read_into(window, offset - split.base_offset)]
