"""Reads the consume log of a JMQ store as rows of `consumptions`, column by column.

A record is recognised by its magic, its lengths and its CRC, so that reading continues after damage. Zeros between
records, or at the end of a file, are space that was not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from commitlake.connectors.formats.jmq.kernel.consumptions import find_consumptions
from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.recorded_deliveries import CONSUMPTION_ROWS, ConsumeLogPart
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.arrow import span_array
from commitlake.connectors.reading.decoding.row_batch import MAX_TIMESTAMP_MS
from commitlake.connectors.reading.files.segment_files import LocalFile, open_remote
from commitlake.connectors.reading.files.shipped_stores import (
    read_shipped_manifest,
    resolve_filesystem,
    shipped_file_sizes,
)
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.layouts.jmq.consume_records import FOLDER, HEAD, MIN_RECORD_SIZE, DeliveryOutcome
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import parse_segment_name
from commitlake.schemas.segment_files import files_by_start
from commitlake.schemas.shipped_manifest import FILES_MANIFEST
from commitlake.schemas.tables.edges import StepOutcome

WINDOW_BYTES = 16 << 20
MAX_PROBLEMS = 20
"""Largest number of problems of one window that are described."""
_OUTCOMES = {
    DeliveryOutcome.CONSUMED: StepOutcome.SUCCESS,
    DeliveryOutcome.FAILED: StepOutcome.FAILED,
    DeliveryOutcome.GIVEN_UP: StepOutcome.DEAD,
}
_CODES = {"B": "u1", "H": ">u2", "I": ">u4", "Q": ">u8", "q": ">i8"}
_HEAD = np.dtype([(field.name, _CODES[field.code]) for field in HEAD.fields])
assert _HEAD.itemsize == HEAD.size


class _ConsumeLogFolder(Protocol):
    """Folder that contains the files of a store's consume log."""

    def file_names_by_start(self) -> Mapping[int, str]:
        """Return the names of the files by the offset of their first byte, in order."""
        ...

    def open(self, name: str) -> SegmentFile:
        """Open a file of the consume log."""
        ...

    def display_path(self, name: str = "") -> str:
        """Return the path of a file, or of the folder, for messages."""
        ...


class _LocalConsumeLogFolder:
    """Folder on a local disk; links are refused.

    Args:
        root: the store's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._folder = root, root / FOLDER

    def file_names_by_start(self) -> Mapping[int, str]:
        return files_by_start(self._folder, trusted_root=self._root)

    def open(self, name: str) -> SegmentFile:
        return LocalFile(str(self._folder / name), self._root)

    def display_path(self, name: str = "") -> str:
        return str(self._folder / name)


class _RemoteConsumeLogFolder:
    """Folder on a remote filesystem, which is read through `pyarrow.fs`.

    Args:
        root: URI of the store's folder.
    """

    def __init__(self, root: str) -> None:
        self._uri = f"{root}/{FOLDER}"
        self._filesystem, self._folder = resolve_filesystem(self._uri)

    def file_names_by_start(self) -> Mapping[int, str]:
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._folder, allow_not_found=True))
        files = {entry.base_name: entry.size for entry in entries if entry.type == pafs.FileType.File}
        manifest = read_shipped_manifest(self._filesystem, self._folder.rsplit("/", 1)[0], FILES_MANIFEST)
        files = files if manifest is None else shipped_file_sizes(manifest, FOLDER, files)
        starts = {start: name for name in files if (start := parse_segment_name(name)) is not None}
        return dict(sorted(starts.items()))

    def open(self, name: str) -> SegmentFile:
        return open_remote(self._filesystem, f"{self._folder}/{name}")

    def display_path(self, name: str = "") -> str:
        return f"{self._uri}/{name}" if name else self._uri


def read_consume_files(root: str, broker: str, start_offset: int | None) -> Iterator[ConsumeLogPart]:
    """Yield the consume records of a store at or after an offset in the consume log, in parts of limited size.

    The newest file is read to its last record. The bytes after it may be a record that is being written, so they are
    examined once there is a newer file.

    Args:
        root: path or URI of the store's folder.
        broker: the store's name.
        start_offset: offset in the consume log; None for its beginning.

    Raises:
        UnsafeFileError: if a file is a link or not regular.
    """
    folder = _RemoteConsumeLogFolder(root) if is_uri(root) else _LocalConsumeLogFolder(Path(root))
    files = list(folder.file_names_by_start().items())
    if not files:
        return
    position = files[0][0] if start_offset is None else start_offset
    for number, (base, name) in enumerate(files):
        following = files[number + 1][0] if number + 1 < len(files) else None
        if following is not None and following <= position:
            # Read to its end already.
            continue
        if base > position:
            yield ConsumeLogPart(_empty_batch(), base, _describe_missing_bytes(folder.display_path(), position, base))
            position = base
        for part in _ConsumeFile(folder, name, broker, base, following).read_records(position):
            yield part
            position = part.end


class _ConsumeFile:
    """A file of the consume log, with its range of offsets.

    Args:
        folder: the folder that holds it.
        name: its name.
        broker: the store's name.
        base: offset of its first byte.
        following: offset of the first byte of the next file; None for the newest file.
    """

    def __init__(self, folder: _ConsumeLogFolder, name: str, broker: str, base: int, following: int | None) -> None:
        self._folder, self._name, self._broker = folder, name, broker
        self._base, self._following = base, following
        self._path = folder.display_path(name)

    def read_records(self, start_offset: int) -> Iterator[ConsumeLogPart]:
        """Yield the file's consume records at or after an offset, and sentences about damaged ranges between them."""
        window = np.zeros(WINDOW_BYTES + PADDING, np.uint8)
        positions = np.empty(WINDOW_BYTES // MIN_RECORD_SIZE + 1, np.int64)
        done, is_last = start_offset, False
        held: list[str] = []  # problems after the newest file's last record so far
        with closing(self._folder.open(self._name)) as file:
            size = file.size()
            # Offsets only grow; a shorter log is not the one that was read before.
            if start_offset > self._base + size:
                cut = f"expected at least {start_offset - self._base} bytes, found {size}: the log was cut or replaced"
                yield ConsumeLogPart(_empty_batch(), start_offset, [f"{self._path}: {cut}"])
                return
            while not is_last:
                start = start_offset - self._base
                length = file.read_into(window[:WINDOW_BYTES], start)
                is_last = length < WINDOW_BYTES or start + length >= size
                count, end = find_consumptions(window, length, is_last, positions)
                found = positions[:count]
                ends = found + _record_sizes(window, found)
                rest = int(ends[-1]) if count else 0
                end = length if is_last else int(end)
                before = self._describe_damage(window, start, np.concatenate(([0], ends[:-1]))[:count], found)
                # What follows the last record is a problem only if a newer record or file proves that it is complete.
                after = self._describe_damage(window, start, np.array([rest]), np.array([end]))
                rows = _make_consumption_batch(window, found, self._broker, start_offset)
                done = start_offset + rest if count else done
                start_offset += end
                if self._following is not None:
                    problems, done = before + after, start_offset
                    if is_last:
                        problems += _describe_missing_bytes(self._folder.display_path(), start_offset, self._following)
                        # Whatever is missing at the end of an older file will not be written any more.
                        done = self._following
                elif count:
                    problems, held = held + before, after
                else:
                    held += after
                    continue
                yield ConsumeLogPart(rows, done, _warn_of_first_problems(self._path, problems))

    def _describe_damage(self, window: Array, window_start: int, range_starts: Array, range_ends: Array) -> list[str]:
        """Return a sentence for each range of the window that contains neither valid consume records nor zeros.

        Args:
            window: bytes of the file.
            window_start: position of the window in the file.
            range_starts: starts of the ranges in the window.
            range_ends: ends of the ranges in the window.
        """
        told = []
        for first, end in zip(
            range_starts[range_starts < range_ends].tolist(),
            range_ends[range_starts < range_ends].tolist(),
            strict=True,
        ):
            if window[first:end].any():
                data = bytes(window[first : min(first + 8, end)]).hex()
                told.append(
                    f"{self._path}: bytes {window_start + first} to {window_start + end - 1}: expected consume "
                    f"records, found {data}…"
                )
            if len(told) > MAX_PROBLEMS:
                break
        return told


def _warn_of_first_problems(path: str, problems: list[str]) -> list[str]:
    if len(problems) <= MAX_PROBLEMS:
        return problems
    return [*problems[:MAX_PROBLEMS], f"{path}: more ranges like these after them"]


def _describe_missing_bytes(folder: str, start: int, end: int) -> list[str]:
    if start >= end:
        return []
    return [f"{folder}: bytes {start} to {end - 1} are missing: the lake has no deliveries that were recorded there"]


def _empty_batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], CONSUMPTION_ROWS)


def _record_sizes(window: Array, positions: Array) -> Array:
    sizes: Array = (window[positions].astype(np.int64) << 8) | window[positions + 1]
    return sizes


def _make_consumption_batch(window: Array, positions: Array, broker: str, window_offset: int) -> pa.RecordBatch:
    """Return consume records as an Arrow batch of rows of the table `consumptions`.

    Args:
        window: bytes of the consume log.
        positions: int64, start of each record in the window.
        broker: the store's name.
        window_offset: offset of the window in the consume log.
    """
    if not len(positions):
        return _empty_batch()
    heads = window[positions[:, None] + np.arange(HEAD.size)].view(_HEAD)[:, 0]
    at_topic = positions + HEAD.size
    topic_lengths = window[at_topic].astype(np.int64)
    at_app = at_topic + 1 + topic_lengths
    milliseconds = heads["consume_timestamp"].astype(np.int64)
    is_time = (milliseconds >= 0) & (milliseconds <= MAX_TIMESTAMP_MS)
    columns = {
        "broker": pa.array([broker], pa.string()).take(pa.array(np.zeros(len(positions), np.int64))),
        "consume_offset": pa.array(positions + window_offset),
        "topic": _to_text_column(window, at_topic + 1, topic_lengths),
        "queue_id": pa.array(heads["queue_id"].astype(np.int32)),
        "queue_offset": pa.array(heads["queue_offset"].astype(np.uint64).view(np.int64)),
        "physical_offset": pa.array(heads["journal_offset"].astype(np.uint64).view(np.int64)),
        "consumer_group": _to_text_column(window, at_app + 1, window[at_app].astype(np.int64)),
        # The log counts deliveries from 1, the table retries from 0.
        "attempt": pa.array(np.maximum(heads["attempt"].astype(np.int32) - 1, 0)),
        "outcome": pa.array([None, *(_OUTCOMES[one].value for one in DeliveryOutcome)], pa.string()).take(
            pa.array(heads["outcome"].astype(np.int64))
        ),
        "client_host": _to_host_column(heads["client_ip"].astype(np.int64), heads["client_port"].astype(np.int64)),
        "event_timestamp": pa.array(np.where(is_time, milliseconds, 0) * 1000, pa.int64(), mask=~is_time),
    }
    arrays = [columns[field.name].cast(field.type) for field in CONSUMPTION_ROWS]
    return pa.RecordBatch.from_arrays(arrays, schema=CONSUMPTION_ROWS)


def _to_text_column(window: Array, positions: Array, lengths: Array) -> pa.Array:
    encoded = pc.dictionary_encode(span_array(window, positions, lengths, pa.binary()))
    texts = pa.array([text.decode("utf-8", "replace") for text in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _to_host_column(addresses: Array, ports: Array) -> pa.Array:
    distinct, numbers = np.unique((addresses << 16) | ports, return_inverse=True)
    hosts = [Host((one >> 16).to_bytes(4, "big"), one & 0xFFFF) for one in distinct.tolist()]
    return pa.array([str(host) for host in hosts], pa.string()).take(pa.array(numbers))
