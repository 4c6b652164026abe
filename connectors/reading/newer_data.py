"""Messages of a store that a read misses, because they are outside the folders of the log that are read.

A broker may keep parts of its log in folders that are not read (see `log_folders`), and a copy may lack segments. So
the end of the log that was found is compared with:

1. the folders that can have other parts of the log: those that only a broker.conf in the store names, and a DLedger
   log whose segments the plain log has, too;
2. the last entries of the store's queues and of its newest index, if they are beyond the segment in which the log ends;
3. the store's checkpoint.

Entries within the segment in which the log ends are no sign of another folder: the log lost its end in a crash, or a
copy was made while the broker was running. `verify` reports them.

This module imports neither Arrow nor numpy, so that small processes can use it.
"""

from __future__ import annotations

import datetime
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from commitlake.connectors.log_format.checkpoint_and_config import CHECKPOINT, CheckpointClaim
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.log_folders import find_log_folders, is_begun
from commitlake.connectors.reading.settings_files import read_settings
from commitlake.connectors.reading.unread_warnings import PULL_HINT
from commitlake.schemas import shipped_manifest
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.broker_conf import parse_properties
from commitlake.schemas.layouts.segment_names import parse_queue_folder
from commitlake.schemas.safe_store_files import folders_in, open_file, read_file
from commitlake.schemas.segment_files import files_by_start, written_end
from commitlake.schemas.times import EPOCH, format_iso_time

_MAX_QUEUES = 20_000
"""Number of queues whose last entries are read, about a second's work. If segments are missing, most queues show it."""
_ENTRY_HEAD = struct.Struct(">qi")  # physical offset and size of the record, with which an entry of every format begins


class LogToRead(NamedTuple):
    """Log of a store, with the physical offset and size of each segment that a read covers.

    Attributes:
        broker: name of the store.
        root: the store's folder.
        format: its format.
        segments: physical offset and file size of each segment, in order.
    """

    broker: str
    root: Path
    format: Format
    segments: Sequence[tuple[int, int]]

    @property
    def folder(self) -> Path:
        """The folder of the segments, the first one if they are in several."""
        return self.root / self.format.folder

    @property
    def is_copy(self) -> bool:
        """True if the store is a copy by `commitlake ship`, which copies the newest record with a delay."""
        return (self.root / shipped_manifest.LOG_MANIFEST).exists()


class LogEnd(NamedTuple):
    """End of a log, end of its last segment, and latest store time near the end.

    Attributes:
        end: physical offset after the last record.
        segment_end: physical offset at which the segment ends in which this record is.
        newest_time: the latest store time near the end, ms; None if unknown.
    """

    end: int
    segment_end: int
    newest_time: int | None = None


@dataclass(frozen=True, slots=True)
class OtherLogFolder:
    """Folder with segments of the store's log that are not read.

    Attributes:
        folder: the folder.
        start: physical offset of the first byte of the first of these segments.
        end: physical offset after the data of the last one.
        count: number of these segments; 0 if it is not known.
        problem: why the folder cannot be listed, if it cannot.
    """

    folder: Path
    start: int = 0
    end: int = 0
    count: int = 0
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.folder} may have segments of the log, but {self.problem}"
        segments = format_count(self.count, "segment")
        return f"{self.folder} has {segments} of the log, physical offsets {self.start} to {self.end}"


def find_other_logs(log: LogToRead, start: int | None, end: int) -> list[OtherLogFolder]:
    """Return other folders that contain segments of the same log, which the read does not cover.

    Args:
        log: the log that is read.
        start: physical offset before which nothing is wanted; None to want everything.
        end: physical offset at which it ends.
    """
    _, text = read_settings(log.root, log.broker)
    named = list(log.format.folders.further_log_folders(log.root, log.folder, parse_properties(text)))
    read = find_log_folders(log.root, log.format, log.broker).all
    appended = log.format.folders.appended_log_folders(log.root, log.folder, parse_properties(text))
    # A folder may be named twice: by a setting, and by a link.
    distinct = {os.path.realpath(folder): folder for folder in [*named, *appended]}
    for folder in read:
        distinct.pop(os.path.realpath(folder), None)
    found = (_inspect_log_folder(folder, log, start, end) for folder in distinct.values())
    return [*_find_missing_folders(log, read), *(other for other in found if other is not None)]


def describe_other_log(log: LogToRead, other_log: OtherLogFolder) -> str:
    """Return a sentence that warns of segments in another folder, which the read does not cover."""
    if other_log.problem:
        return f"{log.broker}: {other_log}. Mount its disk, or run as the broker's user. {PULL_HINT}"
    if other_log.folder in log.format.folders.appended_log_folders(log.root, log.folder, {}):
        reason = f"{log.folder} has segments of the same offsets: move the log away that the broker does not use"
    else:
        reason = "a settings file within the store cannot name other folders: pass it as '--broker-conf'"
    return f"{log.broker}: {other_log}, which are not read, because {reason}. {PULL_HINT}"


def _find_missing_folders(log: LogToRead, folders: Sequence[Path]) -> Iterator[OtherLogFolder]:
    """Yield further folders of a log that do not exist, if no gap can show that segments are missing with them.

    A broker creates its segments in turn in each folder. So a folder exists once there are as many segments as folders,
    and if that many are there, a folder without them would leave gaps, which every read reports.
    """
    if len(folders) > len(log.segments) > 0:
        base_offset, size = log.segments[-1]
        if base_offset // max(size, 1) + 1 >= len(folders):
            missing = (folder for folder in folders[1:] if not folder.is_dir())
            yield from (OtherLogFolder(folder, problem="does not exist") for folder in missing)


def _inspect_log_folder(folder: Path, log: LogToRead, start: int | None, end: int) -> OtherLogFolder | None:
    try:
        names = files_by_start(folder)
        # A segment is created in advance, full of zeros. Only one with data is part of the log.
        begun = [base for base, name in names.items() if is_begun(folder / name)]
        if not begun:
            return None
        last_end = begun[-1] + written_end(folder / names[begun[-1]])
    except (FileNotFoundError, NotADirectoryError):
        return None
    # It cannot be told what the folder holds, so it is reported instead of being ignored.
    except OSError:
        return OtherLogFolder(folder, problem="cannot be read by this user")
    ends = dict(zip(begun, [*begun[1:], last_end], strict=True))
    is_longer = last_end > end
    unread = [base for base in begun if not _is_covered(log, base, end) or (base == begun[-1] and is_longer)]
    unread = [base for base in unread if start is None or ends[base] > start]
    return OtherLogFolder(folder, unread[0], ends[unread[-1]], len(unread)) if unread else None


def _is_covered(log: LogToRead, base_offset: int, end: int) -> bool:
    """Return whether the segment that begins at a physical offset is part of the log that is read."""
    return base_offset < end and any(first <= base_offset < first + max(size, 1) for first, size in log.segments)


class RecordedLogEnd(NamedTuple):
    """The end of a store's log as its queues, index files and checkpoint show it.

    A broker may write meanwhile. So this is read first, and compared with the end of a log that was found after it.

    Attributes:
        entry: the queue or index file whose last entry has the largest physical offset, and that offset; None if
            there is no entry.
        claims: claims of the checkpoint.
    """

    entry: tuple[str, int] | None
    claims: Sequence[CheckpointClaim] = ()

    @classmethod
    def read_known_end(cls, log: LogToRead) -> RecordedLogEnd:
        """Read how far queues, index files and checkpoint say that the log goes; unreadable files are ignored."""
        claims: tuple[CheckpointClaim, ...] = ()
        if not log.is_copy:
            with suppress(OSError):
                claims = log.format.small_files.checkpoint_claims(
                    read_file(log.root / CHECKPOINT, trusted_root=log.root)
                )
        return cls(_newest_index_entry(log), claims)

    def newer_data_warning(self, log: LogToRead, end: LogEnd) -> str | None:
        """Return a sentence that warns of messages after the end of the log that is read; None if there are none."""
        # A copy may lack the first record of the next segment, which `ship` copies once it has not changed any more.
        if self.entry is not None and self.entry[1] >= end.segment_end + log.is_copy:
            name, offset = self.entry
            return (
                f"{log.broker}: {name} has an entry of physical offset {offset}, but the log in {log.folder} ends at "
                f"{end.end}: newer messages are in a folder that is not read (storePathCommitLog in broker.conf, or "
                f"DLedger), or this is a copy whose log is older than its queues. {PULL_HINT}"
            )
        for name, value, is_time in self.claims:
            if is_time and end.newest_time is not None and value > end.newest_time:
                return (
                    f"{log.broker}: the checkpoint confirms a message stored at {_format_time_ms(value)} ({name}), "
                    "but the "
                    f"newest one in {log.folder} is of {_format_time_ms(end.newest_time)}: the log has lost its end, "
                    "or "
                    "newer messages are in a folder that is not read. 'commitlake verify' shows more"
                )
            if not is_time and value > end.end:
                return (
                    f"{log.broker}: the checkpoint confirms the log up to physical offset {value} ({name}), but "
                    f"{log.folder} ends at {end.end}: the log has lost its end. 'commitlake verify' shows more"
                )
        return None


def _format_time_ms(ms: int) -> str:
    with suppress(OverflowError):
        return format_iso_time(EPOCH + datetime.timedelta(milliseconds=ms), "milliseconds")
    return f"{ms} ms"


def _newest_index_entry(log: LogToRead) -> tuple[str, int] | None:
    found = [
        (f"{folder}/{topic}/{queue_id}", offset)
        for folder, entry_size in log.format.queues.entry_sizes.items()
        for topic, queue_id in islice(_queue_folders(log.root / folder), _MAX_QUEUES)
        if (offset := _read_last_entry(log.root / folder / topic / str(queue_id), entry_size)) is not None
    ]
    with suppress(OSError):
        found += [each for each in [log.format.indexes.newest_indexed_record(log.root)] if each is not None]
    return max(found, key=lambda each: each[1], default=None)


def _queue_folders(folder: Path) -> Iterator[tuple[str, int]]:
    with suppress(OSError):
        for topic in folders_in(folder):
            numbers = map(parse_queue_folder, folders_in(folder / topic, trusted_root=folder))
            yield from ((topic, number) for number in numbers if number is not None)


def _read_last_entry(folder: Path, entry_size: int) -> int | None:
    """Return the physical offset of the last entry of a queue; None without one."""
    with suppress(OSError):  # deleted meanwhile, or a link: `verify` reports it
        for name in reversed(files_by_start(folder).values()):
            descriptor = open_file(folder / name)
            try:
                offset = _find_last_written_offset(descriptor, entry_size)
            finally:
                os.close(descriptor)
            if offset is not None:
                return offset
    return None


def _find_last_written_offset(descriptor: int, entry_size: int) -> int | None:
    """Return the physical offset in a file's last entry, found by bisection because only zeros follow that entry."""
    low, high = 0, os.fstat(descriptor).st_size // entry_size
    found = None
    # Start at the end, because all files but the newest are full, and one read then gives the answer.
    place = high - 1  # a file that is complete is full
    while low < high:
        head = os.pread(descriptor, _ENTRY_HEAD.size, place * entry_size)
        offset, size = _ENTRY_HEAD.unpack(head) if len(head) == _ENTRY_HEAD.size else (0, 0)
        # Not by the offset, which is 0 for the first record of a log.
        if size > 0:
            low, found = place + 1, offset
        else:
            high = place
        place = (low + high) // 2
    return found
