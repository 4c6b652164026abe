"""Data files of the small tables beside `messages`: unsorted Parquet files without partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import BATCH_VALUES, DataFile, open_table_file
from commitlake.connectors.lake.rows.statistics import file_statistics


def write_plain_file(
    rows: pa.Table,
    lake: Lake,
    table: str,
    file_name: str,
    encodings: Mapping[str, str] | None = None,
    row_group_rows: int | None = None,
    statistics: Sequence[str] | None = None,
    footer_statistics: Sequence[str] = (),
    *,
    has_row_sum: bool = True,
) -> DataFile:
    """Write rows as a data file without partition in a table's folder; it belongs to the table only after a commit.

    Args:
        rows: the table's columns.
        table: name of the table.
        file_name: file name; a file of that name is replaced.
        encodings: Parquet encodings of columns that do not use dictionaries.
        row_group_rows: number of rows of a row group; by default Arrow's.
        statistics: columns whose minimum and maximum go to the table's log; by default all but binary ones.
        footer_statistics: further columns whose minimum and maximum are only in the file's footer.
        has_row_sum: whether the file has the sum of its rows, see `row_sums`.
    """
    if statistics is None:
        statistics = [field.name for field in rows.schema if not pa.types.is_binary(field.type)]
    collected: list[pq.FileMetaData] = []
    with open_table_file(lake, table, file_name) as output:
        _write_parquet(
            rows, output, collected, encodings or {}, row_group_rows, [*statistics, *footer_statistics], has_row_sum
        )
        size = output.tell()
    return DataFile(file_name, None, size, rows.num_rows, file_statistics(collected[0], frozenset(footer_statistics)))


def _write_parquet(
    rows: pa.Table,
    output: object,
    metadata_collector: list[pq.FileMetaData],
    encodings: Mapping[str, str],
    row_group_rows: int | None,
    statistics: Sequence[str],
    has_row_sum: bool,
) -> None:
    from commitlake.connectors.lake.rows.row_sums import RowSumWriter  # loads compiled code

    with (RowSumWriter if has_row_sum else pq.ParquetWriter)(
        output,
        rows.schema,
        compression="zstd",
        store_schema=False,
        use_dictionary=[name for name in rows.schema.names if name not in encodings],
        column_encoding=dict(encodings),
        write_statistics=list(statistics),
        write_batch_size=BATCH_VALUES,
        write_page_index=True,
        write_page_checksum=True,
        metadata_collector=metadata_collector,
    ) as writer:
        writer.write_table(rows, row_group_size=row_group_rows)
