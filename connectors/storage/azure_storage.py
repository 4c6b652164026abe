"""A prefix in a container of Azure's object store, through the package obstore.

obstore has no request that joins objects on the server, so a file that consists of others is written from bytes that
are read back; it appears once its last byte has been written. Conditional puts replace a version: if two processes send
one at the same time, the server performs only one of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from commitlake.connectors.storage.cloud_clients import FEW_ATTEMPTS, MAX_ATTEMPTS, cloud_client
from commitlake.connectors.storage.cloud_errors import ERRORS, cloud_error
from commitlake.connectors.storage.cloud_storage import CloudStorage
from commitlake.connectors.storage.errors import CloudError
from commitlake.connectors.storage.storage import Content, Entry, FoundFile, ReplacedError
from commitlake.schemas.shipped import Part

_BLOCK_BYTES = 8 << 20
_MARK = "commitlake_upload"


class AzureStorage(CloudStorage):
    """Objects under a prefix of a container; see CloudStorage."""

    known_errors = ERRORS

    def has_objects(self, folder: str, *, is_waited_for: bool = False) -> bool:
        """See CloudStorage."""
        client = cloud_client(self.root, FEW_ATTEMPTS if is_waited_for else MAX_ATTEMPTS)
        key = self.key(folder)
        with self.errors(folder, "listed"):
            return any(page for page in obstore.list(client, f"{key}/" if key else None, chunk_size=1))

    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """See Storage."""
        yield from islice(self._listed(folder, limit), limit)

    def _listed(self, folder: str, limit: int | None) -> Iterator[str]:
        root, key = self.root.key(""), self.key(folder)
        with self.errors(folder, "listed"):
            for page in obstore.list(self._client, key or None, chunk_size=limit or 1000):
                yield from (each["path"].removeprefix(f"{root}/") for each in page)

    def entries(self, folder: str) -> list[Entry]:
        """See ReadableStorage."""
        key = self.key(folder)
        with self.errors(folder, "listed"):
            found: Any = obstore.list_with_delimiter(self._client, key or None)
        folders = set(found["common_prefixes"])
        if not folders and not found["objects"]:
            raise FileNotFoundError(f"{self.place_of(folder)} does not exist")
        # With hierarchical namespaces, a folder is also an object.
        objects = {each["path"]: _found(each) for each in found["objects"] if each["path"] not in folders}
        return [
            *(Entry(path.rpartition("/")[2]) for path in sorted(folders)),
            *(Entry(path.rpartition("/")[2], objects[path]) for path in sorted(objects)),
        ]

    def head(self, name: str) -> FoundFile | None:
        """See Storage."""
        key = self.key(name)
        with self.errors(name, "read"), suppress(FileNotFoundError):
            return _found(obstore.head(self._client, key))
        return None

    def get(self, name: str, max_bytes: int) -> Content | None:
        """See Storage."""
        key = self.key(name)
        with self.errors(name, "read"), suppress(FileNotFoundError):
            answer = obstore.get(self._client, key)
            if answer.meta["size"] > max_bytes:
                raise self.too_large(name, max_bytes)
            return Content(bytes(answer.bytes()), _version(answer.meta))
        return None

    def read(self, name: str, start: int, end: int, found: FoundFile) -> bytes | None:
        """See CloudStorage."""
        key = self.key(name)
        options: Any = {"range": (start, end)}
        if found.version:
            options["if_match"] = found.version
        with self.errors(name, "read"):
            try:
                return bytes(obstore.get(self._client, key, options=options).bytes())
            except PreconditionError:
                raise ReplacedError from None
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        """See Storage."""
        with self.errors(name, "written"):
            self._put(name, data)

    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """See Storage; the version is the object's tag, and at some servers a number."""
        with self.errors(name, "written"):
            try:
                return _version(self._put(name, data, mode="create" if version is None else version))
            except (AlreadyExistsError, PreconditionError):
                raise ReplacedError from None

    def delete(self, name: str) -> None:
        """See Storage."""
        key = self.key(name)
        with self.errors(name, "deleted"), suppress(FileNotFoundError):
            obstore.delete(self._client, key)

    def compose(self, name: str, parts: Sequence[Part], name_of: Callable[[Part], str]) -> None:
        """See Storage; after an error the writer is not closed, so no object appears."""
        key, mark = self.key(name), secrets.token_hex(16)
        with self.errors(name, "written"):
            writer = obstore.open_writer(
                self._client, key, attributes={_MARK: mark}, buffer_size=_BLOCK_BYTES, max_concurrency=1
            )
            for part in parts:
                writer.write(self._read_part(name_of(part), part))
            try:
                writer.close()
            except OSError:
                # The answer to an earlier attempt may be lost; a second attempt finds no parts of the upload any more.
                with suppress(FileNotFoundError):
                    if obstore.get(self._client, key, options={"head": True}).attributes.get(_MARK) == mark:
                        return
                raise

    def explain(self, error: Any, what: str) -> CloudError:
        """See CloudStorage."""
        return cloud_error(error, self.root, what)

    @property
    def _client(self) -> Any:
        return cloud_client(self.root, MAX_ATTEMPTS)

    def _read_part(self, name: str, part: Part) -> bytes:
        """Read a part, once it is known to be right."""
        try:
            data = bytes(obstore.get(self._client, self.key(name)).bytes())
        except FileNotFoundError:
            raise self.changed_part(name, part) from None
        self.check_part(name, part, data)
        self.pace.take_in_steps(len(data))
        return data

    def _put(self, name: str, data: bytes, **condition: Any) -> Any:
        key = self.key(name)
        self.pace.take_in_steps(len(data))
        return obstore.put(self._client, key, data, use_multipart=False, **condition)


def _found(meta: Any) -> FoundFile:
    return FoundFile(int(meta["size"]), meta["last_modified"], meta["e_tag"])


def _version(found: Any) -> dict[str, str]:
    """Return what identifies a version of an object: its tag, and at some servers a number."""
    return {name: found[name] for name in ("e_tag", "version") if found[name]}
