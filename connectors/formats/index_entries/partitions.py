"""Division of index files into partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.formats.engine.filters import Narrowing
from commitlake.connectors.formats.engine.options import BY_SIZE
from commitlake.connectors.formats.engine.read_plan import partition_bytes
from commitlake.connectors.formats.engine.stores import Store, find_stores
from commitlake.connectors.formats.index_entries.entry_options import EntryOptions
from commitlake.schemas.shipped import fetch_hint
from commitlake.schemas.store_files import UnsafeFileError

MAX_FILE_BYTES = (1 << 31) - 1
"""Maximum size of these files, because a broker computes it as an int."""
_MAX_PART_BYTES = 64 << 20
_OPENING_BYTES = 256 << 10  # opening a file costs as much as reading this
_LOCAL_MARK = "://"


class _Part(Protocol):
    @property
    def size(self) -> int:
        """Number of bytes that are read."""


_P = TypeVar("_P", bound=_Part)


def plan_stores(
    options: EntryOptions, narrowing: Narrowing, parts_of: Callable[[Store], Iterable[_P]]
) -> list[list[_P]]:
    """Return the parts to read of all stores, as a list for each partition.

    Args:
        options: the options of the read.
        narrowing: the filters from the options and from Spark; only the brokers are used.
        parts_of: returns the parts of a store's files.

    Raises:
        StoreError: for a store that cannot be read, or with a link among its files.
    """
    parts: list[_P] = []
    for store in find_stores(options.path, options.broker, options.formats):
        if narrowing.brokers is None or store.broker in narrowing.brokers:
            try:
                parts += parts_of(store)
            except UnsafeFileError as error:
                raise StoreError(str(error)) from None
            except PermissionError as error:
                raise StoreError(f"{error.filename} cannot be read by this user: run as the broker's user") from None
    return group_parts(parts, options.max_partition_bytes)


def local_root(store: Store) -> Path:
    """Return a store's folder.

    Raises:
        StoreError: if it is not on a local disk.
    """
    if _LOCAL_MARK in store.root:
        raise StoreError(
            f"{store.root}: expected a store on a local disk, because indexes can only be read from there"
            f"{fetch_hint(store.root)}"
        )
    return Path(store.root).parent


def divide_range(start: int, end: int, unit: int) -> Iterator[tuple[int, int]]:
    """Divide a range of a file into ranges that fit in one partition, at boundaries of entries.

    Args:
        start: position of the first byte.
        end: position after the last entry; the range has whole entries.
        unit: size of an entry, bytes.
    """
    step = _MAX_PART_BYTES // unit * unit
    for first in range(start, end, step):
        yield first, min(end, first + step)


def group_parts(parts: Sequence[_P], max_bytes: int) -> list[list[_P]]:
    """Group parts of files in order, so that each group is one partition.

    Args:
        parts: parts of files.
        max_bytes: largest size of a group; a single part may be larger. BY_SIZE: two groups per core of this machine.
    """
    if max_bytes == BY_SIZE:
        max_bytes = partition_bytes(sum(_costs(parts)), os.cpu_count() or 1)
    groups: list[list[_P]] = []
    room = 0
    for part, cost in zip(parts, _costs(parts), strict=True):
        if cost > room or not groups:
            groups.append([])
            room = max_bytes
        groups[-1].append(part)
        room -= cost
    return groups


def _costs(parts: Iterable[_Part]) -> Iterator[int]:
    return (part.size + _OPENING_BYTES for part in parts)
