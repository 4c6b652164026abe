"""Folders of a store's log, and the segment files in them.

A log is in the folder `commitlog` or `journal` of its store. A RocketMQ broker with several folders in
`storePathCommitLog` creates its segments in turn in each (RIP-7), and its settings are the only record of them. Only
`--broker-conf` and the settings files above the store can name further folders: whoever writes a store, or a copy of
it, must not be able to make a job read any other folder. A broker that was switched to DLedger goes on in the folder
`dledger-<self>/data` of the store, at the next segment.

This module imports neither Arrow nor numpy, so that small processes can use it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.settings_files import read_settings
from commitlake.schemas.layouts.rocketmq.broker_conf import parse_properties
from commitlake.schemas.safe_store_files import UnsafeFileError, open_file
from commitlake.schemas.segment_files import files_by_start

_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LogFolders:
    """Folders of a store's log; those besides its own need not exist.

    Attributes:
        plain: its own folder, and further ones that the broker's settings name.
        appended: folders in which the log goes on after these.
    """

    plain: Sequence[Path]
    appended: Sequence[Path]

    @property
    def all(self) -> list[Path]:
        """The folders, the store's own first."""
        return [*self.plain, *self.appended]


def find_log_folders(root: Path, log_format: Format, broker: str) -> LogFolders:
    """Return the folders of a store's log.

    Args:
        root: the store's folder.
        log_format: the format of its log.
        broker: the store's name.

    Raises:
        UnsafeFileError: as `find_segment_files`.
        OSError: if a folder exists and cannot be read.
    """
    own = root / log_format.folder
    _, text = read_settings(root, broker, within_store=False)
    settings = parse_properties(text)
    plain = [own, *log_format.folders.further_log_folders(root, own, settings)]
    appended = list(log_format.folders.appended_log_folders(root, own, settings))
    return LogFolders(plain, [folder for folder in appended if _goes_on_after(folder, plain)])


def _goes_on_after(folder: Path, plain_folders: Sequence[Path]) -> bool:
    """Return whether the segments of an appended log follow those of the plain log.

    A broker that was switched back to a plain log leaves the appended one as it was, and goes on in the plain one.
    """
    start = next((base for base, path in find_segment_files([folder]).items() if is_begun(path)), None)
    if start is None:
        return False
    return not any(base >= start and is_begun(path) for base, path in find_segment_files(plain_folders).items())


def find_segment_files(folders: Iterable[Path]) -> dict[int, Path]:
    """Return the segment files of a log in several folders, by their base offsets, in order.

    After a crash, a broker may have created a segment in two folders (apache/rocketmq#8859). The one with data is used.

    Raises:
        UnsafeFileError: for a link or a device with the name of a segment, or two segments of one offset with data.
        OSError: if a folder exists and cannot be read.
    """
    found: dict[int, Path] = {}
    for folder in folders:
        for base_offset, name in files_by_start(folder).items():
            known = found.get(base_offset)
            found[base_offset] = folder / name if known is None else _choose_file(known, folder / name)
    return dict(sorted(found.items()))


def is_begun(path: Path) -> bool:
    """Return whether a segment has data; brokers create segments in advance, full of zeros."""
    descriptor = open_file(path)
    try:
        return any(os.pread(descriptor, _HEAD_BYTES, 0))
    finally:
        os.close(descriptor)


def _choose_file(path: Path, other_path: Path) -> Path:
    if not is_begun(other_path):
        return path
    if is_begun(path):
        raise UnsafeFileError.of(
            str(other_path),
            "data of this segment in one folder of the log",
            f"also data in {path}: move away the copy that the broker does not use",
            errno.EEXIST,
        )
    return other_path
