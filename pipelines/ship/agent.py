"""The agent: rounds in which a store's new bytes are copied to a target.

A round reads in one order and publishes in the reverse order, so that nothing visible to a reader refers to data that
is not in the copy yet:

    read      small files, then the ends of queues, then the end of the log
    publish   the log, then queues and indexes, then small files

Shipped group offsets are therefore never ahead of the shipped queues, and the queues are never ahead of the shipped
log, except by its newest record, which is shipped only once it has been seen unchanged.

The log's manifest is also written during a round, so that little is lost if the agent is killed. The other manifest and
the small files are written only at the end of a round, with one exception: if a topic was deleted and created again,
the files of its queues have other bytes now, and the other manifest is first written without them.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from commitlake.connectors.shipping.ship_target import ShipError, ShipNameError, ShipTarget
from commitlake.pipelines.ship.growing_files import ChangedFileError, GrowingFiles, ShippedCounts
from commitlake.pipelines.ship.log_end import LogEnd, LogEndSearch
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import GrowingFile, LogFile, SmallFile, SourceFile, SourceStore
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.safe_store_files import read_file
from commitlake.schemas.shipped_manifest import (
    FILES_MANIFEST,
    LOG_MANIFEST,
    Manifest,
    ShippedFile,
    is_part_name,
    parse_manifest,
    part_name,
    serialize_manifest,
)

_LOG = logging.getLogger(__name__)
_SAVE_SECONDS = 5.0
_MAX_CHANGES = 3  # limit of changes of one file in a round
_CHECKED_SEALED = 4  # newest sealed files whose size is compared at the start


class ShipStoppedError(CommitLakeError):
    """Error because the agent was asked to stop; everything shipped so far is in the manifest."""

    exit_code = ExitCode.TERMINATED


@dataclass(slots=True)
class ShipRound:
    """Result of one pass over a store: how far its log is shipped, and which files are not.

    Attributes:
        end: physical offset after the last shipped byte of the log; None if the log has no segment.
        is_waiting: whether the last record looks complete, but has not been unchanged for long enough.
        damaged_at: physical offset at which the newest segment has bytes that are no record.
        skipped: files that are not shipped, with the reason.
    """

    end: int | None = None
    is_waiting: bool = False
    damaged_at: int | None = None
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """Position up to which to ship a queue, index or consume log file, read before the end of the log.

    Attributes:
        name: path in the store.
        end: position after its last byte.
        is_last: whether the broker may still write to it.
        is_changed: whether the broker has changed bytes that were shipped, so that the end is that of the new bytes.
        is_created_again: whether the broker has replaced the files of the queue.
    """

    name: str
    end: int
    is_last: bool
    is_changed: bool
    is_created_again: bool


class ShipAgent:
    """Agent that ships one store's files to one target, in repeated passes.

    Args:
        source: the store.
        target: the target, which is claimed.
        settings: the settings.
        on_progress: called with the number of further new bytes of the log.
        is_stopped: returns whether the agent is to end after the current part.
        clock: a clock that never goes back, in seconds.
    """

    def __init__(
        self,
        source: SourceStore,
        target: ShipTarget,
        settings: ShipSettings,
        on_progress: Callable[[int], None] = lambda _: None,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = ShippedCounts()
        self._source, self._target, self._settings = source, target, settings
        self._on_progress, self._is_stopped, self._clock = on_progress, is_stopped, clock
        self._files = GrowingFiles(target, settings, self.counts)
        self._search = LogEndSearch(source.format, clock)
        self._agent = f"{secrets.token_hex(8)}@{socket.gethostname()}"
        self._saved_at, self._unsaved = clock(), 0
        self._log = self._open_manifest(LOG_MANIFEST)
        self._other = self._open_manifest(FILES_MANIFEST)
        self._saved = {LOG_MANIFEST: self._log, FILES_MANIFEST: self._other}
        self._check_target_is_of_store()
        self._compare_target_with_manifests()
        self._take_over_manifests()

    @property
    def log_manifest(self) -> Manifest:
        """Manifest of the log: the shipped parts of each segment."""
        return self._log

    def count_unshipped_bytes(self) -> int:
        """Return how many bytes of the log are not shipped yet; an estimate for partly empty files."""
        shipped = self._log.files
        return sum(
            max(0, file.data_size - (shipped[file.name].shipped_bytes if file.name in shipped else 0))
            for file in self._source.log_files()
        )

    def ship_round(self, *, includes_other_files: bool = True) -> ShipRound:
        """Ship what the broker has written since the last pass.

        Args:
            includes_other_files: also ship queues, indexes and small files.

        Raises:
            ShipError: if the target cannot be written; what was shipped before stays shipped.
            UnsafeFileError: for a link or a device with the name of a segment.
        """
        self._source.skipped.clear()
        has_others = includes_other_files and self._settings.has_other_files
        small = list(self._source.small_files()) if has_others else []
        ends = list(self._find_data_ends()) if has_others else []
        found = ShipRound()
        self._ship_log(found)
        self._save_log_manifest()
        if has_others:
            for folder in sorted({_parent_folder(end.name) for end in ends if end.is_created_again}):
                self._remove_queue(folder)
            for end in ends:
                self._ship_other_file(end)
            self._save_files_manifest()
            self._ship_small_files(small)
        found.skipped = list(self._source.skipped)
        return found

    # The log

    def _ship_log(self, round_result: ShipRound) -> None:
        files = self._source.log_files()
        self._seal_segments_deleted_early({file.name for file in files})
        begun = [file.name for file in files if file.name in self._log.files or self._source.is_written_to(file.name)]
        newest = begun[-1] if begun else ""
        for file in files:
            if file.name > newest:
                break
            entry = self._log.files.get(file.name) or ShippedFile(file.name, file.size)
            # A later segment is shipped only when this one is complete, so a copy of the log has no gap inside.
            if not entry.is_sealed and not self._ship_segment(file, entry, round_result, is_closed=file.name < newest):
                break
        round_result.end = self._shipped_log_end() if self._log.files else None

    def _ship_segment(self, file: LogFile, entry: ShippedFile, round_result: ShipRound, *, is_closed: bool) -> bool:
        """Ship one segment as far as it is complete; return whether the next one may be shipped."""
        with self._source.open(file.name) as source:
            if source is None:  # deleted a moment ago; the next round finds it missing
                return False
            if source.size < entry.shipped_bytes:
                return self._keep_shipped_bytes(entry, source.size, is_closed=is_closed)
            self._record_lost_range(file)
            if not is_closed or source.size >= entry.size:
                entry = replace(entry, size=max(source.size, entry.size))
            for _ in range(_MAX_CHANGES):
                try:
                    entry, is_complete = self._ship_segment_bytes(
                        file, entry, source, round_result, is_closed=is_closed
                    )
                    if is_complete:
                        self._seal_segment(entry, source)
                except ChangedFileError:
                    _LOG.warning("%s: the broker has changed bytes that were shipped: they are sent again", file.name)
                    entry = self._files.drop_changed_parts(self._log.files.get(file.name, entry), source)
                    self._log = self._log.with_file(entry)
                else:
                    return is_complete
        return False

    def _ship_segment_bytes(
        self, file: LogFile, entry: ShippedFile, source: SourceFile, round_result: ShipRound, *, is_closed: bool
    ) -> tuple[ShippedFile, bool]:
        """Ship a segment's complete records; return its manifest entry, and whether all of the segment is shipped."""
        if self._files.is_changed(entry, source, checks_every_part=True):
            raise ChangedFileError
        has_filler = False
        while entry.shipped_bytes < entry.size:
            start = entry.shipped_bytes
            limit = start + self._settings.part_bytes
            if is_closed:
                end = min(entry.size, limit)
            else:
                found_end = self._find_log_end(file, entry, source, round_result)
                has_filler = has_filler or found_end.is_closed
                end = found_end.offset - file.base_offset
                end = min(end, limit) if has_filler else end
            if end == start and has_filler:
                end = min(entry.size, limit)
            if end > start:
                entry = self._files.ship_part(entry, source, end, is_live=not is_closed)
            if entry.shipped_bytes == start:
                break
            self._log = self._log.with_file(entry)
            self._count_shipped(entry.shipped_bytes - start)
        if is_closed and entry.shipped_bytes < entry.size:
            self._warn_of_shorter_segment(entry)
            entry = replace(entry, size=entry.shipped_bytes)
        return entry, entry.shipped_bytes == entry.size and (is_closed or has_filler)

    def _find_log_end(self, file: LogFile, entry: ShippedFile, source: SourceFile, round_result: ShipRound) -> LogEnd:
        start = file.base_offset + entry.shipped_bytes
        limit = self._settings.part_bytes
        log_end = self._search.find_log_end(source, file.base_offset, entry.size, start, self._read_checkpoint, limit)
        round_result.is_waiting, round_result.damaged_at = log_end.is_waiting, log_end.damaged_at
        return log_end

    def _keep_shipped_bytes(self, entry: ShippedFile, size: int, *, is_closed: bool) -> bool:
        """Keep all shipped bytes of a segment although its file at the broker has become shorter."""
        _LOG.warning(
            "%s: found %d bytes, fewer than the %d that were shipped: these are kept",
            entry.name,
            size,
            entry.shipped_bytes,
        )
        if is_closed:
            self._warn_of_shorter_segment(entry)
            self._seal_segment(replace(entry, size=entry.shipped_bytes), None)
        return is_closed

    def _warn_of_shorter_segment(self, entry: ShippedFile) -> None:
        self.counts.cut += 1
        _LOG.warning(
            "%s: only %d of %d bytes are there: the segment is shorter", entry.name, entry.shipped_bytes, entry.size
        )

    def _seal_segment(self, entry: ShippedFile, source: SourceFile | None) -> None:
        sealed = self._files.seal_file(entry, source)
        self._log = self._log.with_file(sealed)
        self._save_log_manifest()

    def _seal_segments_deleted_early(self, present_names: set[str]) -> None:
        """Complete, at the size shipped so far, segments that the broker deleted before all was shipped."""
        for entry in list(self._log.files.values()):
            if not entry.is_sealed and entry.name not in present_names:
                self._warn_of_shorter_segment(entry)
                self._seal_segment(replace(entry, size=entry.shipped_bytes), None)

    def _record_lost_range(self, file: LogFile) -> None:
        """Record as lost the range before a new segment, if the broker deleted it before it was shipped."""
        if file.name in self._log.files or not self._log.files:
            return
        end = self._shipped_log_end()
        if end < file.base_offset:
            _LOG.warning("the log from %d to %d was deleted before it was shipped", end, file.base_offset)
            self._log = replace(self._log, lost=(*self._log.lost, (end, file.base_offset)))

    def _shipped_log_end(self) -> int:
        last = max(self._log.files)
        return int(last.rsplit("/", 1)[1]) + self._log.files[last].shipped_bytes

    def _read_checkpoint(self) -> tuple[bytes, bool]:
        root = self._source.root
        try:
            return read_file(root / "checkpoint", trusted_root=root), not (root / "abort").exists()
        except OSError:
            return b"", False

    # Other files

    def _find_data_ends(self) -> Iterator[QueueEnd]:
        """Yield the files of queues, indexes and consume logs, each with the end of its data.

        The broker may fill a file and begin the next one meanwhile. The newest file is read first, so if it has data,
        the files before it are read to their ends.
        """
        for _, group in groupby(self._source.growing_files(), lambda found: _parent_folder(found.name)):
            names = list(group)
            is_new = self._is_queue_created_again(names[0])
            ends = [self._find_data_end(found, is_created_again=is_new) for found in reversed(names)]
            yield from (end for end in reversed(ends) if end is not None)

    def _is_queue_created_again(self, oldest_file: GrowingFile) -> bool:
        """Return whether a queue was deleted and created again, because its oldest file differs from the shipped one.

        The broker deletes the files of a queue with its topic. If the topic is created again, they have the same names.
        """
        entry = self._other.files.get(oldest_file.name)
        if not oldest_file.is_of_queue or entry is None or not entry.is_sealed or not entry.head_size:
            return False
        try:
            with self._source.open(oldest_file.name) as source:
                return source is not None and source.compute_crc(0, entry.head_size) != entry.head_crc
        except OSError as error:
            self._source.skipped.append(str(error))
            return False

    def _remove_queue(self, folder: str) -> None:
        """Remove all files of a queue from the copy, because its topic was deleted and created again."""
        _LOG.warning("%s: the broker has created this queue again: it is shipped from its start", folder)
        old = [entry for name, entry in self._other.files.items() if _parent_folder(name) == folder]
        # Files are deleted before the manifest is written, so that a killed agent's successor finds the change, too.
        for entry in old:
            self._files.delete_file(entry)
        files = {name: entry for name, entry in self._other.files.items() if _parent_folder(name) != folder}
        self._other = replace(self._other, files=files)
        self._save_files_manifest()

    def _find_data_end(self, growing_file: GrowingFile, *, is_created_again: bool) -> QueueEnd | None:
        """Return the position up to which to ship a file; None if it is complete in the target, or cannot be read."""
        entry = None if is_created_again else self._other.files.get(growing_file.name)
        if entry is not None and entry.is_sealed:
            return None
        try:
            with self._source.open(growing_file.name) as source:
                if source is None:
                    return None
                is_changed = entry is not None and self._files.is_changed(entry, source)
                start = 0 if entry is None or is_changed else entry.shipped_bytes
                end = source.find_data_end(start) if growing_file.is_last else source.size
                return QueueEnd(growing_file.name, end, growing_file.is_last, is_changed, is_created_again)
        except OSError as error:
            self._source.skipped.append(str(error))
            return None

    def _ship_other_file(self, file_end: QueueEnd) -> None:
        """Ship a file up to its end, including changed bytes, as after a topic was created again."""
        try:
            with self._source.open(file_end.name) as source:
                if source is None:
                    return
                entry = self._other.files.get(file_end.name) or ShippedFile(file_end.name, source.size)
                entry = replace(entry, size=max(entry.size, source.size))
                for _ in range(_MAX_CHANGES):
                    try:
                        entry = self._ship_other_file_bytes(entry, source, file_end.end, is_last=file_end.is_last)
                        break
                    except ChangedFileError:
                        entry = replace(self._other.files.get(file_end.name, entry), size=source.size)
                        entry = self._files.drop_changed_parts(entry, source)
                        self._other = self._other.with_file(entry)
                        if not file_end.is_changed:
                            break  # The end is that of the earlier bytes: the next round ships the file from its start.
        except (OSError, ShipNameError) as error:
            self._source.skipped.append(str(error))
            return
        if entry.parts or entry.is_sealed:
            self._other = self._other.with_file(entry)

    def _ship_other_file_bytes(self, entry: ShippedFile, source: SourceFile, end: int, *, is_last: bool) -> ShippedFile:
        if self._files.is_changed(entry, source):
            raise ChangedFileError
        while entry.shipped_bytes < end:
            start = entry.shipped_bytes
            entry = self._files.ship_part(entry, source, min(end, start + self._settings.part_bytes), is_live=is_last)
            if entry.shipped_bytes == start:
                break
            self._other = self._other.with_file(entry)
        if not is_last and entry.shipped_bytes == entry.size and entry.parts:
            entry = self._files.seal_file(entry, source)
        return entry

    def _ship_small_files(self, small_files: Sequence[SmallFile]) -> None:
        """Ship the small files that have changed, and delete `abort` if the broker has deleted it."""
        for file in small_files:
            if file.data is None:
                self._source.skipped.append(f"{file.name}: changed while it was read: the earlier version stays")
                continue
            known = self._other.files.get(file.name)
            crc, size = zlib.crc32(file.data), len(file.data)
            entry = ShippedFile(file.name, size, is_sealed=True, crc=crc, modified_ms=file.modified_ms)
            if known == entry:
                continue
            try:
                self._target.write_file(file.name, file.data, file.modified_ms)
            except ShipNameError as error:
                self._source.skipped.append(str(error))
                continue
            self.counts.sent_bytes += size
            self._other = self._other.with_file(entry)
        # `abort` shows whether the broker was shut down cleanly. Other files stay in the copy: if one is missing, the
        # broker may be replacing it.
        if "abort" in self._other.files and not any(file.name == "abort" for file in small_files):
            self._target.delete("abort")
            files = {name: entry for name, entry in self._other.files.items() if name != "abort"}
            self._other = replace(self._other, files=files)
        self._save_files_manifest()

    # Manifests

    def _open_manifest(self, name: str) -> Manifest:
        data = self._target.read_manifest(name)
        if data is None:
            return Manifest(self._settings.broker, self._source.format.folder)
        return parse_manifest(data, f"{self._target.text}/{name}")

    def _check_target_is_of_store(self) -> None:
        """Raise an error if the target has a copy of another store."""
        folder = self._source.format.folder
        if not self._log.generation and not self._other.generation:
            foreign = self._target.list_names(folder, 1)
            if foreign:
                raise ShipError(
                    f"{self._target.text} contains {folder}/{foreign[0]}, which no agent has shipped: use an empty "
                    "target",
                    exit_code=ExitCode.REFUSED,
                )
            return
        for manifest in (self._log, self._other):
            if manifest.broker != self._settings.broker or manifest.folder != folder:
                raise ShipError(
                    f"{self._target.text} contains the copy of {manifest.folder} of {manifest.broker!a}, expected "
                    f"that of {folder} of {self._settings.broker!a}: ship each store to its own place, or name it "
                    "with --broker",
                    exit_code=ExitCode.REFUSED,
                )
        for name, entry in self._log.files.items():
            if not entry.head_size:
                continue
            with self._source.open(name) as source:
                if source is not None and source.compute_crc(0, entry.head_size) != entry.head_crc:
                    raise ShipError(
                        f"{self._target.text}: {name} begins with other bytes than the store's file: the target "
                        "contains the copy of another store, or the store was created again. Ship to a new place",
                        exit_code=ExitCode.REFUSED,
                    )

    def _compare_target_with_manifests(self) -> None:
        """Compare the files in the target with the manifests, so that missing parts are shipped again."""
        for entry in [each for each in self._log.files.values() if not each.is_sealed]:
            kept = self._files.drop_missing_parts(entry)
            if kept is not entry:
                _LOG.warning(
                    "%s, %s: parts are missing or damaged: they are shipped again", self._target.text, entry.name
                )
                self._log = self._log.with_file(kept)
        sealed = [entry for entry in self._log.files.values() if entry.is_sealed]
        for entry in sorted(sealed, key=lambda each: each.name)[-_CHECKED_SEALED:]:
            found = self._target.sealed_size(entry)
            if found != entry.size:
                held = "it is missing" if found is None else f"found {found}"
                raise ShipError(
                    f"{self._target.text}/{entry.name}: expected {entry.size} bytes, as shipped, {held}: the "
                    "target was changed. Restore the file, or ship to a new place"
                )

    def _take_over_manifests(self) -> None:
        """Claim the target by writing both manifests, and delete part files that no manifest names."""
        for name, manifest in ((LOG_MANIFEST, self._log), (FILES_MANIFEST, self._other)):
            self._saved.pop(name, None)
            saved = self._save_manifest(name, manifest)
            if name == LOG_MANIFEST:
                self._log = saved
            else:
                self._other = saved
        # Only now that both manifests are this agent's: until then, another one may have been adding parts.
        files = (file for manifest in (self._log, self._other) for file in manifest.files.values())
        named = {part_name(file.name, part) for file in files for part in file.parts}
        for name in self._target.part_names():
            if name not in named and is_part_name(name):
                self._target.delete(name)

    def _count_shipped(self, count: int) -> None:
        self._on_progress(count)
        self._unsaved += count
        if self._is_stopped():
            self._save_log_manifest()
            raise ShipStoppedError
        if self._unsaved >= self._settings.save_bytes or self._clock() - self._saved_at >= _SAVE_SECONDS:
            self._save_log_manifest()

    def _save_log_manifest(self) -> None:
        self._log = self._save_manifest(LOG_MANIFEST, self._log)
        self._saved_at, self._unsaved = self._clock(), 0

    def _save_files_manifest(self) -> None:
        self._other = self._save_manifest(FILES_MANIFEST, self._other)

    def _save_manifest(self, name: str, manifest: Manifest) -> Manifest:
        if manifest == self._saved.get(name) and manifest.generation:
            return manifest
        now = max(0, int(time.time() * 1000))
        new = replace(manifest, agent=self._agent, generation=manifest.generation + 1, written_at_ms=now)
        self._target.replace_manifest(name, serialize_manifest(new))
        self._saved[name] = new
        # Only after a manifest without these parts is visible: until then, readers look for them.
        self._files.delete_dropped_parts(*self._saved.values(), self._log, self._other)
        return new


def _parent_folder(name: str) -> str:
    return name.rpartition("/")[0]
