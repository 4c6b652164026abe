"""A target in an object store other than S3, through the package obstore.

Each part is an object, as in S3. obstore has no request that joins objects on the server, so for a complete file the
parts are read back and written to one object, which appears once its last byte has been written. Manifests are replaced
by conditional puts: if two agents send one at the same time, the server performs only one of them.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from commitlake.connectors.shipping.errors import ShipConflictError, ShipError, ShipUnavailableError
from commitlake.connectors.shipping.target import ShipTarget
from commitlake.connectors.storage.cloud_clients import FEW_ATTEMPTS, MAX_ATTEMPTS, cloud_client
from commitlake.connectors.storage.cloud_errors import ERRORS, cloud_error
from commitlake.connectors.storage.cloud_uris import parse_cloud_uri
from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.pace import Pace
from commitlake.schemas.shipped import MAX_MANIFEST_BYTES, PARTS, Part, ShippedFile, part_name
from commitlake.schemas.store_files import check_relative

_BLOCK_BYTES = 8 << 20
_MARK = "commitlake_upload"


class CloudTarget(ShipTarget):
    """Target under a prefix of a container.

    Args:
        root: URI of the prefix.
        pace: limit of the bandwidth.
    """

    has_parts = True

    def __init__(self, root: str, pace: Pace) -> None:
        self._root = parse_cloud_uri(root)
        self.text = str(self._root)
        self._pace = pace
        self._versions: dict[str, dict[str, str] | None] = {}
        self._tried: dict[str, set[bytes]] = {}  # SHA-256 of manifests that may have been written

    def claim(self) -> None:
        """See ShipTarget; an object store has no locks, and the conditional put of the manifest replaces them."""
        with self._errors("the container"):
            for _ in obstore.list(cloud_client(self._root, FEW_ATTEMPTS), self._root.prefix or None, chunk_size=1):
                break

    def close(self) -> None:
        """See ShipTarget."""

    def names_in(self, folder: str, limit: int) -> list[str]:
        """See ShipTarget."""
        prefix = self._key(folder)
        with self._errors(folder):
            found = next(iter(obstore.list(self._client, prefix, chunk_size=limit)), [])
        return [each["path"].removeprefix(f"{prefix}/") for each in found][:limit]

    def read_manifest(self, name: str) -> bytes | None:
        """See ShipTarget."""
        with self._errors(name):
            try:
                answer = obstore.get(self._client, self._key(name))
            except FileNotFoundError:
                self._versions[name] = None
                return None
            if answer.meta["size"] > MAX_MANIFEST_BYTES:
                raise ShipError(f"{self.text}/{name}: expected at most {MAX_MANIFEST_BYTES} bytes, found more")
            data = bytes(answer.bytes())
            self._versions[name] = _version(answer.meta)
            return data

    def read_range(self, name: str, offset: int, size: int) -> bytes | None:
        """Return a range of an object, or less if it ends before; None if it does not exist."""
        key = self._key(name)
        with self._errors(name), suppress(FileNotFoundError):
            end = min(offset + size, int(obstore.head(self._client, key)["size"]))
            if offset >= end:
                return b""
            data = bytes(obstore.get_range(self._client, key, start=offset, end=end))
            self._pace.take(len(data))
            return data
        return None

    def replace_manifest(self, name: str, data: bytes) -> None:
        """See ShipTarget."""
        mine = hashlib.sha256(data).digest()
        tried = self._tried.setdefault(name, set())
        tried.add(mine)
        while True:
            version = self._versions.get(name)
            try:
                with self._errors(name):
                    answer = self._put(name, data, mode="create" if version is None else version)
                self._versions[name] = _version(answer)
            except (AlreadyExistsError, PreconditionError):
                # An earlier attempt, or an earlier manifest, may have been written, and the answer may be lost.
                digest = hashlib.sha256(self.read_manifest(name) or b"").digest()
                if digest not in tried or (digest != mine and self._versions[name] == version):
                    self._versions[name] = version
                    raise ShipConflictError(
                        f"{self.text}: {name} was replaced by another agent: stop one of the two"
                    ) from None
                if digest != mine:
                    continue
            tried.clear()
            return

    def put(self, name: str, data: bytes, modified_ms: int = 0) -> None:  # noqa: ARG002
        """See ShipTarget."""
        with self._errors(name):
            self._put(name, data)

    def delete(self, name: str) -> None:
        """See ShipTarget."""
        with self._errors(name), suppress(FileNotFoundError):
            obstore.delete(self._client, self._key(name))

    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """See ShipTarget."""
        with self._errors(file.name):
            self._put(part_name(file.name, part), data)

    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """See ShipTarget; only its size is compared."""
        return self._size(part_name(file.name, part)) == part.size

    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """See ShipTarget."""
        for part in parts:
            self.delete(part_name(file.name, part))

    def part_names(self) -> Iterator[str]:
        """See ShipTarget."""
        root = self._root.key("")
        with self._errors(PARTS):
            for page in obstore.list(self._client, self._key(PARTS)):
                yield from (each["path"].removeprefix(f"{root}/") for each in page)

    def cut(self, file: ShippedFile, end: int) -> None:
        """See ShipTarget; the parts are deleted later, when a manifest without them is written."""

    def seal(self, file: ShippedFile) -> None:
        """See ShipTarget."""
        with self._errors(file.name):
            if not file.parts:
                self._put(file.name, b"")
                return
            self._compose(file)
        found = self.sealed_size(file)
        if found != file.size:
            raise ShipUnavailableError(f"{self.text}/{file.name}: expected {file.size} bytes, found {found}")

    def sealed_size(self, file: ShippedFile) -> int | None:
        """See ShipTarget."""
        return self._size(file.name)

    @property
    def _client(self) -> Any:
        return cloud_client(self._root, MAX_ATTEMPTS)

    def _compose(self, file: ShippedFile) -> None:
        """Write a file's parts as one object; after an error the writer is not closed, so no object appears."""
        key, mark = self._key(file.name), secrets.token_hex(16)
        writer = obstore.open_writer(
            self._client, key, attributes={_MARK: mark}, buffer_size=_BLOCK_BYTES, max_concurrency=1
        )
        for data in self._bytes_of(file):
            writer.write(data)
        try:
            writer.close()
        except OSError:
            # The answer to an earlier attempt may be lost; a second attempt finds no parts of the upload any more.
            with suppress(FileNotFoundError):
                if obstore.get(self._client, key, options={"head": True}).attributes.get(_MARK) == mark:
                    return
            raise

    def _bytes_of(self, file: ShippedFile) -> Iterator[bytes]:
        """Yield the bytes of a file's parts, each part once its checksum is known to be right."""
        for part in file.parts:
            name = part_name(file.name, part)
            data = bytes(obstore.get(self._client, self._key(name)).bytes())
            if (len(data), zlib.crc32(data)) != (part.size, part.crc):
                raise ShipError(
                    f"{self.text}/{name}: expected {part.size} bytes with its CRC-32: the object was changed"
                )
            self._pace.take_in_steps(len(data))
            yield data

    def _put(self, name: str, data: bytes, **condition: Any) -> Any:
        self._pace.take_in_steps(len(data))
        return obstore.put(self._client, self._key(name), data, use_multipart=False, **condition)

    def _size(self, name: str) -> int | None:
        with self._errors(name), suppress(FileNotFoundError):
            return int(obstore.head(self._client, self._key(name))["size"])
        return None

    def _key(self, name: str) -> str:
        check_relative(name)
        return self._root.key(name)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Convert the errors of obstore, except those of conditions."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except ERRORS as error:
            found = cloud_error(error, self._root, f"{self.text}, {name}: ")
            kind = ShipUnavailableError if isinstance(found, CloudUnavailableError) else ShipError
            raise kind(str(found)) from None


def _version(found: Any) -> dict[str, str]:
    """Return what identifies a version of an object: its tag, and at some servers a number."""
    return {name: found[name] for name in ("e_tag", "version") if found[name]}
