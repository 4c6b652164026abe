"""Search for the records of a consume log, see `schemas.layouts.jmq.consume_records`; the CRC shows which are valid."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.jmq.kernel.records import unsigned16
from commitlake.connectors.reading.kernel.compile_options import compiled, inlined
from commitlake.connectors.reading.kernel.crc import crc32_without_hole
from commitlake.connectors.reading.kernel.memory_access import load_be_i32, load_u8
from commitlake.schemas.layouts.jmq import consume_records as layout

_AT_MAGIC = layout.HEAD.offset_of("magic")
_AT_OUTCOME = layout.HEAD.offset_of("outcome")
_AT_CRC, _CRC_SIZE = layout.CRC_POSITION, 4
_HEAD_SIZE, _LENGTH_SIZE = layout.HEAD.size, layout.TEXT_LENGTH.size
_MIN_SIZE, _MAX_SIZE = layout.MIN_RECORD_SIZE, layout.MAX_RECORD_SIZE
_MAGIC = layout.MAGIC
_LAST_OUTCOME = int(max(layout.DeliveryOutcome))
assert (_LENGTH_SIZE, _AT_CRC + _CRC_SIZE) == (1, _HEAD_SIZE)


@inlined
def _texts_fill_record(window, position, size):
    """Return whether two texts exactly fill the rest of a record."""
    at_app = position + _HEAD_SIZE + _LENGTH_SIZE + np.int64(load_u8(window, position + _HEAD_SIZE))
    end = position + size
    return at_app < end and at_app + _LENGTH_SIZE + np.int64(load_u8(window, at_app)) == end


@inlined
def _is_intact_record(window, position, size):
    outcome = load_u8(window, position + _AT_OUTCOME)
    # The cheap rules come first: the two bytes of the magic occur by chance in many places, and each costs a CRC.
    if outcome < 1 or outcome > _LAST_OUTCOME or not _texts_fill_record(window, position, size):
        return False
    stored = np.uint64(np.int64(load_be_i32(window, position + _AT_CRC)) & 0xFFFFFFFF)
    return crc32_without_hole(window, position, position + _AT_CRC, _CRC_SIZE, size) == stored


@compiled
def find_consumptions(window, window_length, is_last_window, positions):
    """Find the positions of the intact consume records in the first `window_length` bytes of a window.

    Args:
        window: uint8, with `PADDING` bytes after them.
        window_length: number of these bytes.
        is_last_window: whether the file ends with them; else a record that may be incomplete is left to the next
            window.
        positions: int64 out, start of each record; has room for `length // MIN_RECORD_SIZE + 1`.

    Returns:
        The number of records, and the start of the next window.
    """
    count, position = 0, np.int64(0)
    while position + _MIN_SIZE <= window_length:
        size = unsigned16(window, position)
        if unsigned16(window, position + _AT_MAGIC) == _MAGIC and _MIN_SIZE <= size <= _MAX_SIZE:
            # In the file's last window, a record that does not end there is cut or not a record at all. Search inside
            # it, because whole records may follow the false size.
            if position + size > window_length:
                if not is_last_window:
                    break
            elif _is_intact_record(window, position, size):
                positions[count] = position
                count += 1
                position += size
                continue
        # Nothing here is proven, so its size is not used to skip ahead.
        position += 1
    return count, position
