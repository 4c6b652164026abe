"""What is known of the CommitLog, in both its dialects, without its kernel; see `layouts`."""

from __future__ import annotations

from connectors.commitlog.layouts import LayoutRules
from connectors.commitlog.records import row_of
from schemas.layouts.checkpoint import parse_checkpoint
from schemas.layouts.commitlog import BLANK, HEAD, STORED, Message, parse_message
from schemas.layouts.dialect import BLANK_MAGICS
from schemas.layouts.errors import LayoutError
from schemas.layouts.hosts import V4_SIZE
from schemas.layouts.scan import SegmentScanner, examine


def _parse(data: memoryview) -> tuple[Message, int] | None:
    return parse_message(data, verify_crc=False)


def _vouches(checkpoint: bytes, message: Message, was_closed: bool) -> bool:
    """A broker notes the store time of its last record once that is flushed; others may have the same millisecond."""
    try:
        known = parse_checkpoint(checkpoint).physic_msg_timestamp
    except LayoutError:
        return False
    return 0 < message.store_timestamp < known + was_closed


def _size_of(head: memoryview) -> int:
    return int(BLANK.unpack(head)[0])


def _is_filler(head: memoryview) -> bool:
    return BLANK.unpack(head)[1] in BLANK_MAGICS


RULES = LayoutRules(
    examine=examine,
    scanner=SegmentScanner,
    parse=_parse,
    vouches=_vouches,
    row_of=row_of,
    size_of=_size_of,
    is_filler=_is_filler,
    head_bytes=BLANK.size,
    known_bytes=HEAD.size + V4_SIZE + STORED.size,  # up to the store time; no record is that short
)
