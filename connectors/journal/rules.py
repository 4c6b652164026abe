"""What is known of JMQ's journal without its kernel; see `connectors.commitlog.layouts`."""

from __future__ import annotations

from connectors.commitlog.layouts import LayoutRules
from connectors.journal.rows import row_of
from schemas.layouts.jmq_checkpoint import parse_journal_checkpoint
from schemas.layouts.journal import FILLER, HEAD, JournalMessage, Magic, parse_message
from schemas.layouts.journal_scan import JournalScanner, examine


def _parse(data: memoryview) -> tuple[JournalMessage, int] | None:
    return parse_message(data, verify_crc=False)


def _vouches(checkpoint: bytes, message: JournalMessage, was_closed: bool) -> bool:  # noqa: ARG001
    known = parse_journal_checkpoint(checkpoint)
    return known is not None and message.journal_offset + message.size <= known.journal_end


def _size_of(head: memoryview) -> int:
    return int(FILLER.unpack(head)[0])


def _is_filler(head: memoryview) -> bool:
    return bool(FILLER.unpack(head)[1] == Magic.FILLER)


RULES = LayoutRules(
    examine=examine,
    scanner=JournalScanner,
    parse=_parse,
    vouches=_vouches,
    row_of=row_of,
    size_of=_size_of,
    is_filler=_is_filler,
    head_bytes=FILLER.size,
    known_bytes=HEAD.size,
)
