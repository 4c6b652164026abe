"""The rules for one record of a CommitLog, in both its dialects; see `connectors.formats.format`."""

from __future__ import annotations

from commitlake.connectors.formats.format import RecordRules
from commitlake.connectors.formats.rocketmq.rows import row_of
from commitlake.schemas.layouts.boltmq.dialect import BLANK_MAGICS
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.checkpoint import parse_checkpoint
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, HEAD, STORED, Message, parse_message
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE
from commitlake.schemas.layouts.rocketmq.scan import SegmentScanner, examine

_OFFSET = [declared.name for declared in HEAD.fields].index("physical_offset")


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


def _own_offset(head: memoryview) -> int | None:
    return int(HEAD.unpack(head)[_OFFSET]) if len(head) >= HEAD.size else None


RULES = RecordRules(
    examine=examine,
    scanner=SegmentScanner,
    parse=_parse,
    vouches=_vouches,
    row_of=row_of,
    size_of=_size_of,
    is_filler=_is_filler,
    own_offset=_own_offset,
    head_bytes=BLANK.size,
    known_bytes=HEAD.size + V4_SIZE + STORED.size,  # up to the store time; no record is that short
)
