"""Division of index files into partitions, and the stores that their parts name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from commitlake.connectors.formats.index_entries.entry_damage import BadEntries, Reason
from commitlake.connectors.formats.index_entries.entry_options import EntryOptions
from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.store_files import open_store_files, store_folder_of_log
from commitlake.connectors.reading.partition_sizes import FilePart, choose_part_size, compute_read_costs, group_by_size
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.safe_store_files import UnsafeFileError

_MAX_PART_BYTES = 64 << 20
_OPEN_STORES = 4  # per process; a partition reads its stores one after the other

_P = TypeVar("_P", bound=FilePart)


@dataclass(frozen=True, slots=True)
class PlannedStore:
    """Description of a store that is sent to the workers with each part of a read, so it is kept small.

    Attributes:
        broker: the store's name.
        root: the store's folder, as a path or URI.
        read_id: id of the read. A process opens a store once for a read, and so reads the manifest of a copy once.
    """

    broker: str
    root: str
    read_id: str

    @property
    def is_copy(self) -> bool:
        """True for a copy in an object store or HDFS."""
        return is_uri(self.root)

    def open_files(self) -> StoreFiles:
        """Return the files of the store.

        Raises:
            StoreError: see `open_store_files`.
        """
        return _open_files_once(self.root, self.read_id)

    def location_of(self, path: str) -> str:
        """Return the path or URI of a file of the store, without opening the store."""
        return f"{self.root.rstrip('/')}/{path}" if self.is_copy else str(Path(self.root, path))

    def make_missing_range(self, start: int, end: int) -> BadEntries:
        """Return the bad range for a file that existed during planning but no longer exists."""
        found = "none, though the copy's manifest names it" if self.is_copy else "none: the file was deleted just now"
        return BadEntries(start, end, Reason.MISSING, "a file", found)


@lru_cache(maxsize=_OPEN_STORES)
def _open_files_once(root: str, read_id: str) -> StoreFiles:  # noqa: ARG001 (another read reads the manifest again)
    return open_store_files(root, is_read_once=True)


def plan_stores(
    options: EntryOptions, filters: Filters, plan_parts: Callable[[Store, PlannedStore], Iterable[_P]]
) -> list[list[_P]]:
    """Return the partitions of a read of several stores, each a list of parts.

    Args:
        filters: the filters from the options and from Spark; only the brokers are used.
        plan_parts: returns the parts of a store's files.

    Raises:
        StoreError: for a store that cannot be read, or with a link among its files.
    """
    parts: list[_P] = []
    # A new id for each read, so that workers that live on do not answer from an older manifest.
    read_id = secrets.token_hex(8)
    for store in find_stores(options.path, options.broker, formats=options.readable_log_formats):
        if filters.brokers is None or store.broker in filters.brokers:
            try:
                parts += plan_parts(store, PlannedStore(store.broker, store_folder_of_log(store.root), read_id))
            except UnsafeFileError as error:
                raise StoreError(str(error)) from None
            except PermissionError as error:
                if error.filename is None:
                    raise StoreError(
                        f"{store.root} cannot be read by this user: {error}: run as the broker's user"
                    ) from None
                raise StoreError(f"{error.filename} cannot be read by this user: run as the broker's user") from None
    costs = compute_read_costs(parts)
    return group_by_size(parts, costs, options.max_partition_bytes or choose_part_size(sum(costs), os.cpu_count() or 1))


def divide_entry_range(start: int, end: int, entry_size: int) -> Iterator[tuple[int, int]]:
    """Divide a range of a file at boundaries of entries, so that each part fits in one partition.

    Args:
        start: position of the first byte.
        end: position after the last entry; the range has whole entries.
        entry_size: size of an entry, bytes.
    """
    step = _MAX_PART_BYTES // entry_size * entry_size
    for first in range(start, end, step):
        yield first, min(end, first + step)
