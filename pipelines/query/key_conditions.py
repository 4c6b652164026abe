"""Looks up the locations of a key's messages in `message_keys`, before `messages` is read.

The locations are an additional condition, by which the engine opens only some files. The answer is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_utc_times
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.versions import VersionsError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.lake.sql import date_literal, in_condition
from commitlake.pipelines.message_keys.lookup import find_indexed_message_places
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, UNIQUE_KEY

MAX_PLACES = 2000
"""Largest number of locations in a condition. A longer list costs an engine more than it saves."""


def business_keys_condition(lake: Lake, keys: Sequence[str]) -> str | None:
    """Return an SQL condition for the locations of messages with given business keys; None to search all rows."""
    return _message_places_condition(lake, keys, BUSINESS_KEY)


def unique_key_condition(lake: Lake, unique_key: str) -> str | None:
    """Return an SQL condition for the locations of messages with a client's message id; None to search all rows."""
    return _message_places_condition(lake, [unique_key], UNIQUE_KEY)


def _message_places_condition(lake: Lake, keys: Sequence[str], key_kind: str) -> str | None:
    try:
        found = find_indexed_message_places(lake, keys, key_kind)
    except VersionsError:  # rows of messages were changed, or files were merged and deleted: all of it is searched
        return None
    except (LogDamagedError, QueryError, OSError, pa.ArrowException) as error:
        print(f"warning: message_keys is damaged, so all of messages is searched: {error}", file=sys.stderr)
        return None
    if found is None:
        return None
    if not found.num_rows:
        return "false"
    if found.num_rows > MAX_PLACES:
        return None
    offsets = in_condition("physical_offset", map(str, pc.unique(found.column("physical_offset")).to_pylist()))
    return f"{offsets} AND {_dates_condition(found.column('store_timestamp'))}"


def _dates_condition(times: pa.ChunkedArray) -> str:
    days = {time.date() if time else None for time in to_utc_times(pc.unique(times))}
    known = in_condition("store_date", (date_literal(day) for day in sorted(day for day in days if day)))
    return f"({known} OR store_date IS NULL)" if None in days else known
