"""A target of `ship` in memory that behaves like an object store, and functions that read targets."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from commitlake.connectors.shipping.folder import FolderTarget
from commitlake.connectors.shipping.target import ShipError, ShipTarget
from commitlake.connectors.storage.pace import Pace
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.shipped import (
    FILES_MANIFEST,
    LOG_MANIFEST,
    PARTS,
    Manifest,
    Part,
    ShippedFile,
    parse_manifest,
    part_name,
)


class MemoryTarget(ShipTarget):
    """Objects that are written once; any step can be made to fail, as by a kill.

    Attributes:
        objects: the objects by name.
        min_copied: smallest copied part of a file, except its last one.
        before: called with the name of each step before it is done.
    """

    has_parts = True

    def __init__(self, min_copied: int = 1, before: Callable[[str], None] = lambda _: None) -> None:
        self.text = "memory"
        self.objects: dict[str, bytes] = {}
        self.min_copied = min_copied
        self.before = before
        self._known: dict[str, bytes | None] = {}

    def other(self) -> MemoryTarget:
        """Return another client for the same objects."""
        target = MemoryTarget(self.min_copied)
        target.objects = self.objects
        return target

    def claim(self) -> None:
        """See ShipTarget."""

    def close(self) -> None:
        """See ShipTarget."""

    def names_in(self, folder: str, limit: int) -> list[str]:
        """See ShipTarget."""
        return [name.removeprefix(f"{folder}/") for name in self.objects if name.startswith(f"{folder}/")][:limit]

    def read_manifest(self, name: str) -> bytes | None:
        """See ShipTarget."""
        self._known[name] = self.objects.get(name)
        return self._known[name]

    def read_range(self, name: str, offset: int, size: int) -> bytes | None:
        """Return a range of an object, or None if it does not exist."""
        data = self.objects.get(name)
        return None if data is None else data[offset : offset + size]

    def replace_manifest(self, name: str, data: bytes) -> None:
        """See ShipTarget."""
        self.before("manifest")
        if self.objects.get(name) != self._known.get(name):
            raise ShipError("another agent", exit_code=ExitCode.REFUSED)
        self.objects[name] = self._known[name] = data

    def put(self, name: str, data: bytes, modified_ms: int = 0) -> None:  # noqa: ARG002
        """See ShipTarget."""
        self.before("put")
        self.objects[name] = data

    def delete(self, name: str) -> None:
        """See ShipTarget."""
        self.before("delete")
        self.objects.pop(name, None)

    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """See ShipTarget."""
        self.before("part")
        assert (len(data), zlib.crc32(data)) == (part.size, part.crc)
        assert self.objects.setdefault(part_name(file.name, part), data) == data

    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """See ShipTarget."""
        data = self.objects.get(part_name(file.name, part))
        return data is not None and (len(data), zlib.crc32(data)) == (part.size, part.crc)

    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """See ShipTarget."""
        for part in parts:
            self.delete(part_name(file.name, part))

    def part_names(self) -> Iterator[str]:
        """See ShipTarget."""
        yield from [name for name in self.objects if name.startswith(f"{PARTS}/")]

    def cut(self, file: ShippedFile, end: int) -> None:
        """See ShipTarget."""

    def seal(self, file: ShippedFile) -> None:
        """See ShipTarget."""
        self.before("seal")
        assert all(part.size >= self.min_copied for part in file.parts[:-1])
        self.objects[file.name] = b"".join(self.objects[part_name(file.name, part)] for part in file.parts)
        assert len(self.objects[file.name]) == file.size

    def sealed_size(self, file: ShippedFile) -> int | None:
        """See ShipTarget."""
        return len(self.objects[file.name]) if file.name in self.objects else None


def folder_target(root: Path) -> FolderTarget:
    """Return a claimed target in a folder."""
    target = FolderTarget(str(root), Pace())
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
        shipped = data[: file.shipped]
    else:
        assert isinstance(target, MemoryTarget)
        shipped = b"".join(target.objects[part_name(file.name, part)] for part in file.parts)
    assert len(shipped) == file.shipped
    return shipped.ljust(file.size, b"\0")


def _read(target: ShipTarget, name: str) -> bytes | None:
    if isinstance(target, MemoryTarget):
        return target.objects.get(name)
    path = Path(target.text) / name
    return path.read_bytes() if path.exists() else None
