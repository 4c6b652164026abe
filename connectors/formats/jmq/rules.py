"""The rules for one record of JMQ's journal; see `connectors.formats.format`."""

from __future__ import annotations

from commitlake.connectors.formats.format import RecordRules
from commitlake.connectors.formats.jmq.rows import row_of
from commitlake.schemas.layouts.jmq.checkpoint import parse_journal_checkpoint
from commitlake.schemas.layouts.jmq.journal import FILLER, HEAD, JournalMessage, Magic, parse_message
from commitlake.schemas.layouts.jmq.scan import JournalScanner, examine

_OFFSET = [declared.name for declared in HEAD.fields].index("journal_offset")


def _parse(data: memoryview) -> tuple[JournalMessage, int] | None:
    return parse_message(data, verify_crc=False)


def _vouches(checkpoint: bytes, message: JournalMessage, was_closed: bool) -> bool:  # noqa: ARG001
    known = parse_journal_checkpoint(checkpoint)
    return known is not None and message.journal_offset + message.size <= known.journal_end


def _size_of(head: memoryview) -> int:
    return int(FILLER.unpack(head)[0])


def _is_filler(head: memoryview) -> bool:
    return bool(FILLER.unpack(head)[1] == Magic.FILLER)


def _own_offset(head: memoryview) -> int | None:
    return int(HEAD.unpack(head)[_OFFSET]) if len(head) >= HEAD.size else None


RULES = RecordRules(
    examine=examine,
    scanner=JournalScanner,
    parse=_parse,
    vouches=_vouches,
    row_of=row_of,
    size_of=_size_of,
    is_filler=_is_filler,
    own_offset=_own_offset,
    head_bytes=FILLER.size,
    known_bytes=HEAD.size,
)
