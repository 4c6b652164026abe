"""A target in Google Cloud Storage, through the package google-cloud-storage.

Each part is an object, as in S3. The server makes a complete file from the parts, at most 32 objects at once
(`compose`), so the bytes are sent only once, and the file appears once its last byte has been written. Manifests are
replaced only if they still have the generation that was read: if two agents send one at the same time, the server
accepts only one of them.

Each upload carries the CRC32C of its bytes, which the server compares, and a random mark. If an answer is lost, the
mark shows whether the object was written. A part also carries its CRC-32, which an object of another writer lacks.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from google.api_core.exceptions import NotFound, PreconditionFailed

from commitlake.connectors.shipping.checksums import crc_of_parts
from commitlake.connectors.shipping.errors import ShipConflictError, ShipError, ShipUnavailableError
from commitlake.connectors.shipping.target import ShipTarget
from commitlake.connectors.storage.cloud_uris import parse_cloud_uri
from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.gcs_clients import SHORT_TIMEOUTS, TIMEOUTS, gcs_bucket
from commitlake.connectors.storage.gcs_errors import ERRORS, gcs_error
from commitlake.connectors.storage.gcs_objects import read_range
from commitlake.connectors.storage.pace import Pace
from commitlake.schemas.shipped import MAX_MANIFEST_BYTES, PARTS, Part, ShippedFile, part_name
from commitlake.schemas.store_files import check_relative

MAX_COMPOSED = 32
"""Largest number of objects that one request joins."""
_TYPE = "application/octet-stream"
_UPLOAD, _CRC = "commitlake_upload", "commitlake_crc32"
_MAX_READS = 5
"""Attempts to read a manifest that is being replaced."""


class GcsTarget(ShipTarget):
    """Target under a prefix of a bucket.

    Args:
        root: `gs://bucket/prefix`.
        pace: limit of the bandwidth.
    """

    has_parts = True

    def __init__(self, root: str, pace: Pace) -> None:
        self._root = parse_cloud_uri(root)
        self.text = str(self._root)
        self._pace = pace
        self._generations: dict[str, int] = {}
        self._tried: dict[str, set[str]] = {}  # marks of manifests that may have been written

    def claim(self) -> None:
        """See ShipTarget; an object store has no locks, and the generation of the manifest replaces them."""
        with self._errors("the bucket"):
            next(iter(self._bucket.list_blobs(prefix=self._root.key(""), max_results=1, **SHORT_TIMEOUTS)), None)

    def close(self) -> None:
        """See ShipTarget."""

    def names_in(self, folder: str, limit: int) -> list[str]:
        """See ShipTarget."""
        prefix = f"{self._key(folder)}/"
        with self._errors(folder):
            # One more, because some tools create an object with the name of the folder and a slash.
            listed = self._bucket.list_blobs(prefix=prefix, max_results=limit + 1, **TIMEOUTS)
            found = [blob.name for blob in listed if blob.name != prefix]
        return [name.removeprefix(prefix) for name in found[:limit]]

    def read_manifest(self, name: str) -> bytes | None:
        """See ShipTarget."""
        for _ in range(_MAX_READS):
            with self._errors(name):
                blob = self._head(name)
                self._generations[name] = 0 if blob is None else int(blob.generation)
                if blob is None:
                    return None
                if blob.size > MAX_MANIFEST_BYTES:
                    raise ShipError(f"{self.text}/{name}: expected at most {MAX_MANIFEST_BYTES} bytes, found more")
                with suppress(NotFound):  # replaced a moment ago
                    return self._read(blob)
        raise ShipConflictError(f"{self.text}: {name} is replaced by another agent all the time: stop one of the two")

    def read_range(self, name: str, offset: int, size: int) -> bytes | None:
        """Return a range of an object, or less if it ends before; None if it does not exist."""
        with self._errors(name):
            blob = self._head(name)
            if blob is None:
                return None
            end = min(offset + size, int(blob.size))
            if offset >= end:
                return b""
            data = read_range(self._bucket.blob(blob.name, generation=blob.generation), offset, end)
        if data is None or len(data) != end - offset:
            raise ShipUnavailableError(f"{self.text}/{name} was replaced while it was read")
        self._pace.take(len(data))
        return data

    def replace_manifest(self, name: str, data: bytes) -> None:
        """See ShipTarget."""
        mark = secrets.token_hex(16)
        tried = self._tried.setdefault(name, set())
        tried.add(mark)
        with self._errors(name):
            while True:
                known = self._generations.get(name, 0)
                try:
                    self._generations[name] = self._put(name, data, mark, if_generation_match=known)
                except PreconditionFailed:
                    # An earlier attempt, or an earlier manifest, may have been written, and the answer may be lost.
                    found = self._head(name)
                    if found is None or int(found.generation) == known or _mark_of(found) not in tried:
                        raise ShipConflictError(
                            f"{self.text}: {name} was replaced by another agent: stop one of the two"
                        ) from None
                    self._generations[name] = int(found.generation)
                    if _mark_of(found) != mark:
                        continue
                tried.clear()
                return

    def put(self, name: str, data: bytes, modified_ms: int = 0) -> None:  # noqa: ARG002
        """See ShipTarget."""
        with self._errors(name):
            self._put(name, data, secrets.token_hex(16))

    def delete(self, name: str) -> None:
        """See ShipTarget."""
        with self._errors(name), suppress(NotFound):
            self._bucket.blob(self._key(name)).delete(**TIMEOUTS)

    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """See ShipTarget."""
        with self._errors(file.name):
            self._put(part_name(file.name, part), data, secrets.token_hex(16))

    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """See ShipTarget; the checksum is that of the upload."""
        with self._errors(file.name):
            return _is_part(self._head(part_name(file.name, part)), part)

    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """See ShipTarget."""
        for part in parts:
            self.delete(part_name(file.name, part))

    def part_names(self) -> Iterator[str]:
        """See ShipTarget."""
        root = f"{self._root.prefix}/" if self._root.prefix else ""
        with self._errors(PARTS):
            for blob in self._bucket.list_blobs(prefix=f"{self._key(PARTS)}/", **TIMEOUTS):
                yield blob.name.removeprefix(root)

    def cut(self, file: ShippedFile, end: int) -> None:
        """See ShipTarget; the parts are deleted later, when a manifest without them is written."""

    def seal(self, file: ShippedFile) -> None:
        """See ShipTarget."""
        if not file.parts:
            self.put(file.name, b"")
            return
        with self._errors(file.name):
            try:
                self._compose(file)
            except (NotFound, PreconditionFailed):
                raise ShipConflictError(
                    f"{self.text}: parts of {file.name} were deleted by another agent: stop one of the two"
                ) from None
        found = self.sealed_size(file)
        if found != file.size:
            raise ShipUnavailableError(f"{self.text}/{file.name}: expected {file.size} bytes, found {found}")

    def sealed_size(self, file: ShippedFile) -> int | None:
        """See ShipTarget."""
        with self._errors(file.name):
            found = self._head(file.name)
            return None if found is None else int(found.size)

    @property
    def _bucket(self) -> Any:
        return gcs_bucket(self._root)

    def _compose(self, file: ShippedFile) -> None:
        """Join a file's parts on the server; more than 32 via larger parts, which the next agent would delete."""
        folder = self._key(f"{PARTS}/of-{file.name}")
        listed = {blob.name: blob for blob in self._bucket.list_blobs(prefix=f"{folder}/", **TIMEOUTS)}
        level, made = [], []
        for part in file.parts:
            name = part_name(file.name, part)
            blob = listed.get(self._key(name))
            if not _is_part(blob, part):
                raise ShipError(
                    f"{self.text}/{name}: expected {part.size} bytes with its CRC-32: the object was changed or deleted"
                )
            level.append((part, blob))
        while len(level) > MAX_COMPOSED:
            level = [self._joined(file, level[at : at + MAX_COMPOSED]) for at in range(0, len(level), MAX_COMPOSED)]
            made += [part for part, _ in level]
        self._join(file.name, [blob for _, blob in level])
        self.drop_parts(file, (part for part in made if part not in file.parts))

    def _joined(self, file: ShippedFile, parts: Sequence[tuple[Part, Any]]) -> tuple[Part, Any]:
        """Return a larger part that was made of some."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0][0].offset
        joined = Part(first, parts[-1][0].end - first, crc_of_parts(part for part, _ in parts))
        return joined, self._join(part_name(file.name, joined), [blob for _, blob in parts])

    def _join(self, name: str, blobs: Sequence[Any]) -> Any:
        """Join the generations of objects that were found; the request may be repeated, and gives the same bytes."""
        target = self._bucket.blob(self._key(name))
        target.content_type = _TYPE
        target.compose(list(blobs), if_source_generation_match=[blob.generation for blob in blobs], **TIMEOUTS)
        return target

    def _put(self, name: str, data: bytes, mark: str, **condition: int) -> int:
        """Write an object with a mark in one piece, and return its generation."""
        self._pace.take_in_steps(len(data))
        blob = self._bucket.blob(self._key(name))
        blob.metadata = {_UPLOAD: mark, _CRC: f"{zlib.crc32(data):08x}"}

        def attempt() -> int:
            try:
                blob.upload_from_string(
                    data, content_type=_TYPE, checksum="crc32c", timeout=TIMEOUTS["timeout"], retry=None, **condition
                )
            except PreconditionFailed:
                raise  # the caller looks at the object for as long as the server needs
            except ERRORS:
                # If only the answer was lost, another attempt would find a newer generation, or no upload any more.
                generation = self._uploaded(name, mark)
                if generation is None:
                    raise
                return generation
            return int(blob.generation)

        return int(TIMEOUTS["retry"](attempt)())

    def _uploaded(self, name: str, mark: str) -> int | None:
        """Return the generation of an object if it has the mark of an upload."""
        with suppress(*ERRORS):  # of an unreachable server; the next attempt asks again
            found = self._head(name, SHORT_TIMEOUTS)
            if found is not None and _mark_of(found) == mark:
                return int(found.generation)
        return None

    def _read(self, blob: Any) -> bytes:
        """Return all bytes of the generation that was found, whose CRC32C is compared."""
        wanted = self._bucket.blob(blob.name, generation=blob.generation)
        return bytes(wanted.download_as_bytes(raw_download=True, checksum="crc32c", **TIMEOUTS))

    def _head(self, name: str, limits: dict[str, Any] = TIMEOUTS) -> Any:
        """Return the newest generation of an object, or None if there is none."""
        return self._bucket.get_blob(self._key(name), **limits)

    def _key(self, name: str) -> str:
        check_relative(name)
        return self._root.key(name)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Convert the errors of the package."""
        try:
            yield
        except ERRORS as error:
            found = gcs_error(error, self._root, f"{self.text}, {name}: ")
            kind = ShipUnavailableError if isinstance(found, CloudUnavailableError) else ShipError
            raise kind(str(found)) from None


def _mark_of(blob: Any) -> str | None:
    """Return the mark of the upload that wrote an object, or None if it has none."""
    mark: str | None = (blob.metadata or {}).get(_UPLOAD)
    return mark


def _is_part(blob: Any, part: Part) -> bool:
    """Return whether an object has the size of a part, and an agent wrote it with the part's checksum."""
    if blob is None or int(blob.size) != part.size:
        return False
    return bool((blob.metadata or {}).get(_CRC) == f"{part.crc:08x}")
