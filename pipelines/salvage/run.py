"""The entry point of a salvage: writes every segment to another folder, and a list of damaged ranges.

The records that ConsumeQueues have after the end of the log are counted: they were lost in a crash, or overwritten with
zeros. An end of zeros looks like space that was never written, so only the queues prove that there were records.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from commitlake.connectors.atomic_files import write_synced
from commitlake.connectors.checksums import crc_of_parts
from commitlake.connectors.formats.queue_walking import walk_queue_folders
from commitlake.connectors.formats.rocketmq.consume_queues import ENTRY_DTYPE, written_entry_mask
from commitlake.connectors.log_format.files import Segment, StoreFiles
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.index_files import read_range
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.files.shipped_stores import read_shipped_manifest, resolve_filesystem
from commitlake.connectors.reading.files.store_files import open_small_files, open_store_files, store_folder_of_log
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.segment_walk import WalkEnd, walk_records
from commitlake.connectors.reading.snapshots import LogTailKind, StoreRange, log_range, segment_ranges
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store, refresh_store, segment_size, segment_sizes
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.salvage.segments import Damage, SegmentSalvaged, SegmentTask, salvage_segment
from commitlake.pipelines.verify.store_view import ABORT, is_locked
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.layouts.segment_names import is_segment_name
from commitlake.schemas.safe_store_files import (
    MAX_SMALL_FILE_BYTES,
    UnsafeFileError,
    check_folder,
    check_own_folder,
    create_file,
    files_in,
    make_folders,
    read_file,
    read_json,
    remove_file,
    remove_tree,
    sync_folder,
)
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, Manifest

DROPPED = "dropped"
UNPROVEN = "unproven_end"
"""The fault of complete records whose last bytes may not have been written."""
_WINDOW_BYTES = 4 << 20
_FOLDER = "consumequeue"
_READ_ENTRIES = 1 << 16
MAX_COUNTED = 1 << 20
"""Number of records after which no more are counted."""


def find_dropped_tail(store: Store, store_range: StoreRange) -> tuple[list[Damage], int]:
    """Return the ranges with data after a log's end, and the number of records with a correct CRC in them.

    Args:
        store: from `find_stores`.
        store_range: the log's range, from `take_snapshot`.
    """
    if store_range.tail is not LogTailKind.TORN:
        return [], 0
    end = store_range.end + store_range.tail_bytes
    damages: list[Damage] = []
    records = 0
    for segment, size in zip(store.segments, segment_sizes(store), strict=True):
        base = segment.base_offset
        start, stop = max(store_range.end, base), min(end, base + segment.file_size)
        if start >= stop:
            continue
        file_end = base + segment.file_size
        split = Split(store.broker, segment.path, base, start, stop, base + size, file_end, store.format)
        with OpenSegment(segment.path) as file:
            for step in walk_records(file, split, _WINDOW_BYTES, DEFAULT_MAX_RECORD_BYTES, WalkEnd()):
                records += step.parts.shape[1]
                starts = (step.origin + step.parts[h.START]).tolist()
                ends = (step.origin + step.parts[h.PROPERTIES] + step.parts[h.PROPERTIES_LENGTH]).tolist()
                damages += [Damage(*edges, UNPROVEN, DROPPED) for edges in zip(starts, ends, strict=True)]
                damages += [Damage(bad.start, bad.end, bad.fault.value, DROPPED) for bad in step.bad]
    return sorted(damages, key=lambda damage: damage.start), records


CONFIG, DAMAGES, MOVED = "config", "salvage-damages.jsonl", "salvage-moved.jsonl"
_MAX_MISSING = 1 << 16
"""Largest number of missing segments, since a segment is written for each."""
_WORK, _SUMMARY = ".salvage", "salvage.json"


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """Result of a salvage: what was kept, and what was damaged.

    Attributes:
        out: the output folder.
        bytes: bytes of the log.
        segments: number of segments that were written.
        records: number of intact records.
        damages: number of ranges without an intact record.
        damaged_bytes: total size of these ranges, bytes.
        moved: number of records that had to move to another offset.
        dropped: number of records after the log's end that are left out: their CRC is right, but nothing proves that
            their last bytes were written.
        lost: number of records that the store's queues have after the log's end; 0 for a store that a broker has open,
            and for a copy of one, which has the file `abort`.
    """

    out: Path
    bytes: int
    segments: int
    records: int
    damages: int
    damaged_bytes: int
    moved: int
    dropped: int
    lost: int = 0


def salvage_store(
    store: Store,
    output_folder: Path,
    *,
    runner: Runner = HERE,
    advance: Callable[[int], None] | None = None,
) -> SalvageResult:
    """Write a clean copy of a store's log, without damage, and a copy of its `config`.

    If an earlier run has salvaged the same store, nothing is done, so that later steps can be repeated.

    Args:
        store: from `find_stores`; it is not changed.
        output_folder: the folder that receives `commitlog`.
        runner: runs the tasks; workers on other machines need the same folders.
        advance: called with the number of bytes of log that another task has written.

    Raises:
        UsageError: for a folder that has another log already, and for segments of several sizes.
        UnsafeFileError: for a link, or anything else that is not a regular file, in the store or in the folder.
    """
    if os.path.lexists(output_folder / store.format.folder):
        return _read_earlier_result(store, output_folder)
    with open_small_files(store.root) as root:
        config, is_live, was_aborted = _read_config_files(root), is_locked(root), os.path.lexists(root / ABORT)
    files = open_store_files(store_folder_of_log(store.root))
    if store.is_remote:  # see `store_view` for the order
        was_aborted = was_aborted or bool(files.files_in("", ABORT.__eq__))
        store = refresh_store(store)
    manifest = _read_manifest(store)
    source = _log_fingerprint(store, manifest)  # before the log is read, so that it does not describe later bytes
    work = output_folder / _WORK
    if check_own_folder(work):
        # An earlier run was killed before it renamed the log; its segments may be incomplete.
        remove_tree(work)
    make_folders(work / store.format.folder, trusted_root=output_folder)
    found = log_range(store, is_live=is_live)
    tasks = _make_segment_tasks(store, found, work / store.format.folder)
    done: dict[int, SegmentSalvaged] = {}
    for number, result in runner.run(salvage_segment, tasks):
        done[number] = result
        if advance is not None:
            advance(tasks[number].split.size)
    # Only now, because the time of a filler comes from a neighbour that another task has read.
    _rewrite_empty_segments(tasks, done)
    in_order = [done[number] for number in range(len(tasks))]
    tail, dropped = find_dropped_tail(store, found)
    # A broker that is running writes log and queues meanwhile; a copy of its store has `abort`. Without `abort`, a copy
    # may still have an entry of the newest record before the record itself.
    is_copy = manifest is not None
    is_running = is_live or (is_copy and was_aborted)
    end = max([found.end, *(damage.end for damage in tail)])
    lost = 0 if is_running else count_records_after_log_end(files, end + is_copy)
    damages = [*(damage for each in in_order for damage in each.damages), *tail]
    moved = [pair for each in in_order for pair in each.moved]
    _write_json_lines(output_folder / DAMAGES, (asdict(damage) for damage in damages))
    with suppress(FileNotFoundError):
        remove_file(output_folder / MOVED)  # of an earlier run that was killed
    if moved:
        _write_json_lines(output_folder / MOVED, ({"before": before, "now": now} for before, now in moved))
    for name, data in config.items():
        write_synced(output_folder / CONFIG / name, data, trusted_root=output_folder)
    salvaged = SalvageResult(
        output_folder,
        sum(task.split.size for task in tasks),
        len(tasks),
        sum(each.records for each in in_order),
        len(damages),
        sum(damage.end - damage.start for damage in damages),
        len(moved),
        dropped,
        lost,
    )
    # All files first: the name of the log, given last, says that everything else is complete.
    sync_folder(work / store.format.folder)
    document = source | {"salvaged": _to_count_columns(salvaged)}
    write_synced(output_folder / _SUMMARY, json.dumps(document).encode(), trusted_root=output_folder)
    (work / store.format.folder).rename(output_folder / store.format.folder)
    sync_folder(output_folder)
    work.rmdir()
    return salvaged


def _read_manifest(store: Store) -> Manifest | None:
    """Return the log's manifest of a shipped copy; None if the store is no such copy."""
    filesystem, root = resolve_filesystem(store_folder_of_log(store.root))
    return read_shipped_manifest(filesystem, root, LOG_MANIFEST)


def _log_fingerprint(store: Store, manifest: Manifest | None) -> dict[str, Any]:
    """Return data that identify a log's content: its path, and its segments' offsets, sizes and modification times.

    For a copy in an object store or HDFS, it has the number and the CRC-32 of each segment's shipped bytes instead of a
    time, because the newest segment has its full size from the beginning.
    """
    # The time of a file in an object store is that of its upload, and may differ for equal bytes.
    if store.is_remote:
        return {"log": store.root, "segments": [_shipped_state(manifest, segment) for segment in store.segments]}
    files = [
        [segment.base_offset, segment.file_size, Path(segment.path).lstat().st_mtime_ns] for segment in store.segments
    ]
    return {"log": str(Path(store.root).resolve()), "segments": files}


def _shipped_state(manifest: Manifest | None, segment: Segment) -> list[int]:
    """Return a segment's base offset and file size, and the number and CRC-32 of its bytes in a shipped copy."""
    name = "/".join(segment.path.rsplit("/", 2)[-2:])
    entry = manifest.files.get(name) if manifest is not None else None
    if entry is None:
        return [segment.base_offset, segment.file_size, 0, 0]
    crc = crc_of_parts(entry.parts) if entry.crc is None else entry.crc
    return [segment.base_offset, segment.file_size, entry.shipped_bytes, crc]


def _to_count_columns(salvaged: SalvageResult) -> dict[str, int]:
    return {name: value for name, value in asdict(salvaged).items() if name != "out"}


def _read_earlier_result(store: Store, output_folder: Path) -> SalvageResult:
    """Return the result of an earlier salvage of the same log into a folder; raise an error if it holds another one."""
    try:
        check_folder(output_folder / store.format.folder)
        document = read_json(output_folder / _SUMMARY)
        salvaged = SalvageResult(output_folder, **document.pop("salvaged"))
    except UnsafeFileError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        document = None
    if document != _log_fingerprint(store, _read_manifest(store)):
        raise UsageError(
            f"{output_folder} already contains {store.format.folder}, and nothing is overwritten: name a folder "
            "without it"
        )
    return salvaged


def _make_segment_tasks(store: Store, store_range: StoreRange, folder: Path) -> list[SegmentTask]:
    """Return a task for every segment from the oldest to the newest, including missing segments."""
    size = segment_size(store)
    ranges = segment_ranges(store, store_range)
    missing = sum(-(-split.size // size) for split in ranges if split.missing)
    # A file of another log with a far offset would otherwise fill the disk with fillers.
    if missing > _MAX_MISSING:
        raise UsageError(
            f"{store.root}: {missing:,} segments are missing between {store.segments[0].path} and "
            f"{store.segments[-1].path}, expected at most {_MAX_MISSING:,}: one of them is probably a file of another "
            "log. Move it elsewhere"
        )
    splits = [each for split in ranges for each in _divide_by_segment(split, size)]
    for split in splits:
        if not split.missing and split.segment_end - split.base_offset != size:
            raise UsageError(
                f"{split.path}: expected a segment of {size} bytes, as most segments have, found one with room for "
                f"{split.segment_end - split.base_offset}: a broker loads only segments of one size"
            )
    if not splits:
        raise UsageError(f"{store.root}: no record of the log is intact, so there is nothing to salvage")
    newest = splits[-1].base_offset
    return [SegmentTask(split, size, split.base_offset == newest, 0, str(folder)) for split in splits]


def _divide_by_segment(split: Split, size: int) -> Iterator[Split]:
    """Divide a range of missing segments into one range for each segment."""
    if not split.missing:
        yield split
        return
    for base in range(split.base_offset, split.end, size):
        yield replace(
            split, base_offset=base, start=base, end=base + size, segment_end=base + size, file_end=base + size
        )


def _rewrite_empty_segments(tasks: list[SegmentTask], results: dict[int, SegmentSalvaged]) -> None:
    """Write segments without records again, so that their fillers have the store time of the previous record."""
    time = next((results[number].first_time for number in range(len(tasks)) if results[number].records), 0)
    for number, task in enumerate(tasks):
        if results[number].records:
            time = results[number].last_time
        else:
            results[number] = salvage_segment(replace(task, store_timestamp=time))


def _read_config_files(root: Path) -> dict[str, bytes]:
    """Read the JSON files in a store's folder `config`, before anything is written."""
    folder = root / CONFIG
    names = files_in(folder, lambda name: name.endswith(".json"), trusted_root=root)
    files: dict[str, bytes] = {}
    for name in names:
        left = MAX_SMALL_FILE_BYTES - sum(map(len, files.values()))
        files[name] = read_file(folder / name, trusted_root=root, limit=left)
    return files


def _write_json_lines(path: Path, rows: Iterable[object]) -> None:
    with os.fdopen(create_file(path), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def count_records_after_log_end(files: StoreFiles, log_end: int) -> int:
    """Return how many records after the log's end queue entries point to, at most `MAX_COUNTED`.

    Each queue is read from its newest file back to its first entry before the end.

    Args:
        log_end: physical offset at which the log ends.

    Raises:
        UnsafeFileError: for a link, or anything else that is not a regular file, among the queues.
    """
    offsets: set[int] = set()
    for queue in walk_queue_folders(files, _FOLDER):
        for name in reversed(files.files_in(queue.path, is_segment_name)):
            if len(offsets) >= MAX_COUNTED:
                return MAX_COUNTED
            if _add_offsets_after_log_end(files, f"{queue.path}/{name}", log_end, offsets):
                break
    return min(len(offsets), MAX_COUNTED)


def _add_offsets_after_log_end(files: StoreFiles, path: str, log_end: int, offsets: set[int]) -> bool:
    """Add to `offsets` the physical offsets of entries after the log's end; return whether any is before it.

    Entries are at the beginning of a file. Where they end is searched for, because a file may be large and empty.
    """
    with closing(files.open(path)) as file:

        def read_offsets_between(start: int, stop: int) -> Array:
            data = read_range(file, start * ENTRY_DTYPE.itemsize, stop * ENTRY_DTYPE.itemsize)
            return data[: len(data) // ENTRY_DTYPE.itemsize * ENTRY_DTYPE.itemsize].view(ENTRY_DTYPE)

        size = file.size() // ENTRY_DTYPE.itemsize
        # Files are written from the start, and the rest is zeros.
        stop = bisect_left(
            range(size), True, key=lambda number: not written_entry_mask(read_offsets_between(number, number + 1)).all()
        )
        while stop > 0 and len(offsets) < MAX_COUNTED:
            start = max(0, stop - _READ_ENTRIES)
            found = read_offsets_between(start, stop)["physical_offset"]
            offsets.update(found[found >= log_end].tolist())
            if (found < log_end).any():
                return True
            stop = start
    return False
