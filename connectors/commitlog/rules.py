"""What is known of the CommitLog, in both its dialects, without its kernel; see `layouts`."""

from __future__ import annotations

from connectors.commitlog.layouts import LayoutRules
from connectors.commitlog.records import row_of
from schemas.layouts.commitlog import BLANK, HEAD, STORED, Message, parse_message
from schemas.layouts.dialect import BLANK_MAGICS
from schemas.layouts.hosts import V4_SIZE
from schemas.layouts.scan import SegmentScanner, examine


def _parse(data: memoryview) -> tuple[Message, int] | None:
    return parse_message(data, verify_crc=False)


def _size_of(head: memoryview) -> int:
    return int(BLANK.unpack(head)[0])


def _is_filler(head: memoryview) -> bool:
    return BLANK.unpack(head)[1] in BLANK_MAGICS


RULES = LayoutRules(
    examine=examine,
    scanner=SegmentScanner,
    parse=_parse,
    row_of=row_of,
    size_of=_size_of,
    is_filler=_is_filler,
    head_bytes=BLANK.size,
    known_bytes=HEAD.size + V4_SIZE + STORED.size,  # up to the store time; no record is that short
)
