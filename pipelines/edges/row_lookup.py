"""Finds rows of `messages` that steps need: earlier records by unique key, place or offset, and files that have some.

Unique keys are looked up in `message_keys`: only files with rows within `LINK_DAYS` are opened, and only row groups
with matching hashes are read. Rows of `messages` are then read by their places, from files whose bounds include them.

A data file need not be read if none of its records belongs to a step or is needed by one. Most files have only messages
that producers sent to their own topics. Statistics and a few columns show this, at a tenth of the cost of reading the
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.table_rows import convert_data_file_errors
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.message_reader import PLACES, ROWS, LinkInputs, distinct_positions
from commitlake.pipelines.edges.step_records import KEYS_LEAF, MARKING
from commitlake.pipelines.message_keys.key_files import key_hashes
from commitlake.pipelines.message_keys.progress import UNIQUE_KEY
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, Kind
from commitlake.schemas.times import epoch_us

_FLAGS = "sys_flag"
_KIND = "kind"
_KEY = "unique_key"
_PROPERTIES = "properties"
_KEYS = ["broker", "physical_offset", "key", "kind"]


def find_positions_by_key(lake: Lake, keys: pa.Array, since_us: int) -> pa.Table:
    """Return the log positions of the messages that have one of the given unique keys.

    Args:
        keys: unique keys, in any order.
        since_us: files with only older messages are skipped.
    """
    found = [PLACES.empty_table()]
    table = lake.find("message_keys")
    if table is None:
        return found[0]
    keys = pc.unique(keys.drop_null())
    # Sorted and distinct, so that a row group's bounds can be compared by two searches.
    hashes = np.unique(key_hashes(keys))
    folder = lake.open_folder("message_keys")
    for action in read_file_actions(table).to_pylist():
        last = (action.get("max") or {}).get("store_timestamp")
        if last is not None and epoch_us(last) < since_us:
            continue
        name = unquote(action["path"])
        with (
            convert_data_file_errors(lake.uri("message_keys"), name),
            folder.open_input_file(name) as file,
            open_parquet(file) as parquet,
        ):
            found += _find_keys_in_file(parquet, keys, hashes)
    return pa.concat_tables(found).group_by(PLACES.names).aggregate([]).select(PLACES.names)


def _find_keys_in_file(parquet: pq.ParquetFile, keys: pa.Array, hashes: Array) -> Iterator[pa.Table]:
    for group in range(parquet.num_row_groups):
        if not _group_may_have_numbers(parquet, group, "key_hash", hashes):
            continue
        column = parquet.read_row_group(group, ["key_hash"], use_threads=False).column(0)
        places = np.flatnonzero(np.isin(to_numpy_numbers(column), hashes))
        if len(places):
            rows = parquet.read_row_group(group, _KEYS, use_threads=False).take(pa.array(places))
            is_wanted = pc.and_(pc.is_in(rows.column("key"), keys), pc.equal(rows.column("kind"), UNIQUE_KEY))
            yield rows.filter(is_wanted).select(PLACES.names).cast(PLACES)


def read_rows_at_positions(lake: Lake, positions: pa.Table) -> pa.Table:
    """Return the rows of `messages` at the given log positions, with the columns of `ROWS`.

    Args:
        positions: table of `PLACES`; places without a row are ignored.
    """
    wanted = _offsets_by_broker(positions)
    found = [ROWS.empty_table()]
    if wanted:
        for action, folder in _message_files(lake):
            offsets = _offsets_possibly_in_file(action, wanted)
            if len(offsets):
                name = unquote(action["path"])
                with (
                    convert_data_file_errors(lake.uri("messages"), name),
                    folder.open_input_file(name) as file,
                    open_parquet(file) as parquet,
                ):
                    found += _read_file_rows_at(parquet, wanted, offsets)
    return pa.concat_tables(found)


def _read_file_rows_at(
    parquet: pq.ParquetFile, offsets_by_broker: Mapping[str, Array], sorted_offsets: Array
) -> Iterator[pa.Table]:
    for group in range(parquet.num_row_groups):
        if not _group_may_have_numbers(parquet, group, "physical_offset", sorted_offsets):
            continue
        rows = parquet.read_row_group(group, PLACES.names, use_threads=False).combine_chunks()
        chosen = np.zeros(rows.num_rows, bool)
        numbers, brokers = to_numpy_numbers(rows.column("physical_offset")), rows.column("broker")
        for broker, mine in offsets_by_broker.items():
            candidates = np.isin(numbers, mine)
            if candidates.any():
                chosen |= candidates & pc.equal(brokers, broker).to_numpy()
        if chosen.any():
            yield _read_rows_at(parquet, group, np.flatnonzero(chosen))


def find_half_positions(lake: Lake, halves: pa.Table, since_us: int) -> pa.Table:
    """Find the log positions of half messages in `messages` by their queue offsets.

    Args:
        halves: table with broker, queue_id and queue_offset.
        since_us: files with only older half messages are skipped.
    """
    found = [PLACES.empty_table()]
    names = ["broker", "queue_id", "queue_offset"]
    for action, folder in _message_files(lake):
        least, greatest = action.get("min") or {}, action.get("max") or {}
        last = greatest.get("store_timestamp")
        if last is not None and epoch_us(last) < since_us:
            continue
        if not (least.get("topic") or "") <= HALF_TOPIC <= (greatest.get("topic") or HALF_TOPIC):
            continue
        name = unquote(action["path"])
        with (
            convert_data_file_errors(lake.uri("messages"), name),
            folder.open_input_file(name) as file,
            open_parquet(file) as parquet,
        ):
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, [*names, "topic", "physical_offset"], use_threads=False)
                rows = rows.filter(pc.equal(rows.column("topic"), HALF_TOPIC))
                if rows.num_rows:
                    same = rows.join(halves.select(names).group_by(names).aggregate([]), names, join_type="left semi")
                    found.append(same.select(PLACES.names).cast(PLACES))
    return pa.concat_tables(found)


def _message_files(lake: Lake) -> Iterator[tuple[dict[str, Any], pafs.FileSystem]]:
    folder = lake.open_folder("messages")
    for action in read_file_actions(lake.table("messages")).to_pylist():
        yield action, folder


def _offsets_by_broker(positions: pa.Table) -> dict[str, Array]:
    # Steps may have ends that are not known.
    known = positions.drop_null()
    brokers = known.column("broker")
    offsets = to_numpy_numbers(known.column("physical_offset"))
    return {name: np.unique(offsets[pc.equal(brokers, name).to_numpy()]) for name in pc.unique(brokers).to_pylist()}


def _offsets_possibly_in_file(action: Mapping[str, Any], offsets_by_broker: Mapping[str, Array]) -> Array:
    least, greatest = action.get("min") or {}, action.get("max") or {}
    found = [np.empty(0, np.int64)]
    for broker, offsets in offsets_by_broker.items():
        if "broker" in least and "broker" in greatest and not least["broker"] <= broker <= greatest["broker"]:
            continue
        first, last = least.get("physical_offset"), greatest.get("physical_offset")
        if first is not None and last is not None:
            offsets = offsets[np.searchsorted(offsets, first) : np.searchsorted(offsets, last, side="right")]  # noqa: PLW2901
        found.append(offsets)
    return np.unique(np.concatenate(found))


def _group_may_have_numbers(parquet: pq.ParquetFile, group: int, column_name: str, sorted_numbers: Array) -> bool:
    """Return whether a Parquet row group may contain any of the given numbers, by its column statistics."""
    for place in range(parquet.metadata.num_columns):
        column = parquet.metadata.row_group(group).column(place)
        if column.path_in_schema == column_name:
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            at = np.searchsorted(sorted_numbers, [statistics.min, statistics.max + 1])
            return bool(at[1] > at[0])
    return True


def _read_rows_at(parquet: pq.ParquetFile, group: int, row_indexes: Array) -> pa.Table:
    there = [name for name in ROWS.names if name in parquet.schema_arrow.names]
    rows = parquet.read_row_group(group, there, use_threads=False).take(pa.array(row_indexes))
    columns = [
        rows.column(field.name).cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in ROWS
    ]
    return pa.table(columns, schema=ROWS)


def open_parquet(file: pa.NativeFile, dictionaries: list[str] | None = None) -> pq.ParquetFile:
    """Open a Parquet data file so that page checksums are verified and the given columns read as dictionaries."""
    return pq.ParquetFile(file, read_dictionary=dictionaries, page_checksum_verification=True)


def refer_to_positions(rows: pa.Table, position_columns: tuple[str, str], positions: pa.Table) -> pa.Array:
    """Return a mask of the rows whose broker and offset columns have one of the given log positions.

    Args:
        rows: any table.
        position_columns: the columns of brokers and offsets.
    """
    wanted = _offsets_by_broker(positions)
    brokers, offsets = (
        rows.column(position_columns[0]),
        to_numpy_numbers(rows.column(position_columns[1]), null_value=-1),
    )
    found = np.zeros(rows.num_rows, bool)
    for broker, mine in wanted.items():
        found |= np.isin(offsets, mine) & pc.fill_null(pc.equal(brokers, broker), False).to_numpy()
    return to_boolean_array(found)


class WantedRows:
    """Unique keys and log positions of the rows that new or incomplete edges may need.

    Args:
        new: contents of the rows that are read.
        waiting: open steps.
    """

    def __init__(self, new: LinkInputs, waiting: pa.Table) -> None:
        columns = [
            new.members.column(_KEY),
            new.entries.column(_KEY),
            waiting.column("from_key"),
            waiting.column("to_key"),
        ]
        chunks = [chunk for column in columns for chunk in column.chunks]
        self._keys = pc.unique(pa.chunked_array(chunks, pa.string()).drop_null())
        self._places = pa.concat_tables([
            distinct_positions(new.members, "replay_broker", "replay_offset"),
            distinct_positions(waiting, "from_broker", "from_physical_offset"),
        ])  # fmt: skip

    def may_be_in_file(self, filesystem: pafs.FileSystem, file: AddedFile) -> bool:
        """Return whether a data file of `messages` may have a row with one of these keys or log positions."""
        names = [_KEY] * bool(len(self._keys)) + PLACES.names * bool(self._places.num_rows)
        if not names:
            return False
        try:
            with filesystem.open_input_file(file.name) as source, open_parquet(source) as parquet:
                return any(
                    self._has_wanted_row(parquet.read_row_group(group, names, use_threads=False))
                    for group in range(parquet.num_row_groups)
                )
        except (pa.ArrowException, OSError, KeyError):
            return True  # the reader of the file reports the fault

    def _has_wanted_row(self, rows: pa.Table) -> bool:
        if len(self._keys) and pc.any(pc.is_in(rows.column(_KEY), self._keys)).as_py():
            return True
        return bool(
            self._places.num_rows
            and pc.any(refer_to_positions(rows, ("broker", "physical_offset"), self._places)).as_py()
        )


def may_need_edges(rows: pa.Table) -> bool:
    """Return whether rows of `messages` in memory may include retries, delayed, half or other special messages.

    Args:
        rows: as a task has them; repeated texts may be dictionaries.
    """
    if pc.unique(rows.column(_KIND)).to_pylist() not in ([], [str(Kind.NORMAL)]):
        return True
    if _has_commit_flag(rows.column(_FLAGS)):
        return True
    return any(_has_special_property(_property_names(maps)) for maps in rows.column(_PROPERTIES).chunks)


def file_may_need_edges(filesystem: pafs.FileSystem, file: AddedFile) -> bool:
    """Return whether a data file of `messages` may have retries, delayed, half or other special messages.

    Args:
        file: the data file.
    """
    try:
        with filesystem.open_input_file(file.name) as source, open_parquet(source, [KEYS_LEAF]) as parquet:
            return any(_group_may_need_edges(parquet, group) for group in range(parquet.num_row_groups))
    except (pa.ArrowException, OSError, KeyError):
        return True  # the reader of the file reports the fault


def _group_may_need_edges(parquet: pq.ParquetFile, group: int) -> bool:
    metadata = parquet.metadata.row_group(group)
    columns = {metadata.column(place).path_in_schema: metadata.column(place) for place in range(metadata.num_columns)}
    kinds = columns[_KIND].statistics
    if kinds is None or not kinds.has_min_max or kinds.null_count:
        # Without statistics, the group must be read.
        return True
    if not kinds.min == kinds.max == str(Kind.NORMAL):
        return True
    flags = columns[_FLAGS].statistics
    # All flags are 0, as of most files: nothing has to be read.
    has_none = flags is not None and flags.has_min_max and flags.min == flags.max == 0
    if not has_none and _has_commit_flag(parquet.read_row_group(group, [_FLAGS], use_threads=False).column(0)):
        return True
    # A map without its values is read as a list of structs.
    keys = parquet.read_row_group(group, [KEYS_LEAF], use_threads=False).column(0)
    return any(_has_special_property(lists.values.field(0)) for lists in keys.chunks)


def _has_commit_flag(flags: pa.ChunkedArray) -> bool:
    return bool((to_numpy_numbers(flags) & TRANSACTION_MASK == TransactionType.COMMIT).any())


def _property_names(maps: pa.MapArray) -> pa.Array:
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    return maps.keys.slice(first, last - first)


def _has_special_property(names: pa.Array) -> bool:
    """Return whether any of the property names marks a retry, a delayed message or another special record."""
    # A dictionary may have names of other rows, too.
    if pa.types.is_dictionary(names.type) and MARKING.isdisjoint(names.dictionary.to_pylist()):
        return False
    return not MARKING.isdisjoint(pc.unique(names).to_pylist())
