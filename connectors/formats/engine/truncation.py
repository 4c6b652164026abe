"""Check that a segment was not truncated after its log was divided.

A read reports the missing part of a truncated file as a bad range. That is correct for a file that was truncated before
the read was planned. A file that is truncated between the plan and the read may be whole again in a minute, or a
recovering broker may write it again from there. So a caller must not record such a range as read.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from commitlake.connectors.formats.engine.errors import SegmentCutError
from commitlake.connectors.formats.engine.files import OpenSegment
from commitlake.connectors.formats.engine.splits import Split


def check_not_truncated(split: Split) -> None:
    """Check that a split's file still has its last byte; a deleted file is a gap, and is not checked here.

    Raises:
        SegmentCutError: if it is shorter.
    """
    if split.missing or split.file_end <= split.base_offset:
        return
    size = split.file_end - split.base_offset
    with suppress(FileNotFoundError), OpenSegment(split.path) as file:
        if file.read_into(np.empty(1, np.uint8), size - 1) == 0:
            raise SegmentCutError(
                f"{split.path} is shorter than the {size} bytes it had when this run began: nothing of this commit "
                "was archived. Is a broker recovering there? Run again when it is done"
            )
