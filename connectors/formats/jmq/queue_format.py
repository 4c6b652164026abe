"""Description of JMQ's queue files, for `connectors.reading.index_lookups`."""

from __future__ import annotations

import re

from commitlake.connectors.log_format.queues import AFTER_ALL, QueueFormat
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import MIN_RECORD_SIZE
from commitlake.schemas.layouts.jmq.queue_file import ENTRY, FOLDER, parse_entry


def _entry_sort_key(data: bytes) -> int:
    """Return the journal offset in an entry, by which entries are sorted; an invalid entry sorts after all others."""
    if len(data) < ENTRY.size:
        return AFTER_ALL
    try:
        entry = parse_entry(data)
    except LayoutError:
        return AFTER_ALL
    return AFTER_ALL if entry is None else entry.journal_offset


QUEUE_FILES = QueueFormat(
    name="queue file",
    folder=FOLDER,
    entry=ENTRY,
    offset_field="journal_offset",
    place_of=_entry_sort_key,
    min_record_size=MIN_RECORD_SIZE,
    # Any text that can be a folder's name, but without U+FFFD, which stands for invalid bytes.
    topics=re.compile(r"(?!\.{1,2}$)[^/\0\ufffd]+"),
)
