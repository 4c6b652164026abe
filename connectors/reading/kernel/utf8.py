"""Validation of UTF-8."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import load_le_u64


@compiled
def is_utf8(window, position, length):
    """Return whether bytes are well-formed UTF-8 (Unicode, table 3-7)."""
    end = position + length
    while position < end:
        while end - position >= 8 and (load_le_u64(window, position) & np.uint64(0x8080808080808080)) == 0:
            position += 8
        if position == end:
            return True
        lead = window[position]
        if lead < 0x80:
            position += 1
            continue
        # The second byte has a narrower range after four leads: no overlong forms, no surrogates, nothing above
        # U+10FFFF.
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if position + more >= end:
            return False
        if window[position + 1] < low or window[position + 1] > high:
            return False
        for at in range(2, more + 1):
            if (window[position + at] & 0xC0) != 0x80:
                return False
        position += more + 1
    return True
