"""Division of index files into partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.formats.engine.filters import Narrowing
from commitlake.connectors.formats.engine.options import BY_SIZE
from commitlake.connectors.formats.engine.part_sizes import Part, cost_of, group_parts, part_bytes
from commitlake.connectors.formats.engine.stores import Store, find_stores
from commitlake.connectors.formats.index_entries.entry_options import EntryOptions
from commitlake.schemas.shipped import fetch_hint
from commitlake.schemas.store_files import UnsafeFileError

MAX_FILE_BYTES = (1 << 31) - 1
"""Maximum size of these files, because a broker computes it as an int."""
_MAX_PART_BYTES = 64 << 20
_LOCAL_MARK = "://"

_P = TypeVar("_P", bound=Part)


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
    if options.max_partition_bytes != BY_SIZE:
        return group_parts(parts, options.max_partition_bytes)
    return group_parts(parts, part_bytes(cost_of(parts), os.cpu_count() or 1))


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
