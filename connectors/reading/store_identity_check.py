"""Checks that a store is still the one that was archived, and that a segment was not truncated during a read.

A broker that lost its disk, or a new one under an old name, starts its log again at offset 0. If its archive continued
from the old end, it would skip the new records before that offset, and mix two logs under one key. So the last archived
record must still be at its offset, unless the broker has deleted it because of its age.

A read reports the missing part of a truncated file as a bad range. That is correct for a file that was truncated before
the read was planned. A file that is truncated between the plan and the read may be whole again in a minute, or a
recovering broker may write it again from there. So a caller must not record such a range as read.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

import numpy as np

from commitlake.connectors.log_format.files import Segment
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.schemas.errors import ExitCode

_DIGEST_SIZE = 16


class StoreReplacedError(StoreError):
    """Error for a store whose log differs from the one archived under its name."""

    exit_code = ExitCode.REFUSED


def compute_record_digest(record: bytes | memoryview) -> str:
    """Return the hexadecimal digest of a record's bytes."""
    return hashlib.blake2b(record, digest_size=_DIGEST_SIZE).hexdigest()


def record_digest(store: Store, physical_offset: int) -> tuple[int, str] | None:
    """Return size and digest (hex) of the record at an offset, or None if the store does not contain all of it."""
    segment = _segment_at(store, physical_offset)
    if segment is None:
        return None
    position, rules = physical_offset - segment.base_offset, store.format.record_rules
    try:
        with OpenSegment(segment.path) as file:
            head = np.empty(rules.head_bytes, np.uint8)
            if file.read_into(head, position) < len(head):
                return None
            size = rules.size_of(head.data)
            # The head may be anything in a replaced log; a size is compared with the file before memory is taken for
            # it.
            if not rules.head_bytes <= size <= segment.file_size - position:
                return None
            record = np.empty(size, np.uint8)
            if file.read_into(record, position) < size:
                return None
    except FileNotFoundError:
        return None
    return size, compute_record_digest(record.data)


def _segment_at(store: Store, physical_offset: int) -> Segment | None:
    for segment in store.segments:
        if segment.base_offset <= physical_offset < segment.base_offset + segment.file_size:
            return segment
    return None


def check_continuity(store: Store, archived_end: int, physical_offset: int, size: int, digest: str) -> None:
    """Check that the last archived record is still in the log unchanged, or was deleted with all older segments.

    Args:
        store: the store as it is now.
        archived_end: physical offset up to which the store has been archived.
        physical_offset: offset of the last archived record.
        size: size of that record.
        digest: digest of that record.

    Raises:
        StoreReplacedError: if the record differs or is missing; the message says what to do.
    """
    log_end = store.segments[-1].base_offset + store.segments[-1].file_size
    # The broker has deleted the record because of its age, so there is nothing to compare.
    if physical_offset < store.segments[0].base_offset:
        return  # expired; a gap is reported elsewhere
    # A log never becomes shorter than what was archived, except after a loss, and then new messages get old offsets.
    if log_end < archived_end:
        found = f"a log that ends at {log_end}"
    elif record_digest(store, physical_offset) == (size, digest):
        return
    else:
        found = "another record, or none"
    raise StoreReplacedError(
        f"store {store.broker!r} ({store.root}) is not the one that was archived under this name: expected the last "
        f"archived record, of {size} bytes, at physical offset {physical_offset}, found {found}. If the broker was set "
        "up again, archive it under another name (--broker NAME)"
    )


def check_not_truncated(split: Split) -> None:
    """Raise an error if the file of a split was truncated. A deleted file is no error here: it becomes a gap.

    Raises:
        StoreError: if it is shorter.
    """
    if split.missing or split.file_end <= split.base_offset:
        return
    size = split.file_end - split.base_offset
    with suppress(FileNotFoundError), OpenSegment(split.path) as file:
        if file.read_into(np.empty(1, np.uint8), size - 1) == 0:
            raise StoreError(
                f"{split.path} is now shorter than the {size} bytes that it had when this run began: nothing of this "
                "commit was archived. If a broker is recovering there, run the command again when it has finished",
                exit_code=ExitCode.FAILED,
            )
