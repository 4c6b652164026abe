"""Queue files of a JMQ store, read and built column by column; see `queue_layouts`."""

from __future__ import annotations

from typing import Any

import numpy as np

from commitlake.connectors.formats.jmq.queue_format import QUEUE_FILES
from commitlake.connectors.log_format.queues import QueueEntries, QueueLayout
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.crc import crc32
from commitlake.schemas.layouts.jmq.queue_file import CRC_POSITION, DEFAULT_FILE_SIZE, ENTRY

_PLACE = {"journal_offset": "physical_offset"}
ENTRY_DTYPE = np.dtype([(_PLACE.get(name, name), code) for name, code in ENTRY.numpy_fields])
_SIZE = ENTRY.size


@compiled
def _compute_crcs(data: Array, crcs: Array) -> None:
    """Compute the CRC-32 of the bytes that each entry's CRC covers.

    Args:
        data: uint8, entries, joined.
        crcs: uint64 out, one for each.
    """
    for row in range(len(crcs)):
        crcs[row] = crc32(data, row * _SIZE, CRC_POSITION)


def _entry_crcs(entries: Array) -> Array:
    crcs = np.empty(len(entries), np.uint64)
    _compute_crcs(np.ascontiguousarray(entries).view(np.uint8), crcs)
    return crcs


def written_entry_mask(entries: Array) -> Array:
    """Return a mask of the entries with a valid CRC; entries of zeros have none."""
    written: Array = entries["entry_crc"] == _entry_crcs(entries)
    return written


def lost_entry_mask(entries: Array) -> Array:
    """Return a mask of the entries that only fill the queue offset of a message that the journal lost."""
    lost: Array = (entries["size"] == 0) & written_entry_mask(entries)
    return lost


def to_binary_entries(queue_entries: QueueEntries) -> Array:
    """Convert entries given as columns to a queue's binary entries."""
    return make_entries(queue_entries.physical_offset, queue_entries.size)


def make_entries(offsets: Array, sizes: Array) -> Array:
    """Return the binary entries for records at these offsets and with these sizes.

    Args:
        offsets: int64, journal offset of each record.
        sizes: int32, bytes; 0 for a lost message.
    """
    entries = np.zeros(len(offsets), ENTRY_DTYPE)
    entries["physical_offset"] = offsets
    entries["size"] = sizes
    entries["entry_crc"] = _entry_crcs(entries)
    return entries


def _describe_entry(entry: Any) -> str:
    return f"offset {entry['physical_offset']}, {entry['size']} bytes, CRC {entry['entry_crc']:08x}"


QUEUES = QueueLayout(
    folder=QUEUE_FILES.folder,
    topics=QUEUE_FILES.topics,
    dtype=ENTRY_DTYPE,
    code_field=None,
    default_file_size=DEFAULT_FILE_SIZE,
    is_aligned=False,
    is_written=written_entry_mask,
    is_filler=lost_entry_mask,
    refuses_other_names=False,
    fills_gaps=True,
    to_entries=to_binary_entries,
    words=_describe_entry,
)
