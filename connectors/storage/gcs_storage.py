"""A prefix in a bucket of Google Cloud Storage, through the package google-cloud-storage.

The server joins objects, at most 32 at once (`compose`), so their bytes are sent only once. An object is replaced only
if it still has the generation that was found: if two processes send one at the same time, the server accepts only one
of them.

Each upload carries the CRC32C of its bytes, which the server compares, and a random mark. If an answer is lost, the
mark shows whether the object was written. An object also carries its CRC-32, which one of another writer lacks.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from google.api_core.exceptions import NotFound, PreconditionFailed, RequestRangeNotSatisfiable

from commitlake.connectors.checksums import crc_of_parts
from commitlake.connectors.storage.cloud_storage import CloudStorage
from commitlake.connectors.storage.errors import CloudError, CloudUnavailableError
from commitlake.connectors.storage.gcs_clients import ERRORS, SHORT_TIMEOUTS, TIMEOUTS, gcs_bucket, gcs_error
from commitlake.connectors.storage.storage import UNKNOWN_CRC, FileContent, FolderEntry, FoundFile, ReplacedError
from commitlake.schemas.shipped_manifest import Part

MAX_COMPOSED = 32
"""Largest number of objects that one request joins."""
_TYPE = "application/octet-stream"
_UPLOAD, _CRC = "commitlake_upload", "commitlake_crc32"
_CRC_TEXT = re.compile(r"[0-9a-f]{8}")
_MAX_READS = 5
"""Attempts to read an object that is being replaced."""


class GcsStorage(CloudStorage):
    """Files below a prefix of a bucket in Google Cloud Storage."""

    known_errors = ERRORS

    def has_objects(self, folder: str, *, is_user_waiting: bool = False) -> bool:
        """Return whether a folder contains any object; see CloudStorage."""
        prefix, limits = self._folder_key(folder), SHORT_TIMEOUTS if is_user_waiting else TIMEOUTS
        with self.convert_errors(folder, "listed"):
            return bool(list(self._bucket.list_blobs(prefix=prefix, max_results=1, **limits)))

    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """Yield the names of all files in a folder and its subfolders."""
        root, prefix = f"{self.root.key('')}/", self._folder_key(folder)
        # One more, because some tools create an object with the name of the folder and a slash, also of folders in it.
        page_size = None if limit is None else limit + 1
        with self.convert_errors(folder, "listed"):
            listed = self._bucket.list_blobs(prefix=prefix, page_size=page_size, **TIMEOUTS)
            names = (blob.name.removeprefix(root) for blob in listed if not blob.name.endswith("/"))
            yield from islice(names, limit)

    def entries(self, folder: str) -> list[FolderEntry]:
        """Return the files and folders in a folder; see ReadableStorage."""
        with self.convert_errors(folder, "listed"):
            listed = self._bucket.list_blobs(prefix=self._folder_key(folder), delimiter="/", **TIMEOUTS)
            # Some tools create an object with the name of the folder and a slash.
            objects = {blob.name: _to_found_file(blob) for blob in listed if not blob.name.endswith("/")}
            folders = {name.rstrip("/") for name in listed.prefixes}
        if not objects and not folders:
            raise FileNotFoundError(f"the folder {self.uri_of(folder)} does not exist")
        return [
            *(FolderEntry(key.rpartition("/")[2]) for key in sorted(folders)),
            *(FolderEntry(key.rpartition("/")[2], objects[key]) for key in sorted(objects) if key not in folders),
        ]

    def head(self, name: str) -> FoundFile | None:
        """Return the newest version of a file, or None if it does not exist."""
        key = self.key(name)
        with self.convert_errors(name, "read"):
            blob = self._head(key)
        return None if blob is None else _to_found_file(blob)

    def get(self, name: str, max_bytes: int) -> FileContent | None:
        """Read a file and compare its CRC32C; None if it does not exist. See Storage."""
        key = self.key(name)
        for _ in range(_MAX_READS):
            with self.convert_errors(name, "read"):
                blob = self._head(key)
                if blob is None:
                    return None
                if blob.size > max_bytes:
                    raise self.too_large_error(name, max_bytes)
                # One generation, so that size, bytes and checksum belong together if the object is replaced meanwhile.
                wanted = self._bucket.blob(key, generation=blob.generation)
                with suppress(NotFound):  # replaced a moment ago
                    # Raw, because the package would decompress an object whose type says gzip, and sizes and checksums
                    # are those of the stored bytes.
                    data = wanted.download_as_bytes(raw_download=True, checksum="crc32c", **TIMEOUTS)
                    return FileContent(bytes(data), int(blob.generation))
        raise ReplacedError

    def read(self, name: str, start: int, end: int, found_version: FoundFile) -> bytes | None:
        """Return a range of one version of an object, with the bytes as they are stored; see CloudStorage.

        The package compares checksums of a whole object only; ranges are protected by TLS alone.
        """
        blob = self._bucket.blob(self.key(name), generation=found_version.version)
        with self.convert_errors(name, "read"):
            try:
                data = bytes(
                    blob.download_as_bytes(start=start, end=end - 1, raw_download=True, checksum=None, **TIMEOUTS)
                )
            except (NotFound, RequestRangeNotSatisfiable):
                if self._head(self.key(name)) is None:
                    return None
                raise ReplacedError from None
        if len(data) != end - start:
            raise CloudUnavailableError(
                f"{self.uri_of(name)} cannot be read: expected {end - start} bytes from position {start} on, found "
                f"{len(data)}",
                "Run it again",
            )
        return data

    def put(self, name: str, data: bytes) -> None:
        """Write a file; an existing one is replaced. See Storage."""
        key = self.key(name)
        with self.convert_errors(name, "written"):
            self._put(key, data)

    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """Write a file if it still has the given version, an object's generation."""
        key = self.key(name)
        with self.convert_errors(name, "written"):
            try:
                # 0 means that there must be no object.
                return self._put(key, data, if_generation_match=version or 0)
            except PreconditionFailed:
                raise ReplacedError from None

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        key = self.key(name)
        with self.convert_errors(name, "deleted"), suppress(NotFound):
            self._bucket.blob(key).delete(**TIMEOUTS)

    def compose(self, name: str, parts: Sequence[Part], part_file_name: Callable[[Part], str]) -> None:
        """Join parts to a file; more than 32 are first joined to larger parts, which are deleted at the end."""
        made: list[Part] = []
        with self.convert_errors(name, "written"):
            level = self._find_parts(parts, part_file_name)
            try:
                while len(level) > MAX_COMPOSED:
                    groups = (level[at : at + MAX_COMPOSED] for at in range(0, len(level), MAX_COMPOSED))
                    level = [self._compose_larger_part(group, part_file_name) for group in groups]
                    made += [part for part, _ in level]
                self._compose_blobs(name, [blob for _, blob in level])
            except (NotFound, PreconditionFailed):
                raise ReplacedError from None
        for part in made:
            # A last group of one is a part of the caller's.
            if part not in parts:
                self.delete(part_file_name(part))

    def convert_error(self, error: Any, message_start: str) -> CloudError:
        """Return the error to raise instead of one of `known_errors`; see CloudStorage."""
        return gcs_error(error, self.root, message_start)

    @property
    def _bucket(self) -> Any:
        return gcs_bucket(self.root)

    def _folder_key(self, folder: str) -> str | None:
        key = self.key(folder)
        return f"{key}/" if key else None

    def _find_parts(self, parts: Sequence[Part], part_file_name: Callable[[Part], str]) -> list[tuple[Part, Any]]:
        """Return the objects of a file's parts, if all have the expected sizes and checksums."""
        folder = self.key(part_file_name(parts[0])).rpartition("/")[0]
        # One listing, because a file may have thousands of parts.
        listed = {blob.name: blob for blob in self._bucket.list_blobs(prefix=f"{folder}/", **TIMEOUTS)}
        found = []
        for part in parts:
            blob = listed.get(self.key(part_file_name(part)))
            if blob is None or (int(blob.size), _crc_of_blob(blob)) != (part.size, part.crc):
                raise self.changed_part_error(part_file_name(part), part)
            found.append((part, blob))
        return found

    def _compose_larger_part(
        self, parts: Sequence[tuple[Part, Any]], part_file_name: Callable[[Part], str]
    ) -> tuple[Part, Any]:
        """Compose several parts into a larger one, and return it with its object."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0][0].offset
        joined = Part(first, parts[-1][0].end - first, crc_of_parts(part for part, _ in parts))
        return joined, self._compose_blobs(part_file_name(joined), [blob for _, blob in parts])

    def _compose_blobs(self, name: str, blobs: Sequence[Any]) -> Any:
        """Compose an object from given generations of other objects; the request can safely be repeated."""
        target = self._bucket.blob(self.key(name))
        target.content_type = _TYPE
        target.compose(list(blobs), if_source_generation_match=[blob.generation for blob in blobs], **TIMEOUTS)
        return target

    def _put(self, key: str, data: bytes, **condition: int) -> int:
        """Write an object in one request, with a random mark by which a retry recognises it; return its generation."""
        self.pace.wait_in_steps(len(data))
        mark = secrets.token_hex(16)
        blob = self._bucket.blob(key)
        blob.metadata = {_UPLOAD: mark, _CRC: f"{zlib.crc32(data):08x}"}

        def try_put() -> int:
            try:
                # Not retried by the package, which would not look for an upload whose answer was lost.
                blob.upload_from_string(
                    data, content_type=_TYPE, checksum="crc32c", timeout=TIMEOUTS["timeout"], retry=None, **condition
                )
            except PreconditionFailed:
                raise  # the caller looks at the object for as long as the server needs
            except ERRORS:
                # If only the answer was lost, another attempt would find a newer generation, or no upload any more.
                generation = self._find_upload(key, mark)
                if generation is None:
                    raise
                return generation
            return int(blob.generation)

        return int(TIMEOUTS["retry"](try_put)())

    def _find_upload(self, key: str, upload_mark: str) -> int | None:
        """Return the generation of an object that this upload has written, as its mark shows; else None."""
        with suppress(*ERRORS):  # of an unreachable server; the next attempt asks again
            # Briefly, because this runs within each of the attempts.
            found = self._head(key, SHORT_TIMEOUTS)
            if found is not None and (found.metadata or {}).get(_UPLOAD) == upload_mark:
                return int(found.generation)
        return None

    def _head(self, key: str, request_options: dict[str, Any] = TIMEOUTS) -> Any:
        """Return the newest generation of an object, or None if there is none."""
        return self._bucket.get_blob(key, **request_options)


def _to_found_file(blob: Any) -> FoundFile:
    return FoundFile(int(blob.size), blob.updated, int(blob.generation), _crc_of_blob(blob))


def _crc_of_blob(blob: Any) -> int:
    """Return the CRC-32 that the writer of an object has stored with it."""
    text = str((blob.metadata or {}).get(_CRC))
    return int(text, 16) if _CRC_TEXT.fullmatch(text) else UNKNOWN_CRC
