"""Rules for one record of a CommitLog, in both its dialects; see `connectors.log_format.format`."""

from __future__ import annotations

from commitlake.connectors.formats.rocketmq.message_row import row_of
from commitlake.connectors.log_format.records import RecordRules
from commitlake.schemas.layouts.boltmq.dialect import BLANK_MAGICS
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.checkpoint import parse_checkpoint
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, HEAD, STORED, Message, parse_message
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE
from commitlake.schemas.layouts.rocketmq.scan import SegmentScanner, examine


def _vouches(checkpoint: bytes, message: Message, was_closed: bool) -> bool:
    """Return whether a checkpoint confirms a record: it has the flushed record's store time, which others may share."""
    try:
        known = parse_checkpoint(checkpoint).physic_msg_timestamp
    except LayoutError:
        return False
    return 0 < message.store_timestamp < known + was_closed


RULES = RecordRules.of_layouts(
    head=HEAD,
    offset_field="physical_offset",
    filler=BLANK,
    filler_magics=BLANK_MAGICS,
    known_bytes=HEAD.size + V4_SIZE + STORED.size,  # up to the store time; every record is longer
    examine=examine,
    scanner=SegmentScanner,
    parse_message=parse_message,
    vouches=_vouches,
    row_of=row_of,
)
