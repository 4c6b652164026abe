"""Tasks that read bodies: first the locations of all bodies, divided by pack; then each pack once."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.erasures import ErasedPlaces
from commitlake.connectors.lake.packs.body_check import ERROR, KEPT, check_bodies
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.lake.versions import AddedFile
from commitlake.connectors.plain_arrays import dict_rows
from commitlake.pipelines.audit.local.message_rows import MessageRows
from commitlake.pipelines.audit.local.partition_files import partition_numbers, read_partition, write_partitions
from commitlake.pipelines.audit.local.windows import merge_windows, to_windows
from commitlake.pipelines.audit.sides import SHOWN, body_error
from commitlake.schemas.tables.messages import BODY_PLACE, BODY_REF, STORE_DATE

COLUMNS = (*KEPT, "body_size", "body_crc", BODY_REF.name, STORE_DATE.name)
_PLACE = BODY_PLACE.names
_BATCH_ROWS = 1 << 15
_DATED = "store_date="  # prefix of the names of packs with a date
_UNDATED = f"{_DATED}__"  # placeholder in a name without a date; sorts after every date
BodyErrors = list[tuple[str, int, str]]
"""Broker and physical offset of messages whose bodies cannot be read, with the reason."""


@dataclass(frozen=True)
class BodyPlaces:
    """Locations of the bodies of messages; picklable.

    Attributes:
        rows: rows of `messages`, with `COLUMNS`.
        kept_since: bodies of earlier dates are left out; None for none.
        folder: folder for the files that the tasks write.
        partitions: number of partitions.
        erased: messages with erased bodies, which are left out.
    """

    rows: MessageRows
    kept_since: datetime.date | None
    folder: Path
    partitions: int
    erased: ErasedPlaces


def find_places(places: BodyPlaces, file: AddedFile) -> tuple[pa.Table, list[Path]]:
    """Count the messages of a data file by window, and write the locations of their bodies, divided by pack."""
    windows, paths = [], []
    for rows in places.rows.read(file):
        rows = places.erased.without(rows)  # noqa: PLW2901 (batch by batch)
        kept = rows if places.kept_since is None else _kept(rows, places.kept_since)
        windows.append(to_windows(kept.select([*KEPT, "body_size", "body_crc"])))
        flat = _with_flat_places(kept)
        numbers = partition_numbers(flat, ["pack"], places.partitions)
        paths.append(write_partitions(flat, numbers, places.partitions, places.folder))
    return merge_windows(windows), paths


def _kept(rows: pa.Table, since: datetime.date) -> pa.Table:
    """Keep the messages whose bodies cannot have expired, by the rule of `transforms.kept_bodies`."""
    packs = pc.struct_field(rows.column(BODY_REF.name), "pack").cast(pa.string())
    is_dated_since = pc.greater_equal(packs, f"{_DATED}{since.isoformat()}")
    is_stored_since = pc.greater_equal(rows.column(STORE_DATE.name), pa.scalar(since)).fill_null(False)
    is_dated = pc.invert(pc.starts_with(packs, _UNDATED))
    kept = pc.and_(is_dated_since, pc.or_(is_dated, is_stored_since)).fill_null(True)
    return rows.filter(kept).combine_chunks()


def _with_flat_places(rows: pa.Table) -> pa.Table:
    """Return rows with the fields of `body_ref` as columns of their own, for partitioning and sorting."""
    places = rows.column(BODY_REF.name)
    columns = {name: rows.column(name) for name in (*KEPT, "body_size", "body_crc")}
    columns |= {name: pc.struct_field(places, name) for name in _PLACE}
    return pa.table([_plain(column) for column in columns.values()], list(columns))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary column. Arrow requires all batches of a file to share their dictionaries."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def check_packs(location: PackLocation, paths: Sequence[Path], number: int) -> tuple[pa.Table, BodyErrors]:
    """Read the bodies of one partition.

    Args:
        paths: from `find_places`.
        number: index of the partition.

    Returns:
        A table of `AUDIT` with the sizes and CRCs of the bodies that were read, and the first errors.
    """
    rows = pa.concat_tables(read_partition(paths, number))
    order = [(name, "ascending") for name in ("pack", "frame_offset", "offset")]
    rows = rows.take(pc.sort_indices(rows, order)).combine_chunks()
    windows: list[pa.Table] = []
    errors: BodyErrors = []
    store, cache = open_store(location), FrameCache()
    for start in range(0, rows.num_rows, _BATCH_ROWS):
        batch = _with_references(rows.slice(start, _BATCH_ROWS))
        found = pa.Table.from_batches(list(check_bodies(batch, store, cache))).combine_chunks()
        windows.append(to_windows(found))
        errors = _first([*errors, *_errors_of(found)])
    return merge_windows(windows), errors


def _with_references(rows: pa.Table) -> pa.RecordBatch:
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    places = [columns.pop(name) for name in _PLACE]
    columns[BODY_REF.name] = pa.StructArray.from_arrays(places, names=_PLACE)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _errors_of(found: pa.Table) -> Iterator[tuple[str, int, str]]:
    broken = found.filter(pc.is_valid(found.column(ERROR))).select(["broker", "physical_offset", ERROR])
    if broken.num_rows:
        order = [(name, "ascending", "at_start") for name in broken.column_names]
        for row in dict_rows(broken.take(pc.sort_indices(broken, order)[:SHOWN])):
            yield row["broker"], row["physical_offset"], row[ERROR]


def _first(errors: BodyErrors) -> BodyErrors:
    """Return the first errors, by broker and offset. Errors without an offset come first."""
    return sorted(errors, key=lambda error: [(value is not None, value) for value in error])[:SHOWN]


def error_sentences(errors: BodyErrors) -> list[str]:
    """Return sentences on the first errors of all partitions."""
    return [body_error(*error) for error in _first(errors)]
