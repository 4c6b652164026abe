"""Rows of a table's data files as Arrow, some ten thousands at a time, for tasks that read a file each."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.log_check import WAY_OUT
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.versions import AddedFile, table_files
from commitlake.connectors.object_store.options import S3Options
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.messages import STORE_DATE

_BATCH_ROWS = 1 << 16


class DataFileError(LakeError):
    """A data file that cannot be read: it is gone, cut, or a page of it is not what its checksum says."""

    exit_code = ExitCode.DAMAGE


@dataclass(frozen=True)
class TableRows:
    """Columns of a table, and how its files are read; it can be pickled.

    Attributes:
        uri: path or URI of the table.
        s3: the object store, where the table is in one.
        schema: the columns that are wanted. One that a file does not have is null, as its version of the table had
            none; `store_date` is the file's partition.
        dictionaries: those of them that are given as dictionary arrays.
    """

    uri: str
    s3: S3Options | None
    schema: pa.Schema
    dictionaries: Sequence[str] = ()

    def read(self, file: AddedFile) -> Iterator[pa.Table]:
        """Read a file.

        Yields:
            Tables of `schema`, but for the dictionaries; each column in one chunk.

        Raises:
            DataFileError: if it cannot be read.
        """
        files = table_files(self.uri, storage_options(self.uri, self.s3))
        try:
            with (
                files.open_input_file(file.name) as source,
                pq.ParquetFile(
                    source, read_dictionary=list(self.dictionaries), page_checksum_verification=True
                ) as parquet,
            ):
                there = set(parquet.schema_arrow.names)
                wanted = [name for name in self.schema.names if name in there]
                # Group by group, as Arrow cannot give a batch of nested texts with the dictionaries of two groups.
                for group in range(parquet.num_row_groups):
                    for batch in parquet.iter_batches(_BATCH_ROWS, [group], wanted, use_threads=False):
                        yield self._complete(batch, file)
        except (pa.ArrowException, OSError) as error:
            lines = str(error).splitlines() or ["no message"]
            raise DataFileError(
                f"{self.uri}: data file {file.name}: expected a whole Parquet file, found one that cannot be read: "
                f"{lines[0]}. {WAY_OUT}"
            ) from None

    def _complete(self, batch: pa.RecordBatch, file: AddedFile) -> pa.Table:
        return pa.table([self._column(field, batch, file) for field in self.schema], self.schema.names)

    def _column(self, field: pa.Field, batch: pa.RecordBatch, file: AddedFile) -> pa.Array:
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            return column if pa.types.is_dictionary(column.type) else _as_type(column, field.type)
        if field.name == STORE_DATE.name and file.store_date is not None:
            return pa.repeat(pa.scalar(datetime.date.fromisoformat(file.store_date), field.type), batch.num_rows)
        return pa.nulls(batch.num_rows, field.type)


def _as_type(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """A column as its table has it: other writers have texts, lists and times of other types of Arrow's."""
    return column if column.type.equals(data_type) else column.cast(data_type)
