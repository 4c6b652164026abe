"""Detection of brokers that enter TAGS into their index, from entries of the newest IndexFiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import Message, parse_message
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    Geometry,
    IndexFileEntry,
    key_hash,
    parse_entry,
    parse_header,
    tags_key,
)
from commitlake.schemas.layouts.segments import is_segment_name
from commitlake.schemas.store_files import files_in, open_file

_LOOKED_AT = 512
_MAX_RECORD_BYTES = 8 << 20


def index_has_tags(root: Path, index_files: list[Path], geometry: Geometry) -> bool | None:
    """Return whether tags are in the index, or None if the files do not show it.

    Args:
        root: the store's folder.
        index_files: its IndexFiles, oldest first.
        geometry: their numbers of slots and entries.
    """
    log = root / "commitlog"
    segments = sorted((int(name), log / name) for name in files_in(log, is_segment_name))
    for path in reversed(index_files):
        groups = list(_by_record(_last_entries(path, geometry)))
        # Some keys of the first and the last record may be in another file, or were not read.
        for offset, hashes in reversed(groups[1:-1]):
            message = _message_at(segments, offset)
            if message is not None and (tags := dict(message.properties).get("TAGS")):
                return key_hash(message.topic, tags_key(tags)) in hashes
    return None


def _by_record(entries: list[IndexFileEntry]) -> Iterator[tuple[int, set[int]]]:
    for offset, group in groupby(entries, key=lambda entry: entry.physical_offset):
        yield offset, {entry.key_hash for entry in group}


def _last_entries(path: Path, geometry: Geometry) -> list[IndexFileEntry]:
    """Return the newest entries of a file, in order; none if the file is not readable."""
    try:
        with os.fdopen(open_file(path), "rb") as file:
            count = min(parse_header(file.read(64)).index_count, geometry.entries)
            first = max(1, count - _LOOKED_AT)
            file.seek(geometry.entry_position(first))
            data = file.read(ENTRY.size * max(0, count - first))
    except (OSError, LayoutError):
        return []
    whole = len(data) - len(data) % ENTRY.size
    return [parse_entry(data, at) for at in range(0, whole, ENTRY.size)]


def _message_at(segments: list[tuple[int, Path]], offset: int) -> Message | None:
    for base, path in reversed(segments):
        if 0 <= base <= offset:
            try:
                with os.fdopen(open_file(path), "rb") as file:
                    file.seek(offset - base)
                    parsed = parse_message(file.read(_MAX_RECORD_BYTES))
            except (OSError, LayoutError):
                return None
            return parsed[0] if parsed is not None and parsed[0].physical_offset == offset else None
    return None
