"""The messages that an analyst has chosen by a DataFrame or an Arrow table, as places of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BROKER, OFFSET = "broker", "physical_offset"


def read_chosen_places(frame: pa.Table | DataFrame) -> dict[str, Array]:
    """Return the messages listed in a DataFrame or Arrow table, as sorted physical offsets by broker.

    Only the columns `broker` and `physical_offset` are read, which identify a row of `messages`. A DataFrame is
    computed, and both columns of all rows are then in the memory of this process.

    Returns:
        By store, the physical offsets, sorted.

    Raises:
        UsageError: if it lacks one of the columns, or has it twice or with another type; or if a row has a null in one,
            or the same values as another row.
    """
    if isinstance(frame, pa.Table):
        found = frame
        _check_columns(found.column_names)
    elif callable(getattr(frame, "toArrow", None)):
        _check_columns(frame.columns)
        found = frame.select(BROKER, OFFSET).toArrow()
    else:
        raise UsageError(f"frame: expected a DataFrame of Spark or a pyarrow.Table, found {type(frame).__name__}")
    brokers, offsets = found.column(BROKER), found.column(OFFSET)
    if pa.types.is_dictionary(brokers.type):
        brokers = brokers.cast(brokers.type.value_type)
    if not (pa.types.is_string(brokers.type) or pa.types.is_large_string(brokers.type)):
        raise UsageError(f"frame: column {BROKER}: expected texts, found the type {brokers.type}")
    if not pa.types.is_integer(offsets.type):
        raise UsageError(f"frame: column {OFFSET}: expected whole numbers, found the type {offsets.type}")
    for name, column in ((BROKER, brokers), (OFFSET, offsets)):
        if column.null_count:
            raise UsageError(
                f"frame: column {name}: expected no null, found {column.null_count:,}: after an outer join, "
                "drop the rows without a message"
            )
    return _divide_by_broker(brokers.cast(pa.string()), offsets.cast(pa.int64()))


def _check_columns(names: list[str]) -> None:
    for name in (BROKER, OFFSET):
        count = names.count(name)
        if count != 1:
            raise UsageError(
                f"frame: expected one column {name!r}, found {count or 'none'}: the columns {BROKER} and {OFFSET} "
                "identify a message"
            )


def _divide_by_broker(brokers: pa.ChunkedArray, offsets: pa.ChunkedArray) -> dict[str, Array]:
    codes = brokers.combine_chunks().dictionary_encode()
    numbers, values = np.asarray(codes.indices), offsets.to_numpy()
    places = {}
    for code, broker in enumerate(codes.dictionary.to_pylist()):
        own = np.sort(values[numbers == code])
        is_repeated = own[1:] == own[:-1]
        if is_repeated.any():
            example = int(own[1:][is_repeated][0])
            raise UsageError(
                f"frame: expected each message once, found {format_count(int(is_repeated.sum()), 'row')} more of store "
                f"{broker!r}, such as of physical_offset {example}: after a join, drop duplicates of {BROKER} and "
                f"{OFFSET}"
            )
        places[broker] = own
    return places
