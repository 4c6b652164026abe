"""Reading of a table's data files as Arrow, about ten thousand rows at a time, for tasks that read a file each."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.arrays_without_pandas import repeat_string, repeat_value
from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.delta_log.check import WAY_OUT
from commitlake.connectors.lake.delta_log.file_actions import PARTITION
from commitlake.connectors.lake.delta_log.versions import AddedFile, table_filesystem
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.errors import ExitCode

_BATCH_ROWS = 1 << 16
Constants = dict[str, str | int | bool]


@contextmanager
def convert_data_file_errors(uri: str, name: str) -> Iterator[None]:
    """Convert read errors inside the block to a `LakeError` that names the data file.

    Args:
        uri: path or URI of the table.
        name: name of the file in the table's folder.

    Raises:
        LakeError: instead of an error of Arrow or of the file system.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        lines = str(error).splitlines() or ["no message"]
        raise LakeError(
            f"{uri}: the data file {name} is damaged and cannot be read as Parquet: {lines[0]}. {WAY_OUT}",
            exit_code=ExitCode.DAMAGE,
        ) from None


@dataclass(frozen=True)
class TableRows:
    """The columns to read from a table's data files, and how to read them; can be pickled.

    Attributes:
        uri: path or URI of the table.
        s3: the object store, if the table is in one.
        schema: the columns to read. A column that a file lacks is null, because the table did not have it then;
            `store_date` is the file's partition.
        dictionaries: columns to return as dictionary arrays.
        skips_constants: whether to skip the pages, and their checksums, of columns that have a single value in a row
            group according to the file's footer; only for text, integer and boolean columns.
    """

    uri: str
    s3: S3Options | None
    schema: pa.Schema
    dictionaries: Sequence[str] = ()
    skips_constants: bool = False

    def read_file(self, file: AddedFile) -> Iterator[pa.Table]:
        """Yield the rows of a data file as tables of about ten thousand rows.

        Yields:
            Tables of `schema`, except that dictionary columns differ; each column has one chunk.

        Raises:
            LakeError: if it cannot be read.
        """
        there: dict[str, int] = {}
        with (
            convert_data_file_errors(self.uri, file.name),
            self._open_file(file) as source,
            self._open_parquet(source, there) as parquet,
        ):
            names = set(parquet.schema_arrow.names)
            wanted = [name for name in self.schema.names if name in names]
            # The first column is always read, because only columns that are read tell the number of rows.
            flat = {name: there[name] for name in wanted[1:] if name in there}
            # One row group at a time, because Arrow cannot return nested texts with dictionaries of two groups in
            # one batch.
            for group in range(parquet.num_row_groups):
                constants = self._constant_values(parquet.metadata.row_group(group), flat)
                read = [name for name in wanted if name not in constants]
                # Without Arrow's threads: the tasks of a run already use all cores.
                for batch in parquet.iter_batches(_BATCH_ROWS, [group], read, use_threads=False):
                    yield self._complete_columns(batch, file, constants)

    def _open_parquet(self, source: pa.NativeFile, column_numbers: dict[str, int]) -> pq.ParquetFile:
        """Open a data file, and add the number of each of its columns to `column_numbers`, by the column's path."""
        metadata = pq.read_metadata(source)
        schema = metadata.schema
        column_numbers |= {schema.column(number).path: number for number in range(metadata.num_columns)}
        dictionaries = [name for name in self.dictionaries if name in column_numbers]
        return pq.ParquetFile(source, metadata=metadata, read_dictionary=dictionaries, page_checksum_verification=True)

    def _open_file(self, file: AddedFile) -> pa.NativeFile:
        if is_uri(self.uri):
            return table_filesystem(self.uri, storage_options(self.uri, self.s3)).open_input_file(file.name)
        return pa.OSFile(str(Path(self.uri, file.name)))  # with other sources, each read would call Python code

    def _constant_values(self, row_group: pq.RowGroupMetaData, column_numbers: Mapping[str, int]) -> Constants:
        """Return the value of each column that is constant in a row group."""
        found: Constants = {}
        if not self.skips_constants:
            return found
        for name, number in column_numbers.items():
            data_type = self.schema.field(name).type
            is_plain = pa.types.is_string(data_type) or pa.types.is_integer(data_type) or pa.types.is_boolean(data_type)
            statistics = row_group.column(number).statistics if is_plain else None
            if statistics is not None and _has_one_value(statistics):
                found[name] = statistics.min
        return found

    def _complete_columns(self, batch: pa.RecordBatch, file: AddedFile, constants: Constants) -> pa.Table:
        return pa.table([self._make_column(field, batch, file, constants) for field in self.schema], self.schema.names)

    def _make_column(self, field: pa.Field, batch: pa.RecordBatch, file: AddedFile, constants: Constants) -> pa.Array:
        if (constant := constants.get(field.name)) is not None:
            if not isinstance(constant, str):
                return repeat_value(constant, field.type, batch.num_rows)
            texts = repeat_string(constant, batch.num_rows)
            return texts if field.name in self.dictionaries else texts.dictionary_decode()
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            return column if pa.types.is_dictionary(column.type) else _cast_column(column, field.type)
        if field.name == PARTITION and file.store_date is not None:
            return pa.repeat(pa.scalar(datetime.date.fromisoformat(file.store_date), field.type), batch.num_rows)
        return pa.nulls(batch.num_rows, field.type)


def _has_one_value(statistics: pq.Statistics) -> bool:
    is_known: bool = statistics.has_min_max and statistics.has_null_count
    return is_known and statistics.null_count == 0 and bool(statistics.min == statistics.max)


def _cast_column(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert a column to its table's type, because other writers use other Arrow types."""
    return column if column.type.equals(data_type) else column.cast(data_type)
