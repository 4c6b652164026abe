"""Folders besides `commitlog` with parts of a broker's log, and the newest record in a store's indexes.

    storePathCommitLog            one folder, or several with commas: a broker creates its segments in turn in each
    readOnlyCommitLogStorePaths   further folders of the same log, in which it creates no segments any more
    dledger-<self>/data           segments of a DLedger log, in the folder of storePathRootDir
    storePathDLedgerCommitLog     the same, elsewhere

Source: MessageStoreConfig, MultiPathMappedFileQueue and DLedgerConfig of RocketMQ 4.9.7 and 5.5.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import indexfile
from commitlake.schemas.safe_store_files import files_in, folders_in, open_file

DLEDGER = "dledger-"
"""Prefix of the names of the folders that DLedger has in a store."""
_DATA, _INDEX = "data", "index"
_LOGS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
_DLEDGER_LOG = "storePathDLedgerCommitLog"
_SEPARATOR = re.compile(r",|:(?=/)")  # the comma is the default of rocketmq.broker.multiPathSplitter


def further_log_folders(root: Path, log_folder: Path, settings: Mapping[str, str]) -> Iterator[Path]:
    """Yield the further folders of a log according to the broker's settings, each once.

    Args:
        root: the store's folder.
        log_folder: the folder `commitlog` in it.
        settings: the settings of a broker.conf; empty without one. Those of another store, as of a copy, are not used.
    """
    folders = _set_log_folders(settings)
    if _is_of_store(settings, folders, root, log_folder):
        known = {os.path.realpath(log_folder)}
        for folder in folders:
            if (place := os.path.realpath(folder)) not in known:
                known.add(place)
                yield folder


def dledger_folders(root: Path) -> list[Path]:
    """Return the folders that DLedger has in a store.

    Raises:
        UnsafeFileError: for a link in place of one.
    """
    return [root / name for name in folders_in(root, lambda name: name.startswith(DLEDGER))]


def has_dledger_data(folder: Path) -> bool:
    """Return whether a folder of DLedger has the segments, which may be elsewhere (storePathDLedgerCommitLog).

    Raises:
        UnsafeFileError: for a link in place of their folder.
    """
    return bool(folders_in(folder, _DATA.__eq__))


def appended_log_folders(root: Path, log_folder: Path, settings: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders of DLedger logs, which go on where a plain log ended; arguments as of `further_log_folders`.

    Raises:
        UnsafeFileError: for a link in place of a folder in the store.
    """
    folders = dledger_folders(root)
    own = root / f"{DLEDGER}{settings.get('dLegerSelfId', '')}"
    yield from (folder / _DATA for folder in ([own] if own in folders else folders) if has_dledger_data(folder))
    if _is_of_store(settings, _set_log_folders(settings), root, log_folder):
        yield from map(Path, _split_paths(settings.get(_DLEDGER_LOG, "")))


def _set_log_folders(settings: Mapping[str, str]) -> list[Path]:
    return [Path(path) for name in _LOGS for path in _split_paths(settings.get(name, ""))]


def _is_of_store(settings: Mapping[str, str], folders: list[Path], root: Path, log_folder: Path) -> bool:
    """Return whether settings are those of the broker with this store."""
    main = settings.get("storePathRootDir", "")
    return any(_is_same_folder(folder, log_folder) for folder in folders) or bool(
        main and _is_same_folder(Path(main), root)
    )


def read_newest_indexed_record(root: Path) -> tuple[str, int] | None:
    """Return the newest IndexFile with entries, and the physical offset of its last record; None if there is none.

    Args:
        root: the store's folder.

    Raises:
        OSError: if a file cannot be read.
    """
    folder = root / _INDEX
    for name in reversed(files_in(folder, str.isdecimal)):
        with os.fdopen(open_file(folder / name, trusted_root=folder), "rb", buffering=0) as file, suppress(LayoutError):
            header = indexfile.parse_header(file.read(indexfile.HEADER.size))
            if header.index_count > 1:
                return f"{_INDEX}/{name}", header.end_physical_offset
    return None


def _split_paths(text: str) -> list[str]:
    return [path.strip() for path in _SEPARATOR.split(text) if path.strip()]


def _is_same_folder(folder: Path, other_folder: Path) -> bool:
    return os.path.realpath(folder) == os.path.realpath(other_folder)
