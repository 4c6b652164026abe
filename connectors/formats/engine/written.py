"""Check that the last records of a log are completely written: distinguishes NULs in texts from missing bytes.

No CRC covers topic and properties, which follow the body. So they can be missing although head and body are intact:

    the record is being written   its last bytes are zeros; possible only for the log's last record
    pages were lost               whole blocks of it are zeros: on network storage, or after a power failure

Any other zeros in the texts were sent by an application. The broker's checkpoint can prove that a record was on the
disk, whatever its bytes are. Without such a proof, the record counts as not written until the next record follows it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.formats.engine.files import OpenSegment
from commitlake.connectors.formats.format import RecordRules

BLOCK_BYTES = 512
"""Size that a disk writes atomically; pages are multiples of it."""
_CHECKPOINT, _ABORT = "checkpoint", "abort"
_SMALL_FILE_BYTES = 4096


def lacks_blocks(window: Array, begin: int, end: int, offset: int) -> bool:
    """Return whether a whole block of a record is zeros, at or after the first byte of its texts.

    Args:
        window: the record.
        begin: start of its texts in the window.
        end: end of its texts in the window.
        offset: position of the record in its file.
    """
    first = max(-(-offset // BLOCK_BYTES), (offset + begin) // BLOCK_BYTES)
    stop = (offset + end) // BLOCK_BYTES
    if stop <= first:
        return False
    blocks = window[first * BLOCK_BYTES - offset : stop * BLOCK_BYTES - offset].reshape(-1, BLOCK_BYTES)
    return not blocks.any(axis=1).all()


def vouched_for(segment_path: str, message: Any, rules: RecordRules) -> bool:
    """Return whether the files beside a log confirm that a message's record was on disk."""
    root = segment_path.rsplit("/", 2)[0]
    was_closed = _read(f"{root}/{_ABORT}") is None
    return rules.vouches(_read(f"{root}/{_CHECKPOINT}") or b"", message, was_closed)


def _read(path: str) -> bytes | None:
    """Return the first bytes of a small file; None if it does not exist or is not readable."""
    data = np.empty(_SMALL_FILE_BYTES, np.uint8)
    with suppress(OSError, StoreError), OpenSegment(path) as file:
        return data[: file.read_into(data, 0)].tobytes()
    return None
