"""Division of IndexFiles into partitions, on the driver, which reads the files' headers.

A copy in an object store has all IndexFiles but the newest one, see `connectors.sources.indexfile`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from commitlake.connectors.formats.index_entries.entry_columns import storable_time_mask
from commitlake.connectors.formats.index_entries.entry_damage import BadEntries, Reason
from commitlake.connectors.formats.index_entries.entry_options import IndexContent, IndexFileOptions
from commitlake.connectors.formats.index_entries.partitions import PlannedStore, divide_entry_range, plan_stores
from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import MissingObjectError, read_range
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.stores import Store
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.integer_parsing import INT32_MAX
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    SLOT,
    Geometry,
    Header,
    geometry_of,
    parse_header,
)

_FOLDER = "index"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An IndexFile of a store: its path, its number of slots and entries, and its parsed header.

    Attributes:
        store: the store.
        path: path of the file in the store.
        geometry: its slots and entries.
        header: the parsed header; None if it contradicts the file.
    """

    store: PlannedStore
    path: str
    geometry: Geometry
    header: Header | None

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.rpartition("/")[2]

    @property
    def location(self) -> str:
        """Path or URI of the file, for messages."""
        return self.store.location_of(self.path)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Part of an IndexFile that one task reads: slots, entries, the header, or a bad range that is already known.

    Attributes:
        file: the file of the range.
        start: position of the first byte.
        end: position after the last byte.
        bad: the bad range, if the part stands for one.
    """

    file: IndexFile
    start: int
    end: int
    bad: BadEntries | None = None

    @property
    def size(self) -> int:
        """Number of bytes that are read."""
        return 0 if self.bad else self.end - self.start


def plan_index_files(options: IndexFileOptions, filters: Filters) -> list[list[IndexPart]]:
    """Return the partitions of a read of IndexFiles, each a list of parts.

    Args:
        filters: the filters from the options and from Spark; only the brokers are used.

    Raises:
        StoreError: if the path has no store with an index, or there is a link among its files, or a copy was changed.
    """
    return plan_stores(options, filters, lambda store, planned: _plan_store_parts(store, planned, options))


def _plan_store_parts(store: Store, planned_store: PlannedStore, options: IndexFileOptions) -> Iterator[IndexPart]:
    files = planned_store.open_files()
    if not files.has_folder(_FOLDER):
        if planned_store.is_copy and any(map(files.has_folder, store.format.queues.folders)):
            return  # the store has one IndexFile at most, and the newest one is not copied
        raise StoreError(
            f"{planned_store.root} has no folder '{_FOLDER}': expected the store of a RocketMQ broker, which has its "
            "IndexFiles there"
        )
    if (
        options.key_hashes is not None
        and (reason := store.format.indexes.no_key_index_reason(store.segments)) is not None
    ):
        folder = planned_store.location_of(_FOLDER)
        raise StoreError(f"{folder}: keys cannot be looked up in this index: {reason}. Read it without the option keys")
    for name in files.files_in(_FOLDER, str.isdecimal):
        yield from _plan_file_parts(planned_store, files, f"{_FOLDER}/{name}", options)


def _plan_file_parts(
    store: PlannedStore, files: StoreFiles, path: str, options: IndexFileOptions
) -> Iterator[IndexPart]:
    unknown = IndexFile(store, path, Geometry(0, 0), None)
    try:
        with closing(files.open(path, HEADER.size)) as opened:
            size, head = opened.size(), read_range(opened, 0, HEADER.size).tobytes()
    except FileNotFoundError:
        return  # the broker has expired it since it was listed
    except MissingObjectError:
        missing = store.make_missing_range(0, files.size_of(path))
        yield IndexPart(unknown, missing.start, missing.end, missing)
        return
    try:
        geometry = options.index_file_geometry or geometry_of(size)
    except LayoutError as error:
        expected = f"{error.expected}; or the options indexSlots and indexEntries, which are the broker's settings"
        yield IndexPart(unknown, 0, size, BadEntries(0, size, Reason.SIZE, expected, error.found, head))
        return
    if size < HEADER.size:
        bad = BadEntries(size, geometry.file_size, Reason.CUT, f"{geometry.file_size} bytes", f"{size}")
        yield IndexPart(unknown, bad.start, bad.end, bad)
        return
    header = parse_header(head)
    fault = _find_header_fault(header, geometry)
    file = IndexFile(store, path, geometry, None if fault else header)
    if fault is not None:
        bad = BadEntries(0, HEADER.size, Reason.HEADER, fault, _format_header(header), head)
        yield IndexPart(file, 0, HEADER.size, bad)
    # Also with a wrong header: the entries are checked one by one, and do not need it.
    yield from _plan_parts_of_content(file, size, options.content)
    if size != geometry.file_size:
        yield IndexPart(file, size, geometry.file_size, _find_file_size_fault(size, geometry))


def _find_file_size_fault(size: int, geometry: Geometry) -> BadEntries:
    """Return the bad range for a file whose size is not the one that the broker's settings give."""
    start, end = sorted((size, geometry.file_size))
    reason = Reason.CUT if size < geometry.file_size else Reason.SIZE
    return BadEntries(start, end, reason, f"{geometry.file_size} bytes", f"{size}")


def _find_header_fault(header: Header, geometry: Geometry) -> str | None:
    """Return the expected values of the first invalid header field as a text; None if all fields are valid."""
    # A killed broker may leave counts that are too low, but never too high.
    if not 0 <= header.index_count <= geometry.entries:
        return f"an index_count of 0 to {geometry.entries}"
    if not 0 <= header.used_slots <= geometry.slots:
        return f"used_slots of 0 to {geometry.slots}"
    if not storable_time_mask(np.array(header[:2], np.int64)).all():
        return "times since 1970"
    if min(header.begin_physical_offset, header.end_physical_offset) < 0:
        return "physical offsets of at least 0"
    return None


def _format_header(header: Header) -> str:
    return ", ".join(f"{name} {value}" for name, value in header._asdict().items())


def _plan_parts_of_content(file: IndexFile, size: int, content: IndexContent) -> Iterator[IndexPart]:
    geometry = file.geometry
    if content is IndexContent.HEADERS:
        if file.header is not None:
            yield IndexPart(file, 0, HEADER.size)
        return
    if content is IndexContent.SLOTS:
        start, limit, unit = geometry.slot_position(0), geometry.slot_position(geometry.slots), SLOT.size
    else:
        start, limit, unit = geometry.entry_position(1), geometry.file_size, ENTRY.size
    end = start + max(0, min(size, limit) - start) // unit * unit
    for first, last in divide_entry_range(start, end, unit):
        yield IndexPart(file, first, last)


def written_end(file: IndexFile) -> int:
    """Return the position after a file's last written entry, according to its header."""
    count = file.header.index_count if file.header is not None else 0
    # The header's count is one more than the entries, and an untrue one must not exceed what a position can be.
    return file.geometry.entry_position(min(max(1, count), INT32_MAX))
