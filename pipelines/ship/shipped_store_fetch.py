"""Fetches a shipped store from an object store into a folder, where jobs can read it.

The folder gets the same manifests, so a killed run can be continued without reading bytes again that are already there.
The copy is read in the reverse order of its publication, small files first and the log last, so that offsets and queues
in the folder are never ahead of the log.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from commitlake.connectors.checksums import crc_of_parts
from commitlake.connectors.shipping.ship_target import ShipError, ShipTarget, ShipUnavailableError
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.safe_store_files import MAX_SMALL_FILE_BYTES
from commitlake.schemas.shipped_manifest import (
    FILES_MANIFEST,
    LOG_MANIFEST,
    Manifest,
    Part,
    ShippedFile,
    parse_manifest,
    part_name,
    serialize_manifest,
)

_PART_BYTES = 8 << 20
_SAVED_PARTS = 8
_ATTEMPTS = 4


class ShippedSource(Protocol):
    """Interface to an object store with a shipped copy."""

    text: str

    def read_manifest(self, name: str) -> bytes | None:
        """Return the content of a manifest; None if there is none."""
        ...

    def read_range(self, name: str, offset: int, size: int) -> bytes | None:
        """Return a byte range of an object; None if the object does not exist."""
        ...


class _ChangedError(ShipUnavailableError):
    """Error because an agent has replaced an object since its manifest was read."""


class Fetcher:
    """Copies to a local folder the files that it lacks from a shipped copy in an object store.

    Args:
        source: the object store.
        target: the folder, which is claimed.
    """

    def __init__(self, source: ShippedSource, target: ShipTarget) -> None:
        self._source, self._target = source, target
        self._on_progress: Callable[[int], None] = lambda _: None
        self.new_bytes = 0

    def fetch_missing_files(self, on_progress: Callable[[int], None] = lambda _: None) -> Manifest:
        """Fetch the files that the folder lacks, and return its manifest of the log.

        Args:
            on_progress: called with the number of further bytes.

        Raises:
            ShipError: if there is no copy, or an object is damaged or missing, or if the folder has the copy of another
                store.
        """
        self._on_progress = on_progress
        for attempt in range(_ATTEMPTS):
            try:
                return self._try_fetch()
            except _ChangedError:  # the next manifest names what is there now
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def count_missing_bytes(self) -> int:
        """Return the number of bytes of the log that the folder lacks."""
        theirs, mine = self._read_source_manifest(LOG_MANIFEST), self._read_target_manifest(LOG_MANIFEST)
        have = {} if mine is None else mine.files
        return sum(
            max(0, file.shipped_bytes - (have[file.name].shipped_bytes if file.name in have else 0))
            for file in theirs.files.values()
        )

    def _try_fetch(self) -> Manifest:
        # Small files first and the log last, so that offsets and queues are never ahead of the log.
        others = self._read_source_manifest(FILES_MANIFEST)
        small = {file: self._read_small_file(file) for file in others.files.values() if file.modified_ms}
        log = self._read_source_manifest(LOG_MANIFEST)
        if self._read_target_manifest(LOG_MANIFEST) is None:
            self._check_folder_is_empty(log.folder)
        fetched = self._fetch_files(LOG_MANIFEST, log)
        self._fetch_files(FILES_MANIFEST, others)
        saved = self._read_target_manifest(FILES_MANIFEST)
        assert saved is not None
        for file, data in small.items():
            if saved.files.get(file.name) != file:
                self._target.write_file(file.name, data, file.modified_ms)
                saved = saved.with_file(file)
        # The broker has stopped since the last fetch; `abort` would show a running or crashed one.
        if "abort" in saved.files and "abort" not in others.files:
            self._target.delete("abort")
            saved = replace(saved, files={name: file for name, file in saved.files.items() if name != "abort"})
        self._save_manifest(FILES_MANIFEST, saved)
        return fetched

    def _fetch_files(self, manifest_name: str, source_manifest: Manifest) -> Manifest:
        mine = self._read_target_manifest(manifest_name)
        mine = mine or Manifest(source_manifest.broker, source_manifest.folder)
        if (mine.broker, mine.folder) != (source_manifest.broker, source_manifest.folder):
            raise ShipError(
                f"{self._target.text} contains the copy of {mine.broker!a}, expected that of "
                f"{source_manifest.broker!a}: fetch to a new folder",
                exit_code=ExitCode.REFUSED,
            )
        # Before the first byte, so that the folder is known as a copy if this run is killed.
        mine = self._save_manifest(manifest_name, replace(mine, lost=source_manifest.lost))
        for _, file in sorted(source_manifest.files.items()):
            if not file.modified_ms:
                for entry in self._fetch_missing_bytes(mine.files.get(file.name), file):
                    mine = self._save_manifest(manifest_name, mine.with_file(entry))
        return mine

    def _fetch_missing_bytes(self, local_file: ShippedFile | None, source_file: ShippedFile) -> Iterator[ShippedFile]:
        """Fetch a file's missing bytes to the folder, and yield its updated manifest entry now and then."""
        if local_file is not None and local_file.is_sealed:
            if source_file.is_sealed and (local_file.size, local_file.crc) != (source_file.size, source_file.crc):
                raise ShipError(
                    f"{self._target.text}: {local_file.name} differs from the copy's file: fetch to a new folder",
                    exit_code=ExitCode.REFUSED,
                )
            return
        entry = replace(source_file, parts=() if local_file is None else local_file.parts, is_sealed=False, crc=None)
        # If the copy is no beginning of the source, the broker had changed its log.
        if entry.shipped_bytes > source_file.shipped_bytes or not self._is_prefix_of_source_file(entry, source_file):
            self._target.truncate(entry, 0)
            entry = replace(entry, parts=())
        while entry.shipped_bytes < source_file.shipped_bytes:
            data = self._read_next_part(source_file, entry.shipped_bytes)
            part = Part(entry.shipped_bytes, len(data), zlib.crc32(data))
            self._target.write_part(entry, part, data)
            entry = replace(entry, parts=(*entry.parts, part))
            self.new_bytes += len(data)
            self._on_progress(len(data))
            # A manifest costs a sync; a killed run reads at most this number of parts again.
            if len(entry.parts) % _SAVED_PARTS == 0:
                yield entry
        found, expected = (
            crc_of_parts(entry.parts),
            source_file.crc if source_file.is_sealed else crc_of_parts(source_file.parts),
        )
        if found != expected:
            # The next run begins with this file again, and does not continue on wrong bytes.
            self._target.truncate(entry, 0)
            yield replace(entry, parts=())
            raise ShipError(
                f"{self._source.text}/{source_file.name}: expected the CRC-32 {expected:08x} of the manifest, found "
                f"{found:08x}: the copy was changed"
            )
        if source_file.is_sealed:
            self._target.seal(source_file)
        yield source_file if source_file.is_sealed else entry

    def _is_prefix_of_source_file(self, local_file: ShippedFile, source_file: ShippedFile) -> bool:
        """Return whether the folder's bytes of a file, by their CRCs, are the first bytes of the shipped copy."""
        if source_file.is_sealed or not local_file.parts:
            return True
        ends = {part.end: number for number, part in enumerate(local_file.parts, 1)}
        for number, part in enumerate(source_file.parts, 1):
            if part.end in ends and crc_of_parts(source_file.parts[:number]) != crc_of_parts(
                local_file.parts[: ends[part.end]]
            ):
                return False
        return True

    def _read_next_part(self, file: ShippedFile, start: int) -> bytes:
        if file.is_sealed:
            data = self._source.read_range(file.name, start, min(_PART_BYTES, file.size - start))
            offset = file.size
        else:
            part = next(part for part in file.parts if part.offset <= start < part.end)
            size = min(_PART_BYTES, part.end - start)
            data = self._source.read_range(part_name(file.name, part), start - part.offset, size)
            offset = part.end
        if data is None:
            raise _ChangedError(f"{self._source.text}/{file.name}: an object that the manifest lists is missing")
        if len(data) != min(_PART_BYTES, offset - start):
            raise ShipError(
                f"{self._source.text}/{file.name}: expected at least {offset} bytes, found fewer: the copy was changed"
            )
        return data

    def _read_small_file(self, file: ShippedFile) -> bytes:
        """Return the content of a small file, which may be newer than the manifest describes."""
        data = self._source.read_range(file.name, 0, MAX_SMALL_FILE_BYTES) if file.size else b""
        if data is None:
            raise _ChangedError(f"{self._source.text}/{file.name}: an object that the manifest lists is missing")
        return data

    def _read_source_manifest(self, name: str) -> Manifest:
        data = self._source.read_manifest(name)
        if data is None:
            raise ShipError(f"{self._source.text}: expected the copy of a store, found no manifest {name}")
        return parse_manifest(data, f"{self._source.text}/{name}")

    def _read_target_manifest(self, name: str) -> Manifest | None:
        data = self._target.read_manifest(name)
        return None if data is None else parse_manifest(data, f"{self._target.text}/{name}")

    def _check_folder_is_empty(self, folder: str) -> None:
        if foreign := self._target.list_names(folder, 1):
            raise ShipError(
                f"{self._target.text} contains {folder}/{foreign[0]}, which was not fetched: use an empty folder",
                exit_code=ExitCode.REFUSED,
            )

    def _save_manifest(self, name: str, manifest: Manifest) -> Manifest:
        now = max(0, int(time.time() * 1000))
        new = replace(manifest, agent="fetched", generation=manifest.generation + 1, written_at_ms=now)
        self._target.replace_manifest(name, serialize_manifest(new))
        return new
