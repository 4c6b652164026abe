"""What a Delta table's log says of a data file, so that readers can pass it over: rows, least, greatest, nulls.

Taken from the Parquet file's own footer, which has them for every column chunk. Source: the Delta protocol,
"Per-file Statistics".
"""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import pyarrow.parquet as pq

from commitlake.schemas.times import iso_text

_PREFIX_CHARACTERS = 32
_HIGHEST_CHARACTER = "\U0010ffff"


def file_statistics(metadata: pq.FileMetaData, left_out: Collection[str] = frozenset()) -> str:
    """The JSON for an add action's `stats`; nested columns are left out, as Delta's own writers leave them out.

    Characters are written as they are: Delta's Rust library reads the escapes of some (U+20000 is one) as another one.

    Args:
        metadata: the file's footer.
        left_out: more columns that are left out.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = defaultdict(int)
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            name, statistics = chunk.path_in_schema, chunk.statistics
            if "." in name or name in left_out:
                continue
            if statistics is None or not statistics.has_null_count:
                unknown.add(name)
                continue
            nulls[name] += statistics.null_count
            if statistics.has_min_max:
                least[name] = min(least.get(name, statistics.min), statistics.min)
                greatest[name] = max(greatest.get(name, statistics.max), statistics.max)
            elif statistics.null_count < chunk.num_values:
                unknown.add(name)
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: _floor(value) for name, value in least.items() if name not in unknown},
            "maxValues": {
                name: ceiling
                for name, value in greatest.items()
                if name not in unknown and (ceiling := _ceiling(value)) is not None
            },
            "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _floor(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return iso_text(value, "milliseconds")
    return value[:_PREFIX_CHARACTERS] if isinstance(value, str) else value


def _ceiling(value: Any) -> Any:
    """A value that none of the column's is above; None where there is no short one."""
    if isinstance(value, datetime.datetime):
        return iso_text(value, "milliseconds")  # our times have no more than milliseconds
    if isinstance(value, str) and len(value) > _PREFIX_CHARACTERS:
        ceiling = value[:_PREFIX_CHARACTERS] + _HIGHEST_CHARACTER
        return ceiling if ceiling > value else None
    return value
