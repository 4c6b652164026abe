"""Finds data files of `messages` that need not be read: none of their records belongs to a step or is needed by one.

Most files have only messages that producers sent to their own topics. Statistics and a few columns show this, at a
tenth of the cost of reading the rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from commitlake.connectors.lake.versions import AddedFile
from commitlake.connectors.plain_arrays import numbers_of
from commitlake.pipelines.edges.finding import PLACES, is_in_places, open_parquet
from commitlake.pipelines.edges.members import KEYS_LEAF, MARKING
from commitlake.pipelines.edges.open_steps import places_of
from commitlake.pipelines.edges.reading import RowContents
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import Kind

_FLAGS = "sys_flag"
_KIND = "kind"
_KEY = "unique_key"
_PROPERTIES = "properties"


class WantedRows:
    """Rows that steps of other rows may need: by unique key, or by place.

    Args:
        new: contents of the rows that are read.
        waiting: open steps.
    """

    def __init__(self, new: RowContents, waiting: pa.Table) -> None:
        columns = [
            new.members.column(_KEY),
            new.entries.column(_KEY),
            waiting.column("from_key"),
            waiting.column("to_key"),
        ]
        chunks = [chunk for column in columns for chunk in column.chunks]
        self._keys = pc.unique(pa.chunked_array(chunks, pa.string()).drop_null())
        self._places = pa.concat_tables([
            places_of(new.members, "replay_broker", "replay_offset"),
            places_of(waiting, "from_broker", "from_physical_offset"),
        ])  # fmt: skip

    def any_in(self, folder: pafs.FileSystem, file: AddedFile) -> bool:
        """Return whether a data file of `messages` may have one of them."""
        names = [_KEY] * bool(len(self._keys)) + PLACES.names * bool(self._places.num_rows)
        if not names:
            return False
        try:
            with folder.open_input_file(file.name) as source, open_parquet(source) as parquet:
                return any(
                    self._is_any(parquet.read_row_group(group, names, use_threads=False))
                    for group in range(parquet.num_row_groups)
                )
        except (pa.ArrowException, OSError, KeyError):
            return True  # the reader of the file reports the fault

    def _is_any(self, rows: pa.Table) -> bool:
        if len(self._keys) and pc.any(pc.is_in(rows.column(_KEY), self._keys)).as_py():
            return True
        return bool(
            self._places.num_rows and pc.any(is_in_places(rows, ("broker", "physical_offset"), self._places)).as_py()
        )


def rows_may_have_roles(rows: pa.Table) -> bool:
    """Return whether rows of `messages` in memory may include one that `members.has_role` selects.

    Args:
        rows: as a task has them; repeated texts may be dictionaries.
    """
    if pc.unique(rows.column(_KIND)).to_pylist() not in ([], [str(Kind.NORMAL)]):
        return True
    if _has_committed(rows.column(_FLAGS)):
        return True
    return any(_has_marking(_names_of(maps)) for maps in rows.column(_PROPERTIES).chunks)


def may_have_roles(folder: pafs.FileSystem, file: AddedFile) -> bool:
    """Return whether a data file of `messages` may have a row that `members.has_role` selects.

    Args:
        file: the data file.
    """
    try:
        with folder.open_input_file(file.name) as source, open_parquet(source, [KEYS_LEAF]) as parquet:
            return any(_group_may_have_roles(parquet, group) for group in range(parquet.num_row_groups))
    except (pa.ArrowException, OSError, KeyError):
        return True  # the reader of the file reports the fault


def _group_may_have_roles(parquet: pq.ParquetFile, group: int) -> bool:
    metadata = parquet.metadata.row_group(group)
    columns = {metadata.column(place).path_in_schema: metadata.column(place) for place in range(metadata.num_columns)}
    kinds = columns[_KIND].statistics
    if kinds is None or not kinds.has_min_max or kinds.null_count:
        return True
    if not kinds.min == kinds.max == str(Kind.NORMAL):
        return True
    flags = columns[_FLAGS].statistics
    has_none = flags is not None and flags.has_min_max and flags.min == flags.max == 0
    if not has_none and _has_committed(parquet.read_row_group(group, [_FLAGS], use_threads=False).column(0)):
        return True
    # A map without its values is read as a list of structs.
    keys = parquet.read_row_group(group, [KEYS_LEAF], use_threads=False).column(0)
    return any(_has_marking(lists.values.field(0)) for lists in keys.chunks)


def _has_committed(flags: pa.ChunkedArray) -> bool:
    return bool((numbers_of(flags) & TRANSACTION_MASK == TransactionType.COMMIT).any())


def _names_of(maps: pa.MapArray) -> pa.Array:
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    return maps.keys.slice(first, last - first)


def _has_marking(names: pa.Array) -> bool:
    """Return whether one of these properties gives a record a role."""
    # A dictionary may have names of other rows, too.
    if pa.types.is_dictionary(names.type) and MARKING.isdisjoint(names.dictionary.to_pylist()):
        return False
    return not MARKING.isdisjoint(pc.unique(names).to_pylist())
