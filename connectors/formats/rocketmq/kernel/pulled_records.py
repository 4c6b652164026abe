"""Records as a broker sends them: consecutive, but from different places in its log."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.rocketmq.kernel.records import body_matches_crc, locate_parts
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import load_be_i32
from commitlake.connectors.reading.kernel.record_walk import BODY, BODY_LENGTH, CODE_BY_FAULT, START
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq import commitlog as layout
from commitlake.schemas.layouts.rocketmq.scan import Fault

_MAGIC, _SIZE, _CUT = CODE_BY_FAULT[Fault.MAGIC], CODE_BY_FAULT[Fault.SIZE], CODE_BY_FAULT[Fault.CUT]
_PART_LENGTHS = CODE_BY_FAULT[Fault.PART_LENGTHS]
_V1, _V2, _BOLTMQ = int(Magic.V1), int(Magic.V2), int(Magic.BOLTMQ)
_AT_MAGIC = layout.HEAD.offset_of("magic")
_MIN_RECORD_SIZE = layout.MIN_RECORD_SIZE
NO_FAULT = 0


@compiled
def locate_records(window, position, end_position, record_parts, intact_mask):
    """Locate the complete records in the answer to a pull, and mark those whose body matches its checksum.

    Args:
        window: uint8 array, with PADDING bytes after the bytes that count.
        position: position of the first record.
        end_position: bytes of the window that count.
        record_parts: int64[COMMITLOG_PART_COUNT, room] out: positions of each record's parts.
        intact_mask: bool[room] out: whether the body of each record matches its checksum.

    Returns:
        The position of the first byte that was not read, the number of records, and the code of the fault at that
        position: NO_FAULT if the window or the room ended.
    """
    row = 0
    while position < end_position and row < record_parts.shape[1]:
        if end_position - position < _MIN_RECORD_SIZE:
            return position, row, _CUT
        size = np.int64(load_be_i32(window, position))
        magic = load_be_i32(window, position + _AT_MAGIC)
        if magic != _V1 and magic != _V2 and magic != _BOLTMQ:
            return position, row, _MAGIC
        # The record's own offset is not compared: a broker sends records from anywhere in its log, so the position
        # proves nothing.
        if size < _MIN_RECORD_SIZE:
            return position, row, _SIZE
        if size > end_position - position:
            return position, row, _CUT
        if not locate_parts(window, position, size, magic, record_parts, row):
            return position, row, _PART_LENGTHS
        # A wrong CRC does not end the search: the lengths agree, so the next record begins after this one.
        intact_mask[row] = body_matches_crc(
            window, record_parts[START, row], record_parts[BODY, row], record_parts[BODY_LENGTH, row]
        )
        row += 1
        position += size
    return position, row, NO_FAULT
