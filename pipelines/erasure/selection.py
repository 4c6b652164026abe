"""Chooses the messages of an erasure: those with a key or an id, and copies that a broker made of them.

A broker copies a message when it delays it, retries it, or gives it up; the copies have its unique key. Trace messages
contain the keys and unique keys of the messages that they describe. All of these are found by `message_keys`, and by
`messages` for versions that this table does not have yet.

The rows of messages are then looked for in data files. A table's log has the smallest and largest offset and broker of
each file. Only files whose bounds match are opened, and only these two columns are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_file_actions, read_table_files
from commitlake.connectors.lake.erasures import ErasedMessages, parse_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner, SharedValue, group_small_tasks, results_in_order
from commitlake.pipelines.masking.copies_of_erased import NO_TEXTS, CopyTexts
from commitlake.pipelines.masking.erased_rows import CHANGED_COLUMNS, erased_row_mask
from commitlake.pipelines.message_keys.lookup import find_message_places
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, UNIQUE_KEY
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.messages import MESSAGES, STORE_DATE

ROWS: pa.Schema = arrow_schema(MESSAGES).remove(MESSAGES.names.index(STORE_DATE.name))
"""Columns of rows of `messages` in its data files."""
_PLACE = pa.schema([("broker", pa.string()), ("physical_offset", pa.int64())])
_PLACE_COLUMNS = ["broker", "physical_offset"]


@dataclass(frozen=True, slots=True)
class KeysToErase:
    """Business keys and ids whose messages are to be erased.

    Attributes:
        keys: business keys.
        unique_keys: client message ids.
        ids: offset message ids or client message ids.
    """

    keys: Collection[str] = ()
    unique_keys: Collection[str] = ()
    ids: Collection[str] = ()

    @property
    def texts(self) -> set[str]:
        """All keys and ids."""
        return {*self.keys, *self.unique_keys, *self.ids}


@dataclass(frozen=True)
class FoundMessages:
    """Messages to erase, and the texts to erase with them.

    Attributes:
        rows: rows of `messages` before the erasure, with the columns of `ROWS`.
        texts: texts that must be erased everywhere: the requested keys and ids, and the unique keys of the messages.
        unmatched: requested keys and ids that no message has.
        copies: texts that later copies of the messages have.
    """

    rows: pa.Table
    texts: Collection[str] = field(default=())
    unmatched: Collection[str] = field(default=())
    copies: CopyTexts = NO_TEXTS

    @property
    def messages_to_erase(self) -> ErasedMessages:
        """Brokers and physical offsets of the messages to erase."""
        return _to_erased_places(self.rows.select(_PLACE.names))


def select_messages(lake: Lake, keys_to_erase: KeysToErase, runner: Runner = HERE) -> FoundMessages:
    """Find all messages with the given keys and ids, and all their copies.

    Args:
        keys_to_erase: the keys and ids.
        runner: runs the tasks that look for the rows of messages in data files.

    Raises:
        LakeError: if there is no lake, or a table of it is damaged.
        VersionsError: if `message_keys` cannot be updated.
    """
    places = [
        _find_key_places(lake, keys_to_erase.keys, BUSINESS_KEY),
        _find_key_places(lake, keys_to_erase.unique_keys, UNIQUE_KEY),
    ]
    for message_id in keys_to_erase.ids:
        found = _find_offset_id_places(lake, message_id)
        # An id of 32 digits may be an offset message id or a unique key of an IPv4 producer.
        places.append(found if found.num_rows else _find_key_places(lake, [message_id], UNIQUE_KEY))
    rows = read_message_rows(lake, _to_erased_places(_distinct_places(places)), runner)
    known = set(keys_to_erase.unique_keys)
    # A copy may have another unique key, and copies of its own: the search ends when it finds nothing new.
    while new := _unique_keys(rows) - known:
        known |= new
        more = _distinct_places(
            [
                rows.select(_PLACE.names),
                _find_key_places(lake, new, UNIQUE_KEY),
                _find_key_places(lake, new, BUSINESS_KEY),
            ]
        )
        # New keys without new messages would only be looked up again.
        if more.num_rows == rows.num_rows:
            break
        rows = read_message_rows(lake, _to_erased_places(more), runner)
    found = _keys_and_ids(rows)
    ids = {*known, *rows.column("msg_id").drop_null().to_pylist(), *keys_to_erase.ids}
    copies = CopyTexts(ids, set(keys_to_erase.keys))
    return FoundMessages(rows, keys_to_erase.texts | known, keys_to_erase.texts - found, copies)


def count_inner_batches(lake: Lake) -> int:
    """Count the records that hold several messages, whose keys and ids an erasure cannot find.

    The keys and ids inside them are in no table, so they cannot be found.

    Raises:
        LakeError: if there is no lake, or `messages` is damaged.
    """
    condition = f"(sys_flag & {INNER_BATCH}) <> 0 AND body_size > 0 AND properties['{INNER_NUM}'] IS NOT NULL"
    sql = f"SELECT count(*) AS batches FROM messages WHERE {condition}"
    return int(run_sql(lake.table("messages"), "messages", sql).read_all().column("batches")[0].as_py())


def read_message_rows(lake: Lake, erased_messages: ErasedMessages, runner: Runner = HERE) -> pa.Table:
    """Read the rows of messages that are not erased yet.

    Args:
        erased_messages: the messages.
        runner: runs the tasks that look for the rows in data files.
    """
    table, folder = lake.table("messages"), lake.open_folder("messages")
    found = [ROWS.empty_table()]
    if erased_messages:
        for hits in find_files_with_messages(lake, "messages", table, erased_messages, runner):
            left = drop_already_erased_rows(folder, hits)
            if left.groups:
                found.append(read_rows_to_erase(folder, left, ROWS))
    return pa.concat_tables(found).sort_by([("broker", "ascending"), ("physical_offset", "ascending")]).combine_chunks()


def _unique_keys(rows: pa.Table) -> set[str]:
    """Return the unique keys of messages, except those of trace messages, whose keys no other record has."""
    is_message = pc.and_(pc.is_valid(rows.column("unique_key")), pc.not_equal(rows.column("kind"), str(Kind.TRACE)))
    return set(rows.column("unique_key").filter(is_message.fill_null(False)).to_pylist())


def _keys_and_ids(rows: pa.Table) -> set[str]:
    """Return all keys and ids of messages; ids are returned as they are and in lower case."""
    keys = pc.list_flatten(rows.column("keys")).to_pylist()
    ids = [text for name in ("unique_key", "msg_id") for text in rows.column(name).to_pylist() if text is not None]
    # Users may give an id in either case.
    return {*keys, *ids, *(text.lower() for text in ids)}


def _find_key_places(lake: Lake, keys: Iterable[str], kind: str) -> pa.Table:
    wanted = sorted(set(keys))
    return find_message_places(lake, wanted, kind).select(_PLACE.names) if wanted else _PLACE.empty_table()


def _find_offset_id_places(lake: Lake, message_id: str) -> pa.Table:
    try:
        offset = parse_message_id(message_id).physical_offset
    except LayoutError:
        return _PLACE.empty_table()
    condition = f"physical_offset = {offset} AND msg_id = {text_literal(message_id.upper())}"
    sql = f"SELECT broker, physical_offset FROM messages WHERE {condition}"
    answer = run_sql(lake.table("messages"), "messages", sql).read_all()
    return pa.table([answer.column(name).cast(_PLACE.field(name).type) for name in _PLACE.names], schema=_PLACE)


def _distinct_places(place_tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([part.cast(_PLACE) for part in place_tables]).group_by(_PLACE.names).aggregate([])


def _to_erased_places(rows: pa.Table) -> ErasedMessages:
    count = rows.num_rows
    named = rows.append_column("erasure_id", pa.array([""] * count, pa.string()))
    return parse_erased_messages(named.append_column("number", pa.array([0] * count, pa.int64())), 0)


@dataclass(frozen=True, slots=True)
class RowsToEraseInFile:
    """Data file, with the indexes of its rows that refer to messages to erase.

    Attributes:
        file: the file.
        groups: by index of a row group, the indexes of rows in it.
    """

    file: TableFile
    groups: Mapping[int, Array]

    @property
    def row_count(self) -> int:
        """Number of rows that refer to messages to erase."""
        return sum(map(len, self.groups.values()))


def find_files_with_messages(
    lake: Lake,
    table: str,
    delta_table: DeltaTable,
    messages: ErasedMessages,
    runner: Runner = HERE,
    column_prefixes: Sequence[str] = ("",),
) -> Iterator[RowsToEraseInFile]:
    """Find the data files of a table with rows that refer to the given messages.

    Args:
        table: name of the table, which has the columns `broker` and `physical_offset`.
        delta_table: the table.
        messages: the messages.
        runner: runs the tasks that read the files.
        column_prefixes: prefixes of the names of these columns; a row may refer to several messages.

    Raises:
        UsageError: if a file has a deletion vector.
    """
    actions = read_file_actions(delta_table).to_pylist()
    chosen = []
    for action, file in zip(actions, read_table_files(delta_table), strict=True):
        if not any(_file_may_refer_to_messages(action, messages, prefix) for prefix in column_prefixes):
            continue
        # Rows that such a vector hides are still in the file, and rewriting the file would bring them back.
        if file.has_deletions:
            raise UsageError(
                f"{delta_table.table_uri}: the data file {unquote(file.path)} has a deletion vector, which another "
                "program wrote, and which 'erase' does not support. Run REORG TABLE … APPLY (PURGE) with that program, "
                "then erase again"
            )
        chosen.append(file)
    groups = group_small_tasks(chosen, [file.size for file in chosen], runner.cores)
    shared = SharedValue(messages)
    tasks = [(shared, group) for group in groups]
    for found in results_in_order(runner.run(partial(_find_hits_in_files, lake, table, column_prefixes), tasks)):
        yield from found


def _find_hits_in_files(
    lake: Lake,
    table: str,
    column_prefixes: Sequence[str],
    task: tuple[SharedValue[ErasedMessages], Sequence[TableFile]],
) -> list[RowsToEraseInFile]:
    """Return the files of a task with rows that refer to the given messages."""
    messages, files = task
    folder = lake.open_folder(table)
    names = [f"{prefix}{name}" for prefix in column_prefixes for name in _PLACE_COLUMNS]
    hits = []
    for file in files:
        groups = {}
        with folder.open_input_file(unquote(file.path)) as source, _open_parquet(source) as parquet:
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, names, use_threads=False)
                if rows.num_rows and len(
                    found := np.flatnonzero(rows_refer_to_messages(rows, messages.value, column_prefixes))
                ):
                    groups[group] = found
        if groups:
            hits.append(RowsToEraseInFile(file, groups))
    return hits


def rows_refer_to_messages(rows: pa.Table, messages: ErasedMessages, column_prefixes: Sequence[str] = ("",)) -> Array:
    """Return a mask of the rows that refer to any of the given messages.

    Args:
        rows: rows with the columns of a broker and an offset for each prefix.
        column_prefixes: as for `find_files_with_messages`.
    """
    rows = rows.combine_chunks()
    found = np.zeros(rows.num_rows, bool)
    for prefix in column_prefixes if rows.num_rows else ():
        columns = (rows.column(f"{prefix}{name}").chunk(0) for name in _PLACE_COLUMNS)
        found |= messages.find_row_erasure_indexes(*columns) >= 0
    return found


def drop_already_erased_rows(folder: pafs.FileSystem, hits: RowsToEraseInFile) -> RowsToEraseInFile:
    """Leave out the rows of `hits` whose messages are already erased, in a data file of `messages`."""
    groups = {}
    with folder.open_input_file(unquote(hits.file.path)) as source, _open_parquet(source) as parquet:
        for group, rows in hits.groups.items():
            columns = parquet.read_row_group(group, list(CHANGED_COLUMNS), use_threads=False).combine_chunks()
            is_left = ~erased_row_mask(columns.take(pa.array(rows)))
            if is_left.any():
                groups[group] = rows[is_left]
    return RowsToEraseInFile(hits.file, groups)


def read_rows_to_erase(folder: pafs.FileSystem, hits: RowsToEraseInFile, schema: pa.Schema) -> pa.Table:
    """Read the rows of `hits` from a table's data file, with null in columns that the file lacks."""
    with folder.open_input_file(unquote(hits.file.path)) as source, _open_parquet(source) as parquet:
        there = [name for name in schema.names if name in parquet.schema_arrow.names]
        parts = [
            parquet.read_row_group(group, there, use_threads=False).combine_chunks().take(pa.array(rows))
            for group, rows in hits.groups.items()
        ]
    found = pa.concat_tables(parts)
    columns = [
        found.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(found), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _open_parquet(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, page_checksum_verification=True)


def _file_may_refer_to_messages(file_action: Mapping[str, Any], messages: ErasedMessages, column_prefix: str) -> bool:
    least: dict[str, Any] = {
        name: (file_action.get("min") or {}).get(f"{column_prefix}{name}") for name in _PLACE_COLUMNS
    }
    greatest: dict[str, Any] = {
        name: (file_action.get("max") or {}).get(f"{column_prefix}{name}") for name in _PLACE_COLUMNS
    }
    first, last = least["physical_offset"], greatest["physical_offset"]
    for broker, found in messages.brokers.items():
        is_known = least.get("broker") is not None and greatest.get("broker") is not None
        if is_known and not least["broker"] <= broker <= greatest["broker"]:
            continue
        are_bounds_known = first is not None and last is not None
        # Without known bounds, the file must be opened.
        if messages.has_any_in_range(broker, first, last + 1) if are_bounds_known else len(found.offsets):
            return True
    return False
