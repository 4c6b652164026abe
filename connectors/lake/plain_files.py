"""Data files of the small tables beside `messages`: Parquet as it comes, without partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from connectors.lake.data_files import DataFile
from connectors.lake.statistics import file_statistics
from connectors.whole_files import write_whole


def write_plain_file(
    rows: pa.Table,
    table_uri: str,
    name: str,
    encodings: Mapping[str, str] | None = None,
    row_group_rows: int | None = None,
) -> DataFile:
    """One file in a table's folder; no table knows of it until it is committed.

    Args:
        rows: the table's columns.
        table_uri: path or URI of the table.
        name: file name; a file of that name is replaced.
        encodings: Parquet's names for columns that are not to be dictionaries.
        row_group_rows: rows of a row group; as Arrow likes it where not given.
    """
    collected: list[pq.FileMetaData] = []
    if "://" in table_uri:
        filesystem, root = pafs.FileSystem.from_uri(table_uri)
        with filesystem.open_output_stream(f"{root}/{name}") as output:
            _write(rows, output, collected, encodings or {}, row_group_rows)
        size = filesystem.get_file_info(f"{root}/{name}").size
    else:
        local = Path(table_uri) / name
        local.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(local) as output:
            _write(rows, output, collected, encodings or {}, row_group_rows)
        size = local.stat().st_size
    return DataFile(name, None, size, rows.num_rows, file_statistics(collected[0]))


def _write(
    rows: pa.Table,
    output: object,
    collected: list[pq.FileMetaData],
    encodings: Mapping[str, str],
    row_group_rows: int | None,
) -> None:
    told = [field.name for field in rows.schema if not pa.types.is_binary(field.type)]  # Delta has no word for bytes
    with pq.ParquetWriter(
        output,
        rows.schema,
        compression="zstd",
        store_schema=False,
        use_dictionary=[name for name in rows.schema.names if name not in encodings],
        column_encoding=dict(encodings),
        write_statistics=told,
        write_page_index=True,
        metadata_collector=collected,
    ) as writer:
        writer.write_table(rows, row_group_size=row_group_rows)
