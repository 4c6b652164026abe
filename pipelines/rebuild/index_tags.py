"""Detection of brokers that enter TAGS into their index, from entries of the newest IndexFiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby

from commitlake.connectors.formats.engine.indexed_files import StoreFiles, read_all
from commitlake.connectors.formats.engine.log_records import LogRecords
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    Geometry,
    IndexFileEntry,
    key_hash,
    parse_entry,
    parse_header,
    tags_key,
)

_LOOKED_AT = 512


def index_has_tags(
    files: StoreFiles, index_files: Sequence[str], geometry: Geometry, records: LogRecords
) -> bool | None:
    """Return whether tags are in the index, or None if the files do not show it.

    Args:
        index_files: paths of its IndexFiles, oldest first.
        geometry: their numbers of slots and entries.
    """
    for path in reversed(index_files):
        groups = list(_by_record(_last_entries(files, path, geometry)))
        # Some keys of the first and the last record may be in another file, or were not read.
        for offset, hashes in reversed(groups[1:-1]):
            message = records.at(offset)
            if message is not None and (tags := dict(message.properties).get("TAGS")):
                return key_hash(message.topic, tags_key(tags)) in hashes
    return None


def _by_record(entries: list[IndexFileEntry]) -> Iterator[tuple[int, set[int]]]:
    for offset, group in groupby(entries, key=lambda entry: entry.physical_offset):
        yield offset, {entry.key_hash for entry in group}


def _last_entries(files: StoreFiles, path: str, geometry: Geometry) -> list[IndexFileEntry]:
    """Return the newest entries of a file, in order; none if the file is not readable."""
    try:
        with closing(files.open(path)) as file:
            count = min(parse_header(read_all(file, 0, HEADER.size).tobytes()).index_count, geometry.entries)
            first = max(1, count - _LOOKED_AT)
            start = geometry.entry_position(first)
            data = read_all(file, start, start + ENTRY.size * max(0, count - first)).tobytes()
    except (OSError, LayoutError):
        return []
    whole = len(data) - len(data) % ENTRY.size
    return [parse_entry(data, at) for at in range(0, whole, ENTRY.size)]
