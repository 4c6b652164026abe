"""Rules for one record of JMQ's journal; see `connectors.log_format.format`."""

from __future__ import annotations

from commitlake.connectors.formats.jmq.message_row import to_message_row
from commitlake.connectors.log_format.records import RecordRules
from commitlake.schemas.layouts.jmq.checkpoint import parse_journal_checkpoint
from commitlake.schemas.layouts.jmq.journal import FILLER, HEAD, JournalMessage, Magic, parse_message
from commitlake.schemas.layouts.jmq.scan import JournalScanner, classify_span


def _checkpoint_confirms_flush(checkpoint: bytes, message: JournalMessage, was_clean_shutdown: bool) -> bool:  # noqa: ARG001
    known = parse_journal_checkpoint(checkpoint)
    return known is not None and message.journal_offset + message.size <= known.journal_end


RULES = RecordRules.of_layouts(
    head=HEAD,
    offset_field="journal_offset",
    filler=FILLER,
    filler_magics={Magic.FILLER},
    known_prefix_bytes=HEAD.size,
    examine_span=classify_span,
    make_scanner=JournalScanner,
    parse_message=parse_message,
    checkpoint_confirms=_checkpoint_confirms_flush,
    to_row=to_message_row,
)
