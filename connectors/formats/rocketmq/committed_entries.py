"""The last entry of a DLedger log that its group has committed.

A leader appends an entry before the other members of its group have it. Only a majority commits it; another leader may
replace it until then. A broker writes the number of the last committed entry to `dledger-<self>/checkpoint` every three
seconds and when it stops, and the files in `dledger-<self>/index` tell where each entry is:

    committedIndex=1499
    endIndex=1499

Source: DLedgerMmapFileStore of DLedger 0.3.1.2 (RocketMQ 5.5.0).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from commitlake.connectors.formats.rocketmq.log_folders import dledger_folders, has_dledger_data
from commitlake.schemas.layouts.integer_parsing import parse_int64
from commitlake.schemas.layouts.rocketmq.broker_conf import parse_properties
from commitlake.schemas.layouts.rocketmq.dledger import ENTRY_HEADER, ENTRY_MAGIC, INDEX_ENTRY
from commitlake.schemas.safe_store_files import open_file, read_file
from commitlake.schemas.segment_files import files_by_start

_CHECKPOINTS = ("checkpoint", "checkpoint.bak")
_MAX_BYTES = 4096
_ENCODING = "iso-8859-1"


def find_last_committed(root: Path, log_folders: Collection[Path]) -> tuple[int, int] | None:
    """Return physical offset and end of the last committed record of a DLedger log.

    Args:
        root: the store's folder.
        log_folders: the folders of its segments, one of them DLedger's.

    Returns:
        None if it is not known; (0, 0) if nothing is committed.
    """
    with suppress(OSError):
        for folder in dledger_folders(root):
            # The data may be elsewhere, the checkpoint and the index are always here.
            if folder / "data" in log_folders or not has_dledger_data(folder):
                return _find_entry(folder, _read_committed_index(folder))
    return None


def _read_committed_index(folder: Path) -> int | None:
    for name in _CHECKPOINTS:
        with suppress(OSError):
            text = read_file(folder / name, trusted_root=folder, limit=_MAX_BYTES).decode(_ENCODING)
            if (index := parse_int64(parse_properties(text).get("committedIndex"))) is not None:
                return index
    return None


def _find_entry(folder: Path, entry_index: int | None) -> tuple[int, int] | None:
    """Return physical offset and end of the record of an entry, of which the index has the position and the size."""
    if entry_index is None:
        return None
    if entry_index < 0:
        return 0, 0
    position = entry_index * INDEX_ENTRY.size
    files = files_by_start(folder / "index", trusted_root=folder)
    start = max((start for start in files if start <= position), default=None)
    if start is None:
        return None
    descriptor = open_file(folder / "index" / files[start], trusted_root=folder)
    try:
        data = os.pread(descriptor, INDEX_ENTRY.size, position - start)
    finally:
        os.close(descriptor)
    if len(data) < INDEX_ENTRY.size:
        return None
    magic, offset, size, own_index, _ = INDEX_ENTRY.unpack(data)
    if (magic, own_index) != (ENTRY_MAGIC, entry_index):
        return None
    return offset + ENTRY_HEADER.size, offset + size
