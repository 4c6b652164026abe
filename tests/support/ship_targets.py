"""A target of `ship` in memory that behaves like an object store, and functions that read targets."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from commitlake.connectors.shipping.folder_target import FolderTarget
from commitlake.connectors.shipping.ship_target import ShipTarget
from commitlake.connectors.shipping.storage_target import StorageTarget
from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.connectors.storage.storage import FileContent, FoundFile, ReplacedError, Storage
from commitlake.schemas.shipped_manifest import (
    FILES_MANIFEST,
    LOG_MANIFEST,
    PARTS,
    Manifest,
    Part,
    ShippedFile,
    parse_manifest,
    part_name,
)

NEVER = datetime.datetime.fromtimestamp(0, datetime.UTC)


class MemoryStorage(Storage):
    """Files in memory, as in an object store whose server joins them; any step can be made to fail, as by a kill.

    Args:
        min_copied: smallest part of a file that can be joined, except the last one.
        before: called with the name of each step before it is done.

    Attributes:
        objects: the files by name.
    """

    def __init__(self, min_copied: int, before: Callable[[str], None]) -> None:
        super().__init__("memory", None)
        self.objects: dict[str, bytes] = {}
        self._min_copied, self._before = min_copied, before

    def check_access(self) -> None:
        """See Storage."""

    def delete_unfinished_files(self) -> None:
        """See Storage; nothing is unfinished."""

    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """See Storage."""
        yield from [name for name in self.objects if name.startswith(f"{folder}/")][:limit]

    def head(self, name: str) -> FoundFile | None:
        """See Storage."""
        data = self.objects.get(name)
        return None if data is None else FoundFile(len(data), NEVER, data, zlib.crc32(data))

    def get(self, name: str, max_bytes: int) -> FileContent | None:
        """See Storage; the content is the version."""
        data = self.objects.get(name)
        assert data is None or len(data) <= max_bytes
        return None if data is None else FileContent(data, data)

    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """See Storage."""
        data = self.objects.get(name)
        return None if data is None else data[start : start + size]

    def put(self, name: str, data: bytes) -> None:
        """See Storage; a part is never replaced by other bytes, and its name tells its size and its checksum."""
        is_part = name.startswith(f"{PARTS}/")
        self._before("part" if is_part else "put")
        if is_part:
            assert name.endswith(f"-{len(data)}-{zlib.crc32(data):08x}")
            assert self.objects.get(name, data) == data
        self.objects[name] = data

    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """See Storage."""
        self._before("manifest")
        if self.objects.get(name) != version:
            raise ReplacedError
        self.objects[name] = data
        return data

    def delete(self, name: str) -> None:
        """See Storage."""
        self._before("delete")
        self.objects.pop(name, None)

    def compose(self, name: str, parts: Sequence[Part], part_file_name: Callable[[Part], str]) -> None:
        """See Storage."""
        self._before("seal")
        assert all(part.size >= self._min_copied for part in parts[:-1])
        self.objects[name] = b"".join(self.objects[part_file_name(part)] for part in parts)


class MemoryTarget(StorageTarget):
    """A target in memory; see MemoryStorage.

    Args:
        min_copied: smallest copied part of a file, except its last one.
        before: called with the name of each step before it is done.
    """

    def __init__(self, min_copied: int = 1, before: Callable[[str], None] = lambda _: None) -> None:
        self._min_copied, self._memory = min_copied, MemoryStorage(min_copied, before)
        super().__init__(self._memory)

    @property
    def objects(self) -> dict[str, bytes]:
        """The objects by name."""
        return self._memory.objects

    @objects.setter
    def objects(self, objects: dict[str, bytes]) -> None:
        self._memory.objects = objects

    def other(self) -> MemoryTarget:
        """Return another client for the same objects."""
        target = MemoryTarget(self._min_copied)
        target.objects = self.objects
        return target


def folder_target(root: Path) -> FolderTarget:
    """Return a claimed target in a folder."""
    target = FolderTarget(str(root), BandwidthLimit())
    target.claim()
    return target


def manifests(target: ShipTarget) -> Iterator[Manifest]:
    """Yield the two manifests of a target, as far as they exist."""
    for name in (LOG_MANIFEST, FILES_MANIFEST):
        if (data := _read(target, name)) is not None:
            yield parse_manifest(data, name)


def copied_files(target: ShipTarget) -> dict[str, bytes]:
    """Return the files that the manifests of a target describe, with zeros after the shipped bytes."""
    return {name: _content(target, file) for manifest in manifests(target) for name, file in manifest.files.items()}


def _content(target: ShipTarget, file: ShippedFile) -> bytes:
    if file.is_sealed or isinstance(target, FolderTarget):
        data = _read(target, file.name)
        assert data is not None
        shipped = data[: file.shipped_bytes]
    else:
        assert isinstance(target, MemoryTarget)
        shipped = b"".join(target.objects[part_name(file.name, part)] for part in file.parts)
    assert len(shipped) == file.shipped_bytes
    return shipped.ljust(file.size, b"\0")


def _read(target: ShipTarget, name: str) -> bytes | None:
    if isinstance(target, MemoryTarget):
        return target.objects.get(name)
    path = Path(target.text) / name
    return path.read_bytes() if path.exists() else None
