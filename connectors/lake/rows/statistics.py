"""Statistics of a data file in a Delta table's log, with which readers skip files: rows, minimum, maximum, nulls.

They are read from the Parquet file's footer, which has them for every column chunk. Source: the Delta protocol,
"Per-file Statistics".
"""

from __future__ import annotations

import datetime
import json
import math
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import pyarrow.parquet as pq

from commitlake.connectors.lake.delta_log.row_sum_changes import STATISTICS_KEY, read_footer_sum
from commitlake.schemas.times import format_iso_time

_PREFIX_CHARACTERS = 32
_HIGHEST_CHARACTER = "\U0010ffff"


def file_statistics(metadata: pq.FileMetaData, excluded_columns: Collection[str] = frozenset()) -> str:
    """Return a data file's statistics as the JSON of Delta's `stats`, without nested columns.

    Characters are not escaped, because Delta's Rust library misreads some escapes, for example that of U+20000.

    Args:
        metadata: the file's footer.
        excluded_columns: further columns to leave out.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = defaultdict(int)
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            name, statistics = chunk.path_in_schema, chunk.statistics
            if "." in name or name in excluded_columns:
                continue
            if statistics is None or not statistics.has_null_count:
                # A file is skipped by its statistics, so a column with one unknown row group must have none at all.
                unknown.add(name)
                continue
            nulls[name] += statistics.null_count
            bounds = _min_and_max_of_column(statistics)
            if bounds is not None:
                least[name] = min(least.get(name, bounds[0]), bounds[0])
                greatest[name] = max(greatest.get(name, bounds[1]), bounds[1])
            elif statistics.null_count < chunk.num_values:
                unknown.add(name)
    summed = read_footer_sum(metadata)
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: _lower_bound(value) for name, value in least.items() if name not in unknown},
            "maxValues": {
                name: ceiling
                for name, value in greatest.items()
                if name not in unknown and (ceiling := _upper_bound(value)) is not None
            },
            "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
            **({} if summed is None else {STATISTICS_KEY: summed}),
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _min_and_max_of_column(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    """Return a column's minimum and maximum; None if unknown, or if JSON or Python cannot represent them."""
    if not statistics.has_min_max:
        return None
    try:
        bounds = statistics.min, statistics.max
    except (OverflowError, ValueError):  # a time outside the calendar, or invalid UTF-8
        return None
    return None if any(isinstance(value, float) and not math.isfinite(value) for value in bounds) else bounds


def _lower_bound(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return format_iso_time(value, "milliseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value[:_PREFIX_CHARACTERS] if isinstance(value, str) else value


def _upper_bound(value: Any) -> Any:
    """Return a short upper bound of a column's values; None if there is none."""
    if isinstance(value, datetime.datetime):
        # The statistics have milliseconds, so a time between two of them is below the later one.
        return format_iso_time(value + datetime.timedelta(microseconds=-value.microsecond % 1000), "milliseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > _PREFIX_CHARACTERS:
        # A prefix is below the value. With the highest character added it is above, except after the same prefix of
        # such characters.
        ceiling = value[:_PREFIX_CHARACTERS] + _HIGHEST_CHARACTER
        return ceiling if ceiling > value else None
    return value
